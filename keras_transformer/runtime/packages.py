"""Packages that pip installs with one of the extras only."""

import contextlib
from collections.abc import Iterator

from ..errors import MissingPackageError

# The names by which the packages of each extra in setup.cfg are imported.
EXTRAS = {
    "ctranslate2": ["ctranslate2"],
    "onnx": ["onnxruntime", "tf2onnx"],
    "plots": ["matplotlib"],
    "translation": [
        *("google", "h5py", "importlib_resources", "regex", "sacrebleu", "safetensors", "sentencepiece", "tabulate"),
        *("tensorboard", "tensorflow", "tensorflow_datasets", "tensorflow_text", "tqdm", "yaml", "zstandard"),
    ],
}


@contextlib.contextmanager
def missing_packages_named() -> Iterator[None]:
    """In this block, an import of a package that is not installed is a MissingPackageError that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if name in packages:
                problem = f"this needs the package {name}, which is not installed"
                message = f"{problem}: pip install 'keras3-transformer[{extra}]'"
                raise MissingPackageError(message, name=error.name) from error
        raise
