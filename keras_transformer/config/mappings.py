"""What the sections of a configuration share: they are made from mappings, as YAML gives them, and checked."""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ConfigError
from ..rules import bare, check, shown, without_none

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Section = TypeVar("Section", bound="DataclassInstance")


def section_of(sections: Mapping[str, object], name: str) -> Any:
    """Returns a section as YAML gives it; an empty or missing one, which YAML gives as None, has no keys."""
    values = sections.get(name)
    return {} if values is None else values


def from_dict(cls: type[Section], values: Mapping[str, object], section: str) -> Section:
    """Makes a configuration section from a mapping, in which a section inside the section is a mapping, too.

    Raises:
        ConfigError: A key is unknown (the message suggests the nearest) or missing, or a value breaks its rule.
    """
    fields = dataclasses.fields(cls)
    check_keys(values, [field.name for field in fields], section)
    completed = dict(values)
    for name, hint in typing.get_type_hints(cls).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            completed[name] = from_dict(hint, section_of(values, name), f"{section}.{name}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in completed:
            raise ConfigError(f"{section}.{field.name} is required")
    return cls(**completed)


def check_keys(values: object, known: Iterable[str], section: str | None = None) -> None:
    """Raises a ConfigError unless `values` is a mapping whose keys are all known."""
    known = list(known)
    if not isinstance(values, Mapping):
        received = f"{section}={shown(values)}" if section else shown(values)
        raise ConfigError(f"{section or 'the configuration'} must be a mapping; received {received}")
    for key in values:
        if key not in known:
            name = key if isinstance(key, str) else shown(key)
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
            raise ConfigError(f"unknown configuration key {shown(f'{section}.{name}' if section else name)}; {hint}")


def check_fields(instance: "DataclassInstance", section: str) -> None:
    """Checks every field of a dataclass instance, and turns integers into floats where the field is a float."""
    hints = typing.get_type_hints(type(instance), include_extras=True)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        check(f"{section}.{field.name}", value, hints[field.name])
        if type(value) is int and bare(without_none(hints[field.name])[0]) is float:
            object.__setattr__(instance, field.name, float(value))
