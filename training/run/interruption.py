"""Handles SIGTERM and SIGINT (Ctrl-C) during a training run."""

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], object] | int | None


class Interruption:
    """A context manager that ends a training run cleanly on SIGTERM or SIGINT.

    Use it in the main thread. The exit code is 128 plus the signal number, as if the signal had
    terminated the process. A second signal terminates the process immediately.

    Attributes:
        signal: The signal that was received, or None.
        is_awaited: Whether the training loop checks `signal` after each step. If it does not, a
            signal raises `KeyboardInterrupt` immediately.
        saved_step: The last step that was saved.
        is_of_another_worker: Whether the training is interrupted because another worker received a
            signal.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.is_awaited = False
        self.saved_step = 0
        self.is_of_another_worker = False

    def __enter__(self) -> Self:
        self._handlers: dict[signal.Signals, _Handler] = {}
        for number in _SIGNALS:
            # Keep ignoring signals that are ignored, as in background commands of a shell.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._receive)
        self._unraisable_hook = sys.unraisablehook
        sys.unraisablehook = self._show_unraisable
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._unraisable_hook
        # Keras and TensorFlow may turn a KeyboardInterrupt into another error.
        is_interrupted = isinstance(error, KeyboardInterrupt) or (
            error is not None and not self.is_awaited
        )
        if is_interrupted and (self.signal is not None or self.is_of_another_worker):
            when = "before its first step"
            if self.saved_step:
                when = f"after step {self.saved_step:,}, which is saved"
                when += "; run the same command to resume"
            if self.signal is None:
                received = signal.SIGTERM
                _log.info(f"stopped by a signal to another worker {when}")
            else:
                received = self.signal
                _log.info(f"stopped by {received.name} {when}")
            raise SystemExit(128 + received) from None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        # A second signal ends the process.
        for handled in self._handlers:
            signal.signal(handled, signal.SIG_DFL)
        if not self.is_awaited:
            raise KeyboardInterrupt

    def _show_unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        # Python ignores a KeyboardInterrupt in a destructor. Training ends after the next step.
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._unraisable_hook(unraisable)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGINT end the process while the block waits in native code, where no handler runs.

    SIGTERM also ends the process, unless the block handles SIGTERM itself, as TensorFlow does while
    it connects workers.
    """
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
