"""Faults of translations that a program can find without knowing the languages."""

import re
from collections import Counter
from typing import NamedTuple

# One to four words that come twice in a row.
_REPETITION = re.compile(r"(?<!\w)(\w+(?:\W+\w+){0,3})(?:\W+\1)(?!\w)")
_NUMBER = re.compile(r"\d+")
# What SentencePiece and WordPiece write for a token that the vocabulary does not have.
_UNKNOWN = ("⁇", "[UNK]")


class Faults(NamedTuple):
    """Shares of translations, from 0 to 1.

    Attributes:
        repetitions: translations in which one to four words come twice in a row, but not in the reference.
        copies: translations that are the source, where the reference is not.
        unknown: translations with unknown tokens.
        lost_numbers: numbers that source and reference have and the translation has not, of all that both have.
    """

    repetitions: float
    copies: float
    unknown: float
    lost_numbers: float


def count_faults(sources: list[str], references: list[str], translations: list[str]) -> Faults:
    """Counts the faults of translations.

    Example:
        >>> count_faults(["2 dogs", "hello"], ["2 Hunde", "hallo"], ["ein Hund, ein Hund", "hello"])
        Faults(repetitions=0.5, copies=0.5, unknown=0.0, lost_numbers=1.0)
    """
    repetitions = copies = unknown = lost = expected = 0
    for source, reference, translation in zip(sources, references, translations, strict=True):
        repetitions += _repeats(translation) and not _repeats(reference)
        copies += translation.strip() == source.strip() != reference.strip()
        unknown += any(token in translation for token in _UNKNOWN)
        numbers = Counter(_NUMBER.findall(source)) & Counter(_NUMBER.findall(reference))
        expected += numbers.total()
        lost += (numbers - Counter(_NUMBER.findall(translation))).total()
    number = max(len(translations), 1)
    return Faults(repetitions / number, copies / number, unknown / number, lost / max(expected, 1))


def _repeats(text: str) -> bool:
    return _REPETITION.search(text.casefold()) is not None
