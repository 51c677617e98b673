"""Checks for the sections of a configuration, and conversion from the mappings in a YAML file."""

import dataclasses
import difflib
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from ..checks import require, shown, text
from ..errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Section = TypeVar("Section", bound="DataclassInstance")
Default = TypeVar("Default")

Precision = Literal["float32", "bfloat16", "int8-weights"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16", "int8-weights"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]
# Tokenizers of sacreBLEU.
BleuTokenizer = Literal[
    "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "spm", "flores101", "flores200", "none"
]
BLEU_TOKENIZERS: tuple[str, ...] = get_args(BleuTokenizer)

# Signatures of an exported SavedModel.
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

# A BCP 47 tag: a language of two or three letters, then extended languages, a script, a region,
# variants, extensions and private-use subtags.
_LANGUAGE_TAG = (
    r"[a-z]{2,3}(-[a-z]{3}){0,3}(-[a-z]{4})?(-([a-z]{2}|[0-9]{3}))?"
    r"(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*(-[0-9a-wyz](-[a-z0-9]{2,8})+)*(-x(-[a-z0-9]{1,8})+)?"
)
# Languages with a second code, or with the same rules as another language.
_SAME_LANGUAGES = {
    "bs": "hr", "cmn": "zh", "iw": "he", "nn": "nb", "no": "nb", "sh": "hr", "yue": "zh",
}  # fmt: skip


def language_tag(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns the value if it is a BCP 47 tag, in which "_" may replace "-".

    Raises:
        ConfigError: If the value is not a BCP 47 tag.
    """
    if text(name, value, optional=optional) is not None:
        is_valid = re.fullmatch(_LANGUAGE_TAG, value.replace("_", "-"), re.I | re.A) is not None
        require(is_valid, name, "a BCP 47 tag such as de, pt-BR or zh-Hant", value)
    return value


def language_of(tag: str | None) -> str | None:
    """Returns the language of a BCP 47 tag in lower case, such as "zh" for "zh-Hant-TW"."""
    if tag is None:
        return None
    language = tag.replace("_", "-").partition("-")[0].lower()
    return _SAME_LANGUAGES.get(language, language)


def source_language(languages: str) -> str:
    """Returns the source language of a pair such as "en-de" or "zh_TW-en"."""
    return languages.partition("-")[0]


# A tag is a special piece of the vocabulary that precedes a source and names, for example, the
# target language.
_NAME = r"[A-Za-z0-9_.:@=+-]{1,50}"
# The special pieces of every vocabulary and the byte pieces are not tags.
_TAG = rf"<(?!(pad|unk|start|s|0x[0-9A-F]{{2}})>){_NAME}>|>>{_NAME}<<"
_NUM_LISTED = 10


def is_tag(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_TAG, value) is not None


def listed(names: Collection[str]) -> str:
    """Returns the first names as a comma-separated list for messages."""
    more = f" and {len(names) - _NUM_LISTED} more" if len(names) > _NUM_LISTED else ""
    return ", ".join(itertools.islice(names, _NUM_LISTED)) + more


def tag(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns the value if it is a tag.

    Raises:
        ConfigError: If the value is not a tag.
    """
    is_valid = text(name, value, optional=optional) is None or is_tag(value)
    require(is_valid, name, "a tag such as <bt> or >>de<<", value)
    return value


# Default of a required field.
REQUIRED: Any = dataclasses.MISSING
# Largest integer of TensorFlow and NumPy.
_MAX_INT = 2**63 - 1


def checked(
    default: Default, check: Callable[..., Any], *, is_fixed: bool = False, **arguments: Any
) -> Default:
    """Returns a dataclass field with a default and a check of its values.

        num_heads: int = checked(8, positive_int)
        key_dim: int | None = checked(None, positive_int, optional=True)

    Args:
        check: function that accepts a name and a value, usually from `checks.py`. It returns the
            value or raises a ConfigError.
        is_fixed: whether a training run must keep the value when it resumes. Defaults to False: the
            run logs that the value has changed.
        **arguments: additional arguments of the check.
    """
    check = functools.partial(check, **arguments)
    return dataclasses.field(default=default, metadata={"check": check, "is_fixed": is_fixed})


def check_fields(instance: "DataclassInstance", section: str) -> None:
    """Checks the fields of a section and stores the values that the checks return.

    Integers in float fields become floats.
    """
    for field in dataclasses.fields(instance):
        if "check" in field.metadata:
            name = f"{section}.{field.name}"
            value = field.metadata["check"](name, getattr(instance, field.name))
            if isinstance(value, int):
                require(value <= _MAX_INT, name, f"at most {_MAX_INT:,}", value)
            if value is not None and field.type in (float, float | None):
                value = float(value)
            object.__setattr__(instance, field.name, value)


def section_of(sections: Mapping[str, object], name: str) -> Any:
    """Returns a section as a mapping, which is empty if the section is missing or None in YAML."""
    values = sections.get(name)
    return {} if values is None else values


def from_dict(cls: type[Section], values: Mapping[str, object], section: str = "") -> Section:
    """Creates a configuration or one of its sections from nested mappings.

    An empty or missing section gets its default values.

    Raises:
        ConfigError: If a key is unknown (the message suggests the nearest key) or missing, or a
            value is invalid.
    """
    fields = dataclasses.fields(cls)
    prefix = f"{section}." if section else ""
    check_keys(values, [field.name for field in fields], section)
    completed = dict(values)
    for field in fields:
        name = f"{prefix}{field.name}"
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            completed[field.name] = from_dict(field.type, section_of(values, field.name), name)
        elif field.default is dataclasses.MISSING and field.name not in completed:
            raise ConfigError(f"{name} is required")
    return cls(**completed)


def check_keys(values: object, known: Iterable[str], section: str = "") -> None:
    """Raises a ConfigError unless `values` is a mapping whose keys are all known."""
    known = list(known)
    if not isinstance(values, Mapping):
        received = f"{section}={shown(values)}" if section else shown(values)
        raise ConfigError(
            f"{section or 'the configuration'} must be a mapping; received {received}"
        )
    for key in values:
        if key not in known:
            name = key if isinstance(key, str) else shown(key)
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
            raise ConfigError(
                f"unknown configuration key {shown(f'{section}.{name}' if section else name)}; "
                f"{hint}"
            )
