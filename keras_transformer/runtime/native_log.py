"""What C++ libraries write to standard error of their own accord."""

import contextlib
import os
import sys
from collections.abc import Iterator


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
