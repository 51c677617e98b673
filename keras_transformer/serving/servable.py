"""A SavedModel to try: what `export` writes, as TensorFlow Serving reads it."""

import os
import pathlib
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of tokenizers)

from ..errors import ConfigError, InvalidFileError
from .rest import Signature


class Servable(NamedTuple):
    """A version of a SavedModel.

    Attributes:
        version: int.
        signatures: dict of Signature by name.
    """

    version: int
    signatures: dict[str, Signature]


def load_servable(path: str | os.PathLike[str]) -> Servable:
    """Loads the highest version of a SavedModel. It may compute anything: load none from strangers.

    Args:
        path: str or path of the directory of the versions.

    Raises:
        ConfigError: There is no version.
        InvalidFileError: The version cannot be loaded.
    """
    folders = [folder for folder in pathlib.Path(path).iterdir() if folder.name.isascii() and folder.name.isdigit()]
    versions = {int(folder.name): folder for folder in folders if (folder / "saved_model.pb").is_file()}
    if not versions:
        raise ConfigError(f"{path}: there is no folder of a version, such as 1, with a saved_model.pb")
    version = max(versions)
    try:
        functions = tf.saved_model.load(str(versions[version])).signatures
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        raise InvalidFileError(
            f"{versions[version]}: the SavedModel cannot be loaded: {str(error).splitlines()[0]}"
        ) from None
    signatures = {name: Signature(functions[name].structured_input_signature[1], functions[name]) for name in functions}
    return Servable(version, signatures)
