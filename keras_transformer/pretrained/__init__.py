"""Models that other programs trained, as model directories.

A reader, `marian.py` or `hugging_face.py`, turns a folder into a `PretrainedModel`: a
configuration, tokenizers and arrays by the names of our weights
(`keras_transformer.models.transformer.named_weights`). It checks sizes and types of all that it
reads. `import_model` writes the model directory; nothing behind it knows where the model came from.
"""

import os
import pathlib

from ..errors import InvalidFileError
from . import hugging_face, marian
from .pretrained_model import PretrainedModel, write_model_dir


def import_model(folder: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Imports a model of Marian or of Hugging Face into a new directory, and returns its path.

    Raises:
        InvalidFileError: There is no model in the folder, it is damaged, or it has an option that
            this package does not support.
        ConfigError: The directory exists.
    """
    return write_model_dir(read_model(folder), pathlib.Path(model_dir))


def read_model(folder: str | os.PathLike[str]) -> PretrainedModel:
    """Reads a model of another program; `folder` and errors are those of `import_model`."""
    folder = pathlib.Path(folder)
    if (folder / "config.json").is_file():
        return hugging_face.read(folder)
    if any(folder.glob("*.npz")):
        return marian.read(folder)
    raise InvalidFileError(
        f"{folder}: neither a Marian model (*.npz) nor one of Hugging Face (config.json)"
    )
