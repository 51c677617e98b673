"""Values that fields, arguments and options take besides numbers: tags, languages, precisions and signatures."""

import itertools
import re
from collections.abc import Collection
from typing import Annotated, Literal, cast, get_args

from ..rules import Rule

Precision = Literal["float32", "bfloat16", "int8-weights"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16", "int8-weights"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]

# The signatures of a servable.
SignatureName = Literal[
    "serving_default",
    "translate",
    "translate_n_best",
    "translate_with_prefix",
    "translate_with_tag",
    "translate_document",
    "translate_tokens",
    "score",
    "align",
    "tokenize",
    "detokenize",
    "encode",
]

# Languages with rules of their own for where a sentence ends.
Language = Literal[
    "ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hi", "hu", "it", "ja", "ko", "nb", "nl", "pl", "pt", "ro",
    "ru", "sv", "tr", "uk", "zh",
]  # fmt: skip


def source_language(languages: str) -> Language | None:
    """Returns the first of two languages, such as "en-de" or "zh_TW-en", or None if it has no rules of its own."""
    code = languages.partition("-")[0].partition("_")[0]
    return cast(Language, code) if code in get_args(Language) else None


# A tag is a special piece of a vocabulary that stands in front of a source, such as the language to translate into.
_NAME = r"[A-Za-z0-9_.:@=+-]{1,50}"
# The special pieces that every vocabulary has, and those of bytes, are no tags.
_TAG = rf"<(?!(pad|unk|start|s|0x[0-9A-F]{{2}})>){_NAME}>|>>{_NAME}<<"
_NUM_LISTED = 10


def is_tag(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_TAG, value) is not None


def listed(tags: Collection[str]) -> str:
    """Returns the first of several tags, for messages."""
    more = f" and {len(tags) - _NUM_LISTED} more" if len(tags) > _NUM_LISTED else ""
    return ", ".join(itertools.islice(tags, _NUM_LISTED)) + more


Tag = Annotated[str, Rule("a tag such as <bt> or >>de<<", is_tag)]
# One tag for each corpus; null for a corpus without one.
Tags = list[Tag | None]
