"""Checks of arguments: each returns the value, or raises a ConfigError with its name and rule.

A layer's constructor checks an argument where it becomes an attribute:

    self.num_heads = positive_int("num_heads", num_heads)

NumPy's integers become ints, and integers given for floats stay as they are. A bool is not a number.
With `optional=True`, None is accepted as well.
"""

import numbers
import reprlib
import sys
from collections.abc import Sequence
from typing import Any

from .errors import ConfigError


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raises a ConfigError with name, rule and value unless the condition holds."""
    if not condition:
        raise ConfigError(f"{name} must be {rule}; received {name}={shown(value)}")


def require_divisor(name: str, value: int | None, **total: int) -> None:
    """Raises a ConfigError unless a value is None or divides a total, such as `num_heads=8`."""
    ((total_name, number),) = total.items()
    is_divisor = value is None or number % value == 0
    require(is_divisor, name, f"a divisor of {total_name}={number}", value)


def integer(
    name: str,
    value: Any,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    optional: bool = False,
) -> Any:
    """Returns an integer within limits."""
    if value is None and optional:
        return None
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(is_integer, name, _type_rule("int", optional), value)
    value = int(value)
    if at_least is not None:
        require(value >= at_least, name, f"at least {at_least}", value)
    if at_most is not None:
        require(value <= at_most, name, f"at most {at_most:,}", value)
    return value


def positive_int(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns an integer above 0."""
    value = integer(name, value, optional=optional)
    require(value is None or value > 0, name, "positive", value)
    return value


def non_negative_int(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns an integer of at least 0."""
    return integer(name, value, at_least=0, optional=optional)


def number(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns an integer or a float."""
    if value is None and optional:
        return None
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    require(is_number, name, _type_rule("float", optional), value)
    return value


def positive_float(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a finite number above 0."""
    value = number(name, value, optional=optional)
    # An integer beyond the largest float counts as infinite.
    is_valid = value is None or 0 < value <= sys.float_info.max
    require(is_valid, name, "positive and finite", value)
    return value


def non_negative_float(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a finite number of at least 0."""
    value = number(name, value, optional=optional)
    is_valid = value is None or 0 <= value <= sys.float_info.max
    require(is_valid, name, "at least 0 and finite", value)
    return value


def rate(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a rate of dropout: at least 0 and below 1."""
    value = number(name, value, optional=optional)
    require(value is None or 0 <= value < 1, name, "at least 0 and below 1", value)
    return value


def probability(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a number from 0 to 1."""
    value = number(name, value, optional=optional)
    require(value is None or 0 <= value <= 1, name, "at least 0 and at most 1", value)
    return value


def fraction(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a number above 0 and at most 1."""
    value = number(name, value, optional=optional)
    require(value is None or 0 < value <= 1, name, "above 0 and at most 1", value)
    return value


def boolean(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns True or False."""
    is_valid = isinstance(value, bool) or (optional and value is None)
    require(is_valid, name, _type_rule("bool", optional), value)
    return value


def one_of(name: str, value: Any, choices: Sequence[str], *, optional: bool = False) -> Any:
    """Returns one of several texts."""
    is_valid = (optional and value is None) or (isinstance(value, str) and value in choices)
    require(is_valid, name, f"one of {', '.join(choices)}", value)
    return value


def plain(value: Any) -> Any:
    """Returns an integer of NumPy as an int, and other values as they are."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_integer else value


def shown(value: object) -> str:
    """Returns how messages show a value: on one line, and long values shortened."""
    return _SHORT.repr(value).replace("\n", " ")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 200


def _type_rule(type_name: str, optional: bool) -> str:
    return f"of type {type_name}{' or null' if optional else ''}"
