"""Keras on TensorFlow, as the commands run it: without the user's settings, and without what C++ libraries print."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def tensorflow_backend() -> Iterator[None]:
    """In this block, TensorFlow can be imported, and Keras on top of it, regardless of the user's settings of Keras.

    These (`KERAS_...`, `~/.keras/keras.json`) are meant for other programs: commands need TensorFlow and float32.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # This is not a directory, so Keras finds no settings there and writes none.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    # Otherwise the first process would take all memory of a GPU and leave none for the process that checks an export.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    with silenced():
        yield


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards what C++ code writes to standard error, such as TensorFlow's remarks about GPUs that are not there.

    Python's own errors are raised as always.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)
