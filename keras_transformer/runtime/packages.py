"""Imports optional packages, including TensorFlow, which pip installs with extras."""

import contextlib
import os
from collections.abc import Iterator

from ..errors import MissingPackageError
from .standard_streams import silenced

# Import names of the packages in each extra of setup.cfg.
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
    """Returns how to install an extra from a clone, because there is no package on PyPI."""
    return f"in your clone of the repository, run pip install -e '.[{extra}]'"


@contextlib.contextmanager
def missing_packages_named() -> Iterator[None]:
    """Reports which extra to install if the block imports a missing package.

    Raises:
        MissingPackageError: If a package of an extra is not installed.
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
    """Sets the Keras backend to TensorFlow for imports in the block.

    The commands need TensorFlow and float32, so the user's Keras settings (`KERAS_...` and
    `~/.keras/keras.json`) are ignored.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # The null device is not a directory, so Keras neither reads nor writes settings.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    # Otherwise this process would reserve all GPU memory, and the process that checks an export
    # would have none.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with silenced():
        yield
