"""What long work shows: lines in a log, a bar on a terminal."""

import os
import pty
import re
import subprocess
import sys
import termios
import time

import pytest

from keras_transformer.runtime import progress
from keras_transformer.runtime.progress import ProgressBar, say


class Log:
    """Standard error as a log."""

    def __init__(self, capsys):
        self._capsys = capsys
        self._text = ""

    def lines(self, number=0):
        """All lines so far, as soon as there are so many."""
        deadline = time.monotonic() + 30
        self._text += self._capsys.readouterr().err
        while self._text.count("\n") < number and time.monotonic() < deadline:
            time.sleep(0.001)
            self._text += self._capsys.readouterr().err
        return self._text.splitlines()


@pytest.fixture
def log(monkeypatch, capsys):
    """A log that gets a line as soon as one may be written."""
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0.0)
    monkeypatch.setattr(progress, "_SECONDS_PER_REFRESH", 0.001)
    return Log(capsys)


def test_a_log_says_how_much_is_done_and_how_long_the_rest_takes(log):
    with ProgressBar("tokenizing", "lines", total=2000) as bar:
        bar.advance(1500)
        line = log.lines(3)[-1]
    assert re.fullmatch(r"tokenizing: 1,500 of 2,000 lines \(75%\), \d:\d\d:\d\d left", line), line


def test_what_was_done_before_says_nothing_about_the_speed(log, monkeypatch):
    # In ten seconds 20 of the 100 steps that were left.
    with ProgressBar("training", "steps", total=1000, done=900) as bar:
        bar.details = "loss 3.21"
        bar.advance(20)
        monkeypatch.setattr(bar, "_begin", time.monotonic() - 10)
        line = log.lines(3)[-1]
    assert line == "training: 920 of 1,000 steps (92%), loss 3.21, 0:00:40 left"


def test_a_log_counts_work_of_unknown_length_and_names_work_that_is_not_counted(log):
    with ProgressBar("reading train.en", "lines") as bar:
        assert list(bar.count("abc")) == ["a", "b", "c"]
        line = log.lines(3)[-1]
    assert re.fullmatch(r"reading train\.en: 3 lines, for \d:\d\d:\d\d", line), line
    with ProgressBar("learning a vocabulary"):
        line = log.lines(len(log.lines()) + 3)[-1]
    assert re.fullmatch(r"learning a vocabulary: for \d:\d\d:\d\d", line), line


def test_short_work_and_work_that_speaks_itself_add_nothing_to_a_log(log, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 3600.0)
    say("begin")
    with ProgressBar("tokenizing", "lines", total=2) as bar:
        bar.advance(2)
        time.sleep(0.02)
    assert log.lines() == ["begin"]


def test_nothing_is_written_after_the_end_nor_is_an_error_swallowed(log):
    with pytest.raises(KeyError), ProgressBar("tokenizing", "lines"):
        log.lines(1)
        raise KeyError
    written = log.lines()
    time.sleep(0.02)
    assert log.lines() == written


SCRIPT = """
import sys, time
from keras_transformer.runtime import progress
from keras_transformer.runtime.progress import ProgressBar, say
progress._SECONDS_PER_REFRESH = 0.01
with ProgressBar("training", "steps", total=4000) as bar:
    bar.advance(1000)
    bar.details = "loss 3.21"
    while "loss" not in str(progress._bar):
        time.sleep(0.01)
    time.sleep(0.1)
    say("step 1,000: perplexity 9")
    time.sleep(0.1)
say("done")
"""


def test_a_terminal_gets_a_bar_that_disappears():
    reading_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=terminal, stdout=subprocess.DEVNULL)
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
    assert process.wait(timeout=60) == 0
    states = [state.strip() for state in re.split(r"[\r\n]+", written.decode())]
    bars = [
        state for state in states if re.match(r"training: +25% \|.*\| 1,000 of 4,000 steps, loss 3\.21, .* left", state)
    ]
    assert bars, states
    assert "step 1,000: perplexity 9" in states and states[-2:] == ["done", ""]
    # The bar was wiped out before the last line.
    assert states[states.index("done") - 1] == "", states
