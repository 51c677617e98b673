"""The languages whose sentences are told apart by more than the rules for all."""

from typing import Literal, cast, get_args

Language = Literal[
    "ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "hu", "it", "ja", "ko", "nb", "nl", "pl", "pt", "ro",
    "ru", "sv", "tr", "uk", "zh",
]  # fmt: skip


def source_language(languages: str) -> Language | None:
    """Returns the first of two languages, such as "en-de" or "zh_TW-en", or None if it has no rules of its own."""
    code = languages.partition("-")[0].partition("_")[0]
    return cast(Language, code) if code in get_args(Language) else None
