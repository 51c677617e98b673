"""Packages that pip installs with one of the extras only."""

import contextlib
from collections.abc import Iterator

from ..errors import MissingPackageError

# The names they are imported by. The extras are in setup.cfg.
EXTRAS = {
    "ctranslate2": "ctranslate2",
    "google": "translation",
    "h5py": "translation",
    "importlib_resources": "translation",
    "matplotlib": "plots",
    "onnxruntime": "onnx",
    "regex": "translation",
    "sacrebleu": "translation",
    "safetensors": "translation",
    "sentencepiece": "translation",
    "tabulate": "translation",
    "tensorboard": "translation",
    "tensorflow": "translation",
    "tensorflow_datasets": "translation",
    "tensorflow_text": "translation",
    "tf2onnx": "onnx",
    "tqdm": "translation",
    "yaml": "translation",
    "zstandard": "translation",
}


@contextlib.contextmanager
def missing_packages_named() -> Iterator[None]:
    """In this block, an import of a package that is not installed is a MissingPackageError that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        raise MissingPackageError(
            f"this needs the package {name}, which is not installed: pip install 'keras3-transformer[{EXTRAS[name]}]'",
            name=error.name,
        ) from error
