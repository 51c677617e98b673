"""Patterns for words and characters of any language, for both RE2 and Python's `regex`.

In scripts without spaces between words, every character is a word. A character is a letter with its
signs, so that no word starts or ends inside a grapheme.
"""

import regex

from ..scripts import NAMES, UNSPACED

# Scripts without spaces between words, with the individual scripts of Japanese.
_UNSPACED = [NAMES[code] for code in sorted({*UNSPACED, "Hira", "Kana"} - {"Jpan"})]
_ALL_UNSPACED = "".join(rf"\p{{{script}}}" for script in _UNSPACED)
# Japanese long vowel marks, to which Unicode assigns no script.
_LONG_VOWELS = "ーｰ"

# Characters that belong to the preceding character: combining marks, Thai and Lao vowels, Korean
# vowels and finals, joiners, skin tones, and flag tags.
SIGNS = (
    r"\p{M}"
    "\u0e30\u0e32\u0e33\u0e45\u0e46\u0eb0\u0eb2\u0eb3\u0ec6\u1160-\u11ff\u200c\u200d\uff9e\uff9f"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
)
# Characters that join the letters on both sides.
VIRAMAS = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca\u1039\u17d2"
# Vowels in front of their Thai or Lao consonant.
VOWELS_IN_FRONT = "\u0e40-\u0e44\u0ec0-\u0ec4"

# In a negated class, \P{L} keeps only letters.
_UNSPACED_LETTER = "|".join(rf"[^\P{{L}}\P{{{script}}}]" for script in _UNSPACED)
_CHARACTER = (
    rf"(?:[{VOWELS_IN_FRONT}]?(?:{_UNSPACED_LETTER}|[{_LONG_VOWELS}])"
    "(?:[\u1039\u17d2]" + rf"\p{{L}}|[{SIGNS}])*)"
)
_SPACED_LETTER = rf"[^\P{{L}}{_ALL_UNSPACED}{_LONG_VOWELS}]"
# Joiners inside Persian and Indic words.
_JOINERS = "\u200c\u200d"
_SPACED_WORD = rf"(?:{_SPACED_LETTER}|\p{{N}})(?:{_SPACED_LETTER}|[\p{{M}}\p{{N}}{_JOINERS}])*"
# A word: a run of letters and digits, or a character of a script without spaces.
WORD = rf"{_CHARACTER}|{_SPACED_WORD}"

_WORD = regex.compile(WORD)


def with_marks(text: str, mark: str) -> str:
    """Puts marks around the words of a text, as RE2 does with `WORD`."""
    return _WORD.sub(rf"{mark}\g<0>{mark}", text)
