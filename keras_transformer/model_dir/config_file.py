"""`config.yaml`: the whole configuration, and the version of the model directory's format."""

import dataclasses
import os

import yaml

from ..config import Config
from ..config.rules import Size, check, shown
from ..config.yaml_file import read_sections
from ..errors import ConfigError, naming_source
from .files import replacing

# Raise it when an earlier release could not use a new model directory, or would use it wrongly. Version 1 is that of
# release 0.1, which did not write it.
FORMAT_VERSION = 2


def read_config(path: str | os.PathLike[str]) -> Config:
    """Reads a whole configuration, as `write_config` writes it.

    Raises:
        ConfigError: The file cannot be read, a later release has written it, or a value in it breaks its rule; the
            message begins with the path.
    """
    sections = read_sections(path)
    with naming_source(path):
        version = sections.pop("format_version", 1)
        check("format_version", version, Size)
        if version > FORMAT_VERSION:
            raise ConfigError(
                f"the model directory has format version {shown(version)}, and this release knows versions up to "
                f"{FORMAT_VERSION}; upgrade keras3-transformer"
            )
        return Config.from_sections(sections)


def write_config(path: str | os.PathLike[str], config: Config) -> None:
    """Writes a configuration, with the version of the model directory's format; the file appears whole."""
    text = yaml.safe_dump({"format_version": FORMAT_VERSION, **dataclasses.asdict(config)}, sort_keys=False)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
