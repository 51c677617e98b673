"""Rules for hyperparameters: written as type annotations, checked wherever the hyperparameter is
used.

A configuration field and a layer's constructor argument that are annotated alike obey the same rule
and report a violation in the same words: "NAME must be RULE; received NAME=VALUE".
"""

import dataclasses
import functools
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from .checks import plain, require, require_divisor, shown  # noqa: F401
from .errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a value must be."""

    text: str  # completes the sentence "NAME must be ..."
    # Whether a value of the right type obeys the rule. `help` shows rules in signatures, without
    # this.
    holds: Callable[[Any], bool] = dataclasses.field(repr=False)


Size = Annotated[int, Rule("positive", lambda value: value > 0)]
EvenSize = Annotated[int, Rule("positive and even", lambda value: value > 0 and value % 2 == 0)]
OddSize = Annotated[int, Rule("positive and odd", lambda value: value > 0 and value % 2 == 1)]
Count = Annotated[int, Rule("at least 0", lambda value: value >= 0)]
Rate = Annotated[float, Rule("at least 0 and below 1", lambda value: 0 <= value < 1)]
# An integer beyond the largest float counts as infinite.
Positive = Annotated[
    float, Rule("positive and finite", lambda value: 0 < value <= sys.float_info.max)
]
Share = Annotated[float, Rule("above 0 and at most 1", lambda value: 0 < value <= 1)]
Probability = Annotated[float, Rule("at least 0 and at most 1", lambda value: 0 <= value <= 1)]
NotEmpty = Annotated[str, Rule("a text that is not empty", bool)]
Sentence = Annotated[str, Rule("a text that is not blank", lambda text: bool(text.strip()))]
_PICTURES = (".png", ".svg", ".pdf", ".html")
PicturePath = Annotated[
    str,
    Rule(
        "a file ending in .png, .svg, .pdf or .html", lambda path: path.lower().endswith(_PICTURES)
    ),
]
NonNegative = Annotated[
    float, Rule("at least 0 and finite", lambda value: 0 <= value <= sys.float_info.max)
]


def at_least(minimum: float) -> Rule:
    return Rule(f"at least {minimum}", lambda value: value >= minimum)


def at_most(maximum: int) -> Rule:
    return Rule(f"at most {maximum:,}", lambda value: value <= maximum)


def check(name: str, value: object, annotation: object) -> None:
    """Raises a ConfigError unless a value is of the type of an annotation, and obeys its rules.

    The annotation is a type of this module, `int`, `float`, `bool`, `str`, a `Literal` or a `list`
    of one of them, or the union of one of them and `None`. Others are not checked.
    """
    expected, may_be_none = without_none(annotation)
    if value is None and may_be_none:
        return
    if typing.get_origin(expected) is Literal:
        choices = typing.get_args(expected)
        require(value in choices, name, f"one of {', '.join(choices)}", value)
        return
    if typing.get_origin(expected) is list:
        if not (isinstance(value, list) and value):
            raise ConfigError(
                f"{name} must be a list of one or more values; received {name}={shown(value)}"
            )
        for place, item in enumerate(value):
            check(f"{name}[{place}]", item, *typing.get_args(expected))
        return
    metadata = getattr(expected, "__metadata__", ())
    expected = bare(expected)
    if expected in _IS_TYPE:
        or_null = " or null" if may_be_none else ""
        require(_IS_TYPE[expected](value), name, f"of type {expected.__name__}{or_null}", value)
    for rule in metadata:
        if isinstance(rule, Rule):
            require(rule.holds(value), name, rule.text, value)


# NumPy's numbers are accepted; a bool is not a number here.
_IS_TYPE: dict[Any, Callable[[object], bool]] = {
    int: lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool),
    float: lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool),
    bool: lambda value: isinstance(value, bool),
    str: lambda value: isinstance(value, str),
}


def without_none(annotation: object) -> tuple[Any, bool]:
    """Returns what a value is if it is not None, and whether it may be None."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    options = typing.get_args(annotation)
    others = [option for option in options if option is not types.NoneType]
    # No rule describes a choice of several types other than None.
    return (others[0] if len(others) == 1 else object), len(others) < len(options)


def bare(annotation: Any) -> Any:
    """Returns an annotation without its rules."""
    return annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation


def check_attributes(instance: object, cls: type) -> None:
    """Checks the attributes of an object that are arguments of a class's constructor, against their
    annotations there.

    Integers of NumPy become ints, which Keras asks for. The instance may be of a subclass, whose
    own arguments are not checked. Constructors call it once every argument with an annotation is an
    attribute:

        class Layer(keras.layers.Layer):
            def __init__(self, units: Size, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.units = units
                check_attributes(self, Layer)
    """
    for name, annotation in annotations_of(vars(cls)["__init__"]).items():
        # The attribute has an underscore where Keras uses the name itself.
        attribute = name if hasattr(instance, name) else f"_{name}"
        value = plain(getattr(instance, attribute))
        check(name, value, annotation)
        if type(value) is int:
            setattr(instance, attribute, value)


@functools.cache
def annotations_of(function: Callable[..., object]) -> dict[str, object]:
    """The annotations of a function's parameters, without that of further keyword arguments: they
    belong to others."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return {
        p.name: hints[p.name] for p in parameters if p.name in hints and p.kind is not p.VAR_KEYWORD
    }


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: checks the arguments of each call as `check_attributes` does, against the
    function's annotations."""
    signature, annotations = inspect.signature(function), annotations_of(function)

    @functools.wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        call = signature.bind(*args, **kwargs)
        for name, value in call.arguments.items():
            if name in annotations:
                call.arguments[name] = plain(value)
                check(name, value, annotations[name])
        return function(*call.args, **call.kwargs)

    return checked_function
