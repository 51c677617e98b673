"""The versions of a model: folders with a number for a name, each published whole."""

import contextlib
import os
import pathlib
import re
import shutil

from keras_transformer.config import ConfigError

# Texts that what was written must treat as the translator does before its version is published.
PROBES = ["", "A dog runs.", "Zwei Männer 123 🙂", "b" * 300]


def version_path(output, version=None):
    """Where a version goes: `output/<version>`.

    Args:
        output: the folder of the model's versions, which need not stand yet.
        version: a number; one more than the highest that stands if None.

    Raises:
        ConfigError: the version stands already or is not positive.
    """
    output = pathlib.Path(output)
    if version is None:
        standing = (int(path.name) for path in output.glob("*") if re.fullmatch(r"[0-9]+", path.name))
        version = 1 + max(standing, default=0)
    if version < 1:
        raise ConfigError(f"version must be positive; received {version}")
    path = output / str(version)
    if path.exists():
        raise ConfigError(f"{path}: this version stands already")
    return path


@contextlib.contextmanager
def publishing(path):
    """A temporary path beside `path`: the folder made there becomes `path` when the block ends without an error.

    Until then it has a name which TensorFlow Serving does not look at.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
