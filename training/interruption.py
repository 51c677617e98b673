"""SIGTERM and SIGINT (Ctrl-C) while a training runs."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from keras_transformer.progress import say

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Ends a training in good order at SIGTERM or SIGINT, while a `with` block runs in the main thread.

    The exit code is that of a process which the signal ended: 128 and the signal's number. A second signal ends the
    process at once.

    Attributes:
        signal: signal.Signals or None. The signal that was received.
        is_awaited: bool. Whether the training looks at `signal` after each step. Otherwise the signal interrupts it.
        saved_step: int. The last step that was saved.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.is_awaited = False
        self.saved_step = 0

    def __enter__(self) -> Self:
        # One that is ignored stays so: a shell starts a command in the background like this.
        self._handlers: dict[signal.Signals, Any] = {
            each: signal.signal(each, self._receive) for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each, handler in self._handlers.items():
            signal.signal(each, handler)
        if self.signal is not None and isinstance(error, KeyboardInterrupt):
            when = "before its first step"
            if self.saved_step:
                when = f"after step {self.saved_step:,}, which is saved; the same command goes on from there"
            say(f"stopped by {self.signal.name} {when}")
            raise SystemExit(128 + self.signal) from None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        for each in self._handlers:
            signal.signal(each, signal.SIG_DFL)
        if not self.is_awaited:
            raise KeyboardInterrupt
