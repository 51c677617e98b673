"""How the command shows the package's log, which is that of the logger `keras_transformer`.

Python programs see warnings, unless they set up the module `logging` themselves.
"""

import contextlib
import logging
from collections.abc import Iterator

from .progress import say

_PACKAGE_LOG = logging.getLogger("keras_transformer")


class _Lines(logging.Handler):
    """Writes every record as a line to standard error, above the bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        say(prefix + record.getMessage())


_LINES = _Lines()


def show_log() -> None:
    """Shows the log as lines on standard error, from now on."""
    _PACKAGE_LOG.setLevel(logging.INFO)
    # The same handler is not added twice.
    _PACKAGE_LOG.addHandler(_LINES)
    # Handlers of other libraries would write each line again.
    _PACKAGE_LOG.propagate = False


@contextlib.contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """Logs nothing but errors, and shows no bar, while a `with` block runs."""
    level = _PACKAGE_LOG.level
    if is_quiet:
        _PACKAGE_LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _PACKAGE_LOG.setLevel(level)
