"""Rules as annotations, for the searches and `generate`, until these use `checks.py` alone."""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar

from .checks import (
    fraction,
    integer,
    non_negative_float,
    non_negative_int,
    plain,
    positive_float,
    positive_int,
)

P = ParamSpec("P")
R = TypeVar("R")

Size = Annotated[int, positive_int]
Count = Annotated[int, non_negative_int]
Positive = Annotated[float, positive_float]
Share = Annotated[float, fraction]
NonNegative = Annotated[float, non_negative_float]


def check(name: str, value: object, annotation: Any) -> None:
    """Raises a ConfigError unless a value passes the check of an annotation, or may be None."""
    optional = False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = typing.get_args(annotation)
        others = [option for option in options if option is not types.NoneType]
        optional = len(others) < len(options)
        annotation = others[0] if len(others) == 1 else object
    if annotation is int:
        integer(name, value, optional=optional)
    for rule in getattr(annotation, "__metadata__", ()):
        if callable(rule):
            rule(name, value, optional=optional)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: checks the arguments of each call against the function's annotations."""
    signature = inspect.signature(function)
    annotations = typing.get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        call = signature.bind(*args, **kwargs)
        for name, value in call.arguments.items():
            if name in annotations:
                call.arguments[name] = plain(value)
                check(name, value, annotations[name])
        return function(*call.args, **call.kwargs)

    return checked_function
