"""Shows the log and the progress of long tasks on standard error.

The logger is named `keras_transformer`. Commands show the whole log. Python programs show warnings
unless they configure `logging`. On a terminal, progress is a bar; otherwise, it is logged.
"""

import contextlib
import datetime
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

Item = TypeVar("Item")

_log = logging.getLogger(__name__)
_PACKAGE_LOG = logging.getLogger("keras_transformer")

# Leaves a margin of a few seconds, so that the log has a line at least every half minute.
_SECONDS_PER_LINE = 20.0
_SECONDS_PER_REFRESH = 0.5

_last_line = time.monotonic()
# The current tqdm bar, if any.
_bar: Any = None


def say(message: str) -> None:
    """Writes a line to standard error, above the progress bar if there is one.

    If the stream is closed, the message is discarded.
    """
    global _last_line
    _last_line = time.monotonic()
    try:
        with contextlib.nullcontext() if _bar is None else _bar.external_write_mode(sys.stderr):
            print(message, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Lines(logging.Handler):
    """Logging handler that writes lines to standard error, above the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        say(prefix + record.getMessage())


_LINES = _Lines()


def show_log() -> None:
    """Shows the log on standard error."""
    _PACKAGE_LOG.setLevel(logging.INFO)
    # `logging` does not add the same handler twice.
    _PACKAGE_LOG.addHandler(_LINES)
    # Handlers of other libraries would write each line again.
    _PACKAGE_LOG.propagate = False


@contextlib.contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """Logs only errors and shows no progress bar while the block runs."""
    level = _PACKAGE_LOG.level
    if is_quiet:
        _PACKAGE_LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _PACKAGE_LOG.setLevel(level)


def counted(number: int, noun: str) -> str:
    """Returns a number with a noun in the singular or plural.

    Example:
        >>> counted(1, "device"), counted(2000, "step")
        ('1 device', '2,000 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class ProgressBar:
    """Progress of a task while a `with` block runs.

    On a terminal, progress is shown as a bar, which disappears at the end. There is no bar if the
    log level is above warnings. Elsewhere, progress is logged whenever the log has had no line for
    20 seconds. A separate thread updates the bar or the log, so that updates do not wait for the
    task.

    Args:
        task: description of the task.
        unit: plural noun for the counted items. Defaults to "": items are not counted.
        total: number of items. Defaults to None: unknown.
        done: number of items that are already done. Defaults to 0.

    Attributes:
        details: additional text to show, such as "loss 3.21".
    """

    def __init__(self, task: str, unit: str = "", total: int | None = None, done: int = 0) -> None:
        self.task = task
        self.unit = unit
        self.total = total
        self.details = ""
        self._first = self._done = done

    def advance(self, number: int = 1) -> None:
        self._done += number

    def count(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items and counts them as done."""
        for item in items:
            self._done += 1
            yield item

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        self._finished = threading.Event()
        shows_bar = sys.stderr.isatty() and _log.isEnabledFor(logging.WARNING)
        work = self._show_on_terminal if shows_bar else self._log_lines
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._finished.set()
        self._thread.join()

    def _show_on_terminal(self) -> None:
        global _bar
        # Import tqdm here, so that `--help` stays fast.
        import tqdm

        # tqdm fills in the fields in braces.
        if self.total:
            layout = "{desc}: {percentage:3.0f}% |{bar}| {n:,} of {total:,} UNIT{postfix}"
            layout += ", {remaining} left"
        elif self.unit:
            layout = "{desc}: {n:,} UNIT{postfix}, {elapsed}"
        else:
            layout = "{desc}: {elapsed}"
        layout = layout.replace("UNIT", self.unit)
        with tqdm.tqdm(
            desc=self.task,
            total=self.total,
            initial=self._first,
            bar_format=layout,
            file=sys.stderr,
            leave=False,
            dynamic_ncols=True,
        ) as _bar:
            while not self._finished.wait(_SECONDS_PER_REFRESH):
                _bar.n = self._done
                _bar.set_postfix_str(self.details)
        _bar = None

    def _log_lines(self) -> None:
        global _last_line
        while not self._finished.wait(_SECONDS_PER_REFRESH):
            if time.monotonic() - _last_line >= _SECONDS_PER_LINE:
                # Set this here too, because another handler may show the log.
                _last_line = time.monotonic()
                _log.info(self._line())

    def _line(self) -> str:
        parts = []
        if self.total:
            share = f"{self._done / self.total:.0%}"
            parts.append(f"{self._done:,} of {self.total:,} {self.unit} ({share})")
        elif self.unit:
            parts.append(f"{self._done:,} {self.unit}")
        if self.details:
            parts.append(self.details)
        seconds = time.monotonic() - self._begin
        newly_done = self._done - self._first
        if self.total and newly_done:
            left = seconds / newly_done * (self.total - self._done)
            parts.append(f"{datetime.timedelta(seconds=round(left))} left")
        else:
            parts.append(f"for {datetime.timedelta(seconds=round(seconds))}")
        return f"{self.task}: {', '.join(parts)}"
