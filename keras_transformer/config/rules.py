"""Rules that configurations and commands have besides those of layers, and what checks whole sections and calls."""

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

from ..rules import Count as Count
from ..rules import EvenSize as EvenSize
from ..rules import OddSize as OddSize
from ..rules import Positive as Positive
from ..rules import Rate as Rate
from ..rules import Rule as Rule
from ..rules import Size as Size
from ..rules import annotations_of, options_of
from ..rules import check as check
from ..rules import check_attributes as check_attributes
from ..rules import require as require
from ..rules import shown as shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
R = TypeVar("R")

Share = Annotated[
    float, Rule("above 0 and at most 1", lambda value: 0 < value <= 1, {"exclusiveMinimum": 0, "maximum": 1})
]
Probability = Annotated[
    float, Rule("at least 0 and at most 1", lambda value: 0 <= value <= 1, {"minimum": 0, "maximum": 1})
]
Sentence = Annotated[str, Rule("a text that is not blank", lambda text: bool(text.strip()))]
PicturePath = Annotated[
    str,
    Rule(
        "a file ending in .png, .svg, .pdf or .html",
        lambda path: path.lower().endswith((".png", ".svg", ".pdf", ".html")),
    ),
]
NonNegative = Annotated[
    float, Rule("at least 0 and finite", lambda value: 0 <= value <= sys.float_info.max, {"minimum": 0})
]


def at_least(minimum: int) -> Rule:
    return Rule(f"at least {minimum}", lambda value: value >= minimum, {"minimum": minimum})


def at_most(maximum: int) -> Rule:
    return Rule(f"at most {maximum:,}", lambda value: value <= maximum, {"maximum": maximum})


def check_fields(instance: "DataclassInstance", section: str) -> None:
    """Checks every field of a dataclass instance, and turns integers into floats where the field is a float."""
    hints = typing.get_type_hints(type(instance), include_extras=True)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        check(f"{section}.{field.name}", value, hints[field.name])
        if type(value) is int and any(_base_type(option) is float for option in options_of(hints[field.name])):
            object.__setattr__(instance, field.name, float(value))


def _base_type(annotation: object) -> object:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: checks the arguments of each call against the function's annotations."""
    signature, annotations = inspect.signature(function), annotations_of(function)

    @functools.wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in annotations:
                check(name, value, annotations[name])
        return function(*args, **kwargs)

    return checked_function
