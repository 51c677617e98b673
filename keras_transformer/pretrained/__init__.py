"""Models that other programs trained, as model directories.

A reader turns a folder into a `PretrainedModel`: a configuration, tokenizers and arrays by the names of our weights.
`import_model` writes it; nothing behind it knows where it came from.

To add a reader, write a module with the two functions of the protocol `Reader`, as `marian.py` and `hugging_face.py`
do, and list it in `READERS`. It reads files with the functions of `foreign_files.py`, which check sizes and types, and
names weights as `keras_transformer.models.named_weights` does.
"""

import os
import pathlib

from ..errors import InvalidFileError
from . import hugging_face, marian
from .pretrained_model import PretrainedModel, Reader, write_model_dir

__all__ = ["READERS", "PretrainedModel", "Reader", "import_model", "read_model"]

READERS: tuple[Reader, ...] = (hugging_face, marian)


def import_model(folder: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a model of Marian, or of Hugging Face's port of it, as a new model directory, and returns its path.

    Raises:
        InvalidFileError: There is no model in the folder, it is damaged, or it has what a Transformer of this package
            has not.
        ConfigError: The directory exists.
    """
    return write_model_dir(read_model(folder), pathlib.Path(model_dir))


def read_model(folder: str | os.PathLike[str]) -> PretrainedModel:
    """Reads a model of another program; `folder` and errors are those of `import_model`."""
    folder = pathlib.Path(folder)
    for reader in READERS:
        if reader.matches(folder):
            return reader.read(folder)
    raise InvalidFileError(f"{folder}: neither a Marian model (*.npz) nor one of Hugging Face (config.json)")
