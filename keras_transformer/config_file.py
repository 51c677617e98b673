"""Configurations as YAML files."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from .config import Config
from .files import replacing
from .rules import ConfigError


def read_config(path: str | os.PathLike[str]) -> Config:
    """Reads a whole configuration, as `write_config` writes it.

    Raises:
        ConfigError: The file cannot be read, or a value in it breaks its rule; the message begins with the path.
    """
    sections = read_sections(path)
    with naming_source(path):
        return Config.from_sections(sections)


def write_config(path: str | os.PathLike[str], config: Config) -> None:
    """Writes a configuration; the file appears whole."""
    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_sections(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a YAML file's mapping without checking its keys; an empty file is an empty mapping.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or does not hold a mapping.
    """
    try:
        values = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not YAML ({getattr(error, 'problem', None) or error})") from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: the file must hold a mapping; received {type(values).__name__}")
    return values


def parse_value(text: str) -> Any:
    """Reads one YAML value, such as `256`, `null` or `relu`.

    Raises:
        ConfigError: The text is not YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"the value is not YAML; received {text!r}") from None


@contextlib.contextmanager
def naming_source(source: object) -> Iterator[None]:
    """Puts where the configuration came from in front of a ConfigError's message."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
