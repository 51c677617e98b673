"""Keras on TensorFlow, which the commands run on."""

import contextlib
import os
from collections.abc import Iterator

from ..runtime.native_log import silenced


@contextlib.contextmanager
def tensorflow_backend() -> Iterator[None]:
    """In this block TensorFlow may be imported, and Keras on it, whatever the user's settings of Keras are.

    They (`KERAS_...`, `~/.keras/keras.json`) are for other programs: commands need TensorFlow and float32.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # A directory in which Keras finds no settings, nor writes any.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    with silenced():
        yield
