"""Models that other programs trained, as model directories.

A reader (`marian.py`, `hugging_face.py`) turns a folder into a `PretrainedModel`: a configuration, tokenizers and
arrays by the names of our weights. `import_model` writes it; nothing behind it knows where it came from.
"""

import os
import pathlib

from ..errors import ConfigError
from .hugging_face import read_hugging_face
from .marian import read_marian
from .model import PretrainedModel, write_model_dir

__all__ = ["PretrainedModel", "import_model"]


def import_model(folder: str | os.PathLike[str], model_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a model of Marian, or of Hugging Face's port of it, as a model directory.

    Args:
        folder: str or path of the model's folder.
        model_dir: str or path of a new directory.

    Returns:
        The path of the model directory.

    Raises:
        ConfigError: There is no model in the folder, it is damaged, or it has what a Transformer of this package has
            not; or the directory exists.
    """
    folder = pathlib.Path(folder)
    if (folder / "config.json").is_file():
        model = read_hugging_face(folder)
    elif any(folder.glob("*.npz")):
        model = read_marian(folder)
    else:
        raise ConfigError(f"{folder}: neither a Marian model (*.npz) nor one of Hugging Face (config.json)")
    return write_model_dir(model, pathlib.Path(model_dir))
