"""Keras on TensorFlow, which the commands run on."""

import contextlib
import os
from collections.abc import Iterator

from ..runtime.native_log import silenced


@contextlib.contextmanager
def tensorflow_backend() -> Iterator[None]:
    """In this block, TensorFlow can be imported, and Keras on top of it, regardless of the user's settings of Keras.

    These (`KERAS_...`, `~/.keras/keras.json`) are meant for other programs: commands need TensorFlow and float32.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # Not a directory: Keras finds no settings there and writes none.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    with silenced():
        yield
