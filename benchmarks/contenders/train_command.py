"""`keras-transformer train`, as a user runs it: the speed of its second epoch, measured by its progress bar.

The command learns the vocabulary, encodes the text and trains for two epochs. In the first it compiles. The second is
measured from the line that announces it to the moment when the progress bar shows its last step, which includes the
input pipeline, but not the validation and the checkpoint that follow. Each epoch has every sentence once, so the second
has as many tokens as the task's, whatever the order.
"""

import errno
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.processes import last_line, versions
from benchmarks.training_task import TrainingTask, make_parser

# Keras writes "Epoch 1/2", and the steps in bold: "12/170".
PROGRESS = re.compile(r"Epoch (\d+)/\d+|\x1b\[1m *(\d+)/\d+\x1b")


def epoch_seconds(output: Iterable[tuple[float, str]], epoch: int, steps: int) -> float | None:
    """Returns the time from the announcement of an epoch to its last step.

    Args:
        output: what the command wrote, as pairs of seconds and text.
        epoch: int. Number of the epoch, from 1.
        steps: int. Number of steps in an epoch.

    Returns:
        The seconds; None if the command did not reach the step.
    """
    begin = 0.0
    current = 0
    unread = ""
    for seconds, text in output:
        unread += text
        for found in PROGRESS.finditer(unread):
            announced, step = found.groups()
            if announced:
                current = int(announced)
                if current == epoch:
                    begin = seconds
            elif current == epoch and int(step) == steps:
                return seconds - begin
        # The text may end in the middle of a number.
        unread = PROGRESS.split(unread)[-1]
    return None


def run_in_terminal(command: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[float, str]]:
    """Runs a process whose standard error is a terminal.

    Args:
        command: list of str and paths.

    Yields:
        What the process writes to the terminal, as soon as it does: the current seconds and the text.

    Raises:
        SystemExit: The process exited with an error; the message is the last line that it wrote.
    """
    reading_end, terminal = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    output = ""
    try:
        while data := os.read(reading_end, 65536):
            text = data.decode(errors="replace")
            output += text
            yield time.perf_counter(), text
    except OSError as error:
        # EIO: the process has closed the terminal.
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(reading_end)
    if process.wait():
        sys.exit(last_line(output) or f"exit status {process.returncode}")


def main() -> None:
    """Measures the contender and prints its report."""
    options = make_parser(__doc__).parse_args()
    task = TrainingTask(options.task)
    steps = task.facts["steps"]
    settings = {"precision": options.precision, "steps": 2 * steps, "validate_every": steps}
    with tempfile.TemporaryDirectory() as model_dir:
        command: list[str | os.PathLike[str]] = [
            *(sys.executable, "-m", "keras_transformer", "train"),
            *("--source", task.path / "train.en", "--target", task.path / "train.de"),
            *("--valid-source", task.path / "valid.en", "--valid-target", task.path / "valid.de"),
            *("--config", task.path / "recipe.yaml", "--model-dir", model_dir),
        ]
        for name, value in settings.items():
            command += ["--set", f"training.{name}={value}"]
        output = list(run_in_terminal(command))
    seconds = epoch_seconds(output, 2, steps)
    if seconds is None:
        sys.exit("the progress bar of the command did not show the last step of the second epoch")
    lines = "".join(text for _, text in output).splitlines()
    log = [line for line in lines if "parameters," in line]
    print(json.dumps(task.make_report(seconds, versions("keras", "tensorflow"), log=log)))


if __name__ == "__main__":
    main()
