"""What the sections of a configuration are made of: values besides numbers, and mappings, as YAML
gives them."""

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args

from ..checks import plain, shown
from ..errors import ConfigError
from ..rules import Rule, bare, check, without_none

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Section = TypeVar("Section", bound="DataclassInstance")

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
    """Returns the first of two languages, such as "en-de" or "zh_TW-en", or None if it has no rules
    of its own."""
    code = languages.partition("-")[0].partition("_")[0]
    return cast(Language, code) if code in get_args(Language) else None


# A tag is a special piece of a vocabulary that stands in front of a source, such as the language to
# translate into.
_NAME = r"[A-Za-z0-9_.:@=+-]{1,50}"
# The special pieces that every vocabulary has, and those of bytes, are no tags.
_TAG = rf"<(?!(pad|unk|start|s|0x[0-9A-F]{{2}})>){_NAME}>|>>{_NAME}<<"
_NUM_LISTED = 10


def is_tag(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_TAG, value) is not None


def listed(names: Collection[str]) -> str:
    """Returns the first of several tags or files, for messages."""
    more = f" and {len(names) - _NUM_LISTED} more" if len(names) > _NUM_LISTED else ""
    return ", ".join(itertools.islice(names, _NUM_LISTED)) + more


Tag = Annotated[str, Rule("a tag such as <bt> or >>de<<", is_tag)]


def section_of(sections: Mapping[str, object], name: str) -> Any:
    """Returns a section as YAML gives it; an empty or missing one, which YAML gives as None, has no
    keys."""
    values = sections.get(name)
    return {} if values is None else values


def from_dict(cls: type[Section], values: Mapping[str, object], section: str = "") -> Section:
    """Makes a configuration, or a section of it, from nested mappings; an empty or missing section
    has its defaults.

    Raises:
        ConfigError: A key is unknown (the message suggests the nearest) or missing, or a value
            breaks its rule.
    """
    fields = dataclasses.fields(cls)
    check_keys(values, [field.name for field in fields], section)
    prefix = f"{section}." if section else ""
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


def check_fields(instance: "DataclassInstance", section: str) -> None:
    """Checks every field of a dataclass instance, and turns NumPy's numbers, and integers for
    floats, into Python's."""
    hints = typing.get_type_hints(type(instance), include_extras=True)
    for field in dataclasses.fields(instance):
        value = plain(getattr(instance, field.name))
        check(f"{section}.{field.name}", value, hints[field.name])
        if value is not None and bare(without_none(hints[field.name])[0]) is float:
            value = float(value)
        object.__setattr__(instance, field.name, value)
