"""Imports of the packages that pip installs with one of the extras only, TensorFlow among them."""

import contextlib
import os
from collections.abc import Iterator

from ..errors import MissingPackageError
from .standard_streams import silenced

# The names by which the packages of each extra in setup.cfg are imported.
EXTRAS = {
    "ctranslate2": ["ctranslate2"],
    "languages": ["py3langid"],
    "onnx": ["onnxruntime", "tf2onnx"],
    "plots": ["matplotlib"],
    "translation": [
        "google",
        "h5py",
        "importlib_resources",
        "regex",
        "sacrebleu",
        "safetensors",
        "sentencepiece",
        "tabulate",
        "tensorboard",
        "tensorflow",
        "tensorflow_datasets",
        "tensorflow_text",
        "tqdm",
        "yaml",
        "zstandard",
    ],
}


def how_to_install(extra: str) -> str:
    """Returns what to type to install an extra. The package itself is not on PyPI."""
    return f"in your clone of the repository, run pip install -e '.[{extra}]'"


@contextlib.contextmanager
def missing_packages_named() -> Iterator[None]:
    """Names the extra of a package that the block imports and that is not installed.

    Raises:
        MissingPackageError: A package of an extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if name in packages:
                message = f"this needs the package {name}, which is not installed: "
                raise MissingPackageError(
                    message + how_to_install(extra), name=error.name
                ) from error
        raise


@contextlib.contextmanager
def tensorflow_backend() -> Iterator[None]:
    """Lets the block import TensorFlow, and Keras on top of it, whatever the user's settings are.

    The settings of Keras (`KERAS_...`, `~/.keras/keras.json`) are meant for other programs:
    commands need TensorFlow and float32.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # This is not a directory, so Keras finds no settings there and writes none.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    # Otherwise the first process would take all memory of a GPU and leave none for the process that
    # checks an export.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with silenced():
        yield
