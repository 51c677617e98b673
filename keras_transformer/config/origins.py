"""Names the file and line of an invalid value in error messages."""

import contextlib
import os
import re
from collections.abc import Iterator

from ..errors import ConfigError
from .sections import SECTIONS
from .yaml_file import lines_of_keys

_SECTION = "|".join(SECTIONS)
# A key with its section, a section, or a key without its section in a condition or a sum.
_NAME = re.compile(
    rf"(?<![\w.])(?:{_SECTION})(?:(?:\.\w+)+|(?= must))|(?<![\w.])\w+(?==| \+)|(?<=\+ )\w+"
)
_ABOUT_KEYS = re.compile(rf"({_SECTION})\b|unknown configuration key |the sizes in the section ")
_UNKNOWN = re.compile("unknown configuration key '(.*)'")


def places_in(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the location of each key in a YAML file, such as "recipe.yaml, line 3"."""
    return {key: f"{path}, line {line}" for key, line in lines_of_keys(path).items()}


def is_about_keys(message: str) -> bool:
    """Returns whether the message of a ConfigError begins with configuration keys."""
    return _ABOUT_KEYS.match(message) is not None


def keys_named(message: str) -> list[str]:
    """Returns the keys, with their sections, that the message of a ConfigError is about."""
    # Text after the semicolon names other keys or the value.
    rule = message.partition(";")[0]
    if unknown := _UNKNOWN.fullmatch(rule):
        return [unknown[1]]
    names = _NAME.findall(rule)
    section = next((name.rpartition(".")[0] for name in names if "." in name), "")
    return [name if "." in name or not section else f"{section}.{name}" for name in names]


@contextlib.contextmanager
def naming_line(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prefixes the message of a ConfigError with the file and the line of the invalid key."""
    try:
        yield
    except ConfigError as error:
        places = places_in(path)
        given = (places[key] for key in keys_named(str(error)) if key in places)
        place = next(given, path)
        raise ConfigError(f"{place}: {error}") from None
