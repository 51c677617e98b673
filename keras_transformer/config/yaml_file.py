"""Reads and writes configurations in a safe subset of YAML."""

import contextlib
import os
import re
from collections.abc import Hashable, Mapping
from typing import Any, NoReturn

import yaml

from ..checks import may_be_path, shown
from ..errors import ConfigError

_MAX_CHARACTERS = 20_000
_MAX_DEPTH = 10


class _Loader(yaml.SafeLoader):
    """YAML loader restricted to plain values, so that untrusted text is cheap and safe to read.

    Aliases may refer to scalars only. Tags, deep nesting, merged or repeated keys, and dates are
    not allowed. Numbers are decimal, as in YAML 1.2: `5e-4` and `1e3` are numbers, `010` is ten,
    and `1:30` is text.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            _refuse(f"the tag {shown(event.tag)} is not allowed", event)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            _refuse(f"nested deeper than {_MAX_DEPTH} levels", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(event, yaml.AliasEvent) and not isinstance(node, yaml.ScalarNode):
            _refuse("an alias may stand for a single value only", event)
        if isinstance(node, yaml.ScalarNode) and not may_be_path(node.value):
            _refuse("a text must be Unicode without NUL characters", event)
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    _refuse(f"the key {shown(key.value)} is given twice", key)
                names.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes text that `_Loader` or another YAML reader would not read as text."""


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float | int:
    """Reads a number. Values such as `1e5` become integers, because they may be step counts."""
    value = loader.construct_yaml_float(node)
    return int(value) if value.is_integer() and "." not in node.value else value


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Escapes Unicode line breaks in double quotes, because some become spaces in YAML readers."""
    style = '"' if set(text) & set("\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _refuse(problem: str, place: yaml.Event | yaml.Node | None = None) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=place and place.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("null", "bool")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("int", r"[-+]?[0-9]+(_[0-9]+)*", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
        )
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Dumper.add_representer(str, _represent_text)


def read_sections(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the mapping in a YAML file without checking its keys.

    If the file is empty, the mapping is empty.
    """
    try:
        values = _parse(_read(path))
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: cannot be read as YAML ({error.problem})") from None
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: the file must hold a mapping; received {type(values).__name__}")
    return values


def lines_of_keys(path: str | os.PathLike[str]) -> dict[str, int]:
    """Returns the line of each key in a file that `read_sections` has read.

    Keys are full names, such as "model.d_model". The result is empty if the file cannot be read
    again, for example if it is a pipe.
    """
    lines: dict[str, int] = {}

    def add(node: yaml.Node | None, prefix: str) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
            if isinstance(key, yaml.ScalarNode):
                lines[prefix + key.value] = key.start_mark.line + 1
                add(value, f"{prefix}{key.value}.")

    with contextlib.suppress(ConfigError, yaml.YAMLError):
        add(yaml.compose(_read(path), _Loader), "")
    return lines


def yaml_of(sections: Mapping[str, object]) -> str:
    """Returns YAML text that `read_sections` reads back.

    Raises:
        ConfigError: If the text would be too long for `read_sections`.
    """
    text = yaml.dump(sections, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(
            f"the configuration must have at most {_MAX_CHARACTERS:,} characters in YAML; it has "
            f"{len(text):,}"
        )
    return text


def parse_value(text: str) -> Any:
    """Reads a YAML value, such as `256`, `5e-4`, `null` or `relu`."""
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(
            f"the value cannot be read as YAML ({error.problem}); received {shown(text)}"
        ) from None


def _read(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def _parse(text: str) -> Any:
    """Parses YAML.

    Raises:
        MarkedYAMLError: If the text is invalid. The error has a `problem`, but may have no mark.
    """
    if len(text) > _MAX_CHARACTERS:
        _refuse(f"longer than {_MAX_CHARACTERS:,} characters")
    try:
        return yaml.load(text, _Loader)
    except yaml.reader.ReaderError as error:
        _refuse(f"the character {error.character:#x} is not allowed")
    except (ValueError, OverflowError):
        # Python rejects integers of thousands of digits and invalid character codes.
        _refuse("a number or the code of a character is too large")
