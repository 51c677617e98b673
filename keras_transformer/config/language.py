"""The languages whose sentences are told apart by more than the rules for all."""

from typing import Literal

Language = Literal[
    "ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "hu", "it", "ja", "ko", "nb", "nl", "pl", "pt", "ro",
    "ru", "sv", "tr", "uk", "zh",
]  # fmt: skip
