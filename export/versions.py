"""The versions of a model: directories named by a number, each of which appears whole."""

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

from keras_transformer.rules import ConfigError, require

# Texts that an exported model must treat as the translator does before its version appears.
PROBES = ["", "A dog runs.", "Zwei Männer 123 🙂", "b" * 300]


def version_path(output: str | os.PathLike[str], version: int | None = None) -> pathlib.Path:
    """Returns the path of a version: `output/<version>`.

    Args:
        output: str or path of the directory of the model's versions, which need not exist.
        version: int or None. Defaults to one more than the highest version.

    Raises:
        ConfigError: The version exists or is not positive.
    """
    output = pathlib.Path(output)
    if version is None:
        versions = (int(path.name) for path in output.glob("*") if re.fullmatch(r"[0-9]+", path.name))
        version = 1 + max(versions, default=0)
    require(version > 0, "version", "positive", version)
    path = output / str(version)
    if path.exists():
        raise ConfigError(f"{path}: this version already exists")
    return path


@contextlib.contextmanager
def publishing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a temporary path beside `path`: a directory made there becomes `path` if the block ends without an error.

    Until then it has a name that TensorFlow Serving ignores.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
