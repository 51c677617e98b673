"""The script in which a text is written."""

import itertools
from collections.abc import Iterable

import regex

# Scripts by their names in Unicode. A text with some kana is Japanese, however many of its
# characters are Han.
_PATTERNS = {
    "Han": regex.compile(r"\p{Script=Han}"),
    "Kana": regex.compile(r"[\p{Script=Hiragana}\p{Script=Katakana}]"),
    "Hangul": regex.compile(r"\p{Script=Hangul}"),
    "Thai": regex.compile(r"\p{Script=Thai}"),
    "Lao": regex.compile(r"\p{Script=Lao}"),
    "Khmer": regex.compile(r"\p{Script=Khmer}"),
    "Myanmar": regex.compile(r"\p{Script=Myanmar}"),
    "Tibetan": regex.compile(r"\p{Script=Tibetan}"),
}
# Letters of all other scripts, which put spaces between words.
_OTHER = regex.compile(
    r"(?V1)[\p{Letter}--[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}"
    r"\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]]"
)
_SHARE_OF_KANA = 0.1
_MAX_TEXTS = 10_000


def script_of(texts: Iterable[str]) -> str:
    """Returns the script of texts of one language.

    Returns:
        "Han", "Kana" (Japanese), "Hangul", "Thai", "Lao", "Khmer", "Myanmar" or "Tibetan" if it has
        the most letters of the first 10,000 texts; "other" for scripts with spaces between words,
        and for texts without letters.

    Example:
        >>> script_of(["Der Hund schläft."]), script_of(["犬が寝る。"]), script_of(["狗在睡觉。"])
        ('other', 'Kana', 'Han')
    """
    text = "\n".join(itertools.islice(texts, _MAX_TEXTS))
    counts = {name: len(pattern.findall(text)) for name, pattern in _PATTERNS.items()}
    counts["other"] = len(_OTHER.findall(text))
    japanese = counts["Han"] + counts["Kana"]
    if counts["Kana"] > _SHARE_OF_KANA * japanese:
        counts["Kana"] = japanese
    script = max(counts, key=lambda name: counts[name])
    return script if counts[script] else "other"
