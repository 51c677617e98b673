"""Imports models of other programs as model directories.

A reader, `marian.py` or `hugging_face.py`, converts a folder to a `PretrainedModel`: a
configuration, tokenizers, and arrays with the names of our weights
(`keras_transformer.models.transformer.named_weights`). It checks the sizes and types of everything
that it reads. `import_model` writes a model directory, in the same format as for any other
model.
"""

import os
import pathlib

from ..errors import InvalidFileError
from . import hugging_face, marian
from .pretrained_model import PretrainedModel, write_model_dir


def import_model(folder: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Imports a Marian or Hugging Face model into a new directory and returns its path.

    Args:
        folder: folder with the model.
        model_dir: path of the new model directory.

    Raises:
        InvalidFileError: If the folder contains no model, or the model is damaged or has an
            unsupported option.
        ConfigError: If the directory exists.
    """
    return write_model_dir(read_model(folder), pathlib.Path(model_dir))


def read_model(folder: str | os.PathLike[str]) -> PretrainedModel:
    """Reads a model of another program. See `import_model` for `folder` and errors."""
    folder = pathlib.Path(folder)
    if (folder / "config.json").is_file():
        return hugging_face.read(folder)
    if any(folder.glob("*.npz")):
        return marian.read(folder)
    raise InvalidFileError(
        f"{folder}: neither a Marian model (*.npz) nor one of Hugging Face (config.json)"
    )
