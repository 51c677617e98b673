"""Progress of long operations: lines in a log, a bar in a terminal."""

import io
import os
import pty
import queue
import re
import subprocess
import sys
import termios
import threading
import types

import pytest

from keras_transformer.runtime import progress
from keras_transformer.runtime.progress import ProgressBar, say

# For what takes moments, however busy the machine is: a test that waits so long has failed.
SECONDS_TO_FAIL = 60


class Clock:
    """Replaces the module `time` in `progress`; time passes only in `advance`."""

    def __init__(self):
        self._now = 1000.0
        self._reads = queue.SimpleQueue()

    def monotonic(self):
        now = self._now
        self._reads.put(now)
        return now

    def advance(self, seconds):
        self._now += seconds

    def wait_for_reads(self, number):
        """Returns when the present time has been read so many times."""
        while number:
            number -= self._reads.get(timeout=SECONDS_TO_FAIL) == self._now


class Log(io.TextIOBase):
    """Standard error as a log."""

    def __init__(self):
        self._written = queue.SimpleQueue()

    def write(self, text):
        self._written.put(text)
        return len(text)

    def line(self):
        """The next line, as soon as it is written."""
        text = ""
        while not text.endswith("\n"):
            text += self._written.get(timeout=SECONDS_TO_FAIL)
        return text[:-1]

    def is_read(self):
        return self._written.empty()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "_last_line", clock.monotonic())
    monkeypatch.setattr(progress, "_SECONDS_PER_REFRESH", 0.001)
    return clock


@pytest.fixture
def log(clock, monkeypatch):
    log = Log()
    # pytest puts its own standard error in place of one that a fixture sets.
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=log))
    return log


def test_a_log_says_how_much_is_done_and_how_long_the_rest_takes(clock, log):
    with ProgressBar("tokenizing", "lines", total=2000) as bar:
        bar.advance(1500)
        clock.advance(30)
        assert log.line() == "tokenizing: 1,500 of 2,000 lines (75%), 0:00:10 left"
        bar.advance(300)
        clock.advance(3600)
        assert log.line() == "tokenizing: 1,800 of 2,000 lines (90%), 0:06:43 left"


def test_what_was_done_before_says_nothing_about_the_speed(clock, log):
    # In twenty seconds 20 of the 100 steps that were left.
    with ProgressBar("training", "steps", total=1000, done=900) as bar:
        bar.details = "loss 3.21"
        bar.advance(20)
        clock.advance(20)
        assert log.line() == "training: 920 of 1,000 steps (92%), loss 3.21, 0:01:20 left"


def test_a_log_counts_work_of_unknown_length_and_names_work_that_is_not_counted(clock, log):
    with ProgressBar("reading train.en", "lines") as bar:
        assert list(bar.count("abc")) == ["a", "b", "c"]
        clock.advance(25)
        assert log.line() == "reading train.en: 3 lines, for 0:00:25"
    with ProgressBar("learning a vocabulary"):
        clock.advance(65)
        assert log.line() == "learning a vocabulary: for 0:01:05"


def test_short_work_and_work_that_speaks_itself_add_nothing_to_a_log(clock, log):
    clock.advance(15)
    say("begin")
    with ProgressBar("tokenizing", "lines", total=2) as bar:
        bar.advance(2)
        clock.advance(19)
        # At the second read, it is settled whether the first led to a line.
        clock.wait_for_reads(2)
        say("middle")
        clock.advance(19)
        clock.wait_for_reads(2)
    assert [log.line(), log.line()] == ["begin", "middle"]
    assert log.is_read()


def test_nothing_is_written_after_the_end_nor_is_an_error_swallowed(clock, log):
    threads = set(threading.enumerate())
    with pytest.raises(KeyError), ProgressBar("tokenizing", "lines"):
        clock.advance(20)
        log.line()
        assert set(threading.enumerate()) > threads
        raise KeyError
    # The thread that writes has ended.
    assert set(threading.enumerate()) <= threads
    assert log.is_read()


SCRIPT = """
import signal, sys, time
from keras_transformer.runtime import progress
from keras_transformer.runtime.progress import ProgressBar, say
signal.alarm(60)
progress._SECONDS_PER_REFRESH = 0.01
with ProgressBar("training", "steps", total=4000) as bar:
    bar.advance(1000)
    bar.details = "loss 3.21"
    while "loss" not in str(progress._bar):
        time.sleep(0.01)
    # The bar is shown again below what is said.
    say("step 1,000: perplexity 9")
say("done")
"""


def test_a_terminal_gets_a_bar_that_disappears():
    reading_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stderr=terminal, stdout=subprocess.DEVNULL
    )
    os.close(terminal)
    written = b""
    try:
        while data := os.read(reading_end, 65536):
            written += data
    except OSError:
        # The process has closed the terminal.
        pass
    finally:
        os.close(reading_end)
    assert process.wait(timeout=SECONDS_TO_FAIL) == 0
    states = [state.strip() for state in re.split(r"[\r\n]+", written.decode())]
    bars = [
        state
        for state in states
        if re.match(r"training: +25% \|.*\| 1,000 of 4,000 steps, loss 3\.21, .* left", state)
    ]
    assert bars, states
    assert "step 1,000: perplexity 9" in states and states[-2:] == ["done", ""]
    # The bar was wiped out before the last line.
    assert states[states.index("done") - 1] == "", states
