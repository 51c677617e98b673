"""Checks of arguments. A check returns the value, or raises a ConfigError with its name and rule.

A layer's constructor checks each argument when it sets the attribute:

    self.num_heads = positive_int("num_heads", num_heads)

NumPy integers are converted to int. A float such as 3.0 is not converted to an integer, and a bool
is not a number. With `optional=True`, None is also valid.

Configuration fields (`config/values.py`) and command options (`commands/options.py`) use the same
checks.
"""

import math
import numbers
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from .errors import ConfigError


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raises a ConfigError with name, rule and value unless the condition is True."""
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
    """Returns an integer within optional limits."""
    if value is None and optional:
        return None
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    require(is_integer, name, _type_rule("int", optional), value)
    value = int(value)
    if at_least is not None:
        require(value >= at_least, name, f"at least {at_least}", value)
    _require_at_most(at_most, name, value)
    return value


def positive_int(
    name: str, value: Any, *, at_most: int | None = None, optional: bool = False
) -> Any:
    """Returns an integer above 0."""
    value = integer(name, value, at_most=at_most, optional=optional)
    require(value is None or value > 0, name, "positive", value)
    return value


def non_negative_int(
    name: str, value: Any, *, at_most: int | None = None, optional: bool = False
) -> Any:
    """Returns an integer that is at least 0."""
    return integer(name, value, at_least=0, at_most=at_most, optional=optional)


def number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    optional: bool = False,
) -> Any:
    """Returns an integer or a float within optional limits."""
    if value is None and optional:
        return None
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    require(is_number, name, _type_rule("float", optional), value)
    if at_least is not None:
        require(value >= at_least, name, f"at least {at_least}", value)
    _require_at_most(at_most, name, value)
    return value


def finite_number(
    name: str, value: Any, *, at_least: float | None = None, optional: bool = False
) -> Any:
    """Returns a finite number, at least `at_least` if that is given."""
    value = number(name, value, at_least=at_least, optional=optional)
    require(value is None or _is_finite(value), name, "finite", value)
    return value


def positive_float(
    name: str, value: Any, *, at_most: float | None = None, optional: bool = False
) -> Any:
    """Returns a finite number above 0."""
    value = number(name, value, optional=optional)
    is_valid = value is None or (value > 0 and _is_finite(value))
    require(is_valid, name, "positive and finite", value)
    _require_at_most(at_most, name, value)
    return value


def non_negative_float(
    name: str, value: Any, *, at_most: float | None = None, optional: bool = False
) -> Any:
    """Returns a finite number that is at least 0."""
    value = number(name, value, optional=optional)
    is_valid = value is None or (value >= 0 and _is_finite(value))
    require(is_valid, name, "at least 0 and finite", value)
    _require_at_most(at_most, name, value)
    return value


def rate(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a dropout rate, at least 0 and below 1."""
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
    """Returns a text that is one of the choices."""
    is_valid = (optional and value is None) or (isinstance(value, str) and value in choices)
    require(is_valid, name, f"one of {', '.join(choices)}", value)
    return value


def text(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a text that may be a path, with surrogates for bytes that are not UTF-8."""
    is_valid = isinstance(value, str) or (optional and value is None)
    require(is_valid, name, _type_rule("str", optional), value)
    is_valid = value is None or may_be_path(value)
    require(is_valid, name, "Unicode text without NUL characters", value)
    return value


def utf_8(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a text without surrogates, as TensorFlow requires."""
    is_valid = text(name, value, optional=optional) is None or _has_bytes(value, "strict")
    require(is_valid, name, "valid UTF-8", value)
    return value


def text_not_empty(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a text that is not empty."""
    require(text(name, value, optional=optional) != "", name, "a text that is not empty", value)
    return value


def text_not_blank(name: str, value: Any, *, optional: bool = False) -> Any:
    """Returns a text that is not only white space."""
    is_valid = text(name, value, optional=optional) is None or value.strip() != ""
    require(is_valid, name, "a text that is not blank", value)
    return value


def picture_path(name: str, value: Any) -> Any:
    """Returns the path of a picture or of an HTML page."""
    is_valid = text(name, value).lower().endswith((".png", ".svg", ".pdf", ".html"))
    require(is_valid, name, "a file ending in .png, .svg, .pdf or .html", value)
    return value


def list_of(name: str, value: Any, item: Callable[..., Any], *, optional: bool = False) -> Any:
    """Returns a list of one or more values that pass the check `item`."""
    if value is None and optional:
        return None
    is_valid = isinstance(value, list) and len(value) > 0
    require(is_valid, name, "a list of one or more values", value)
    return [item(f"{name}[{place}]", element) for place, element in enumerate(value)]


def may_be_path(value: str) -> bool:
    """Returns whether a text is a valid path for the operating system."""
    return "\0" not in value and _has_bytes(value, "surrogateescape")


def plain(value: Any) -> Any:
    """Converts a NumPy integer to int; returns other values unchanged."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_integer else value


def shown(value: object) -> str:
    """Formats a value for messages: on a single line, and shortened if it is long."""
    return _SHORT.repr(value).replace("\n", " ")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 200


def _has_bytes(value: str, errors: str) -> bool:
    """Returns whether a text can be encoded as UTF-8."""
    try:
        value.encode(errors=errors)
    except UnicodeEncodeError:
        return False
    return True


def _type_rule(type_name: str, optional: bool) -> str:
    return f"of type {type_name}{' or null' if optional else ''}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        # The integer is larger than the largest float.
        return False


def _require_at_most(limit: float | None, name: str, value: Any) -> None:
    if limit is not None and value is not None:
        require(value <= limit, name, f"at most {limit:,}", value)
