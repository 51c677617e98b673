"""`keras-transformer train`, as a user runs it: the speed of its second epoch, by its own progress bar.

The command learns the vocabulary, encodes the text and trains for two epochs. In the first it compiles all shapes,
whatever order they come in. The second is timed from the line that announces it to the moment at which the bar shows
its last step: with the input pipeline, without the validation and the checkpoint that follow. Both epochs hold every
sentence once, so the second has the tokens that the task counted, in whatever order it comes.
"""

import argparse
import errno
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time

from benchmarks.processes import last_words, versions
from benchmarks.training_task import TrainingTask

# In bold, as Keras writes it: 12/170
PROGRESS = re.compile(r"Epoch (\d+)/\d+|\x1b\[1m *(\d+)/\d+\x1b")


def epoch_seconds(said, epoch, steps):
    """From the announcement of an epoch to its last step.

    Args:
        said: what a run said, as an iterable of `(seconds, text)`.
        epoch: its number, from 1.
        steps: of an epoch.

    Returns:
        Seconds; None if the run did not come so far.
    """
    begin = None
    current = 0
    unread = ""
    for seconds, text in said:
        unread += text
        for found in PROGRESS.finditer(unread):
            announced, step = found.groups()
            if announced:
                current = int(announced)
                if current == epoch:
                    begin = seconds
            elif current == epoch and int(step) == steps:
                return seconds - begin
        # What came may end in the midst of a number.
        unread = PROGRESS.split(unread)[-1]
    return None


def run_in_terminal(command):
    """Runs a process whose standard error is a terminal.

    Yields:
        What it says there, as `(seconds, text)`, when it says it.

    Raises:
        SystemExit: it ended with an error; the message is what it said last.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    heard = ""
    try:
        while data := os.read(ours, 65536):
            text = data.decode(errors="replace")
            heard += text
            yield time.perf_counter(), text
    except OSError as error:
        # How a terminal says that the other side is gone.
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(ours)
    if process.wait():
        sys.exit(last_words(heard) or f"exit status {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    task = TrainingTask(options.task)
    steps = task.facts["steps"]
    settings = {"precision": options.precision, "steps": 2 * steps, "validate_every": steps}
    with tempfile.TemporaryDirectory() as model_dir:
        command = [
            *(sys.executable, "-m", "keras_transformer", "train"),
            *("--source", task.path / "train.en", "--target", task.path / "train.de"),
            *("--valid-source", task.path / "valid.en", "--valid-target", task.path / "valid.de"),
            *("--config", task.path / "recipe.yaml", "--model-dir", model_dir),
        ]
        for name, value in settings.items():
            command += ["--set", f"training.{name}={value}"]
        said = list(run_in_terminal(command))
    lines = "".join(text for _, text in said).splitlines()
    seconds = epoch_seconds(said, 2, steps)
    if seconds is None:
        sys.exit("the command's progress bar never showed the last step of the second epoch")
    log = [line for line in lines if "parameters," in line]
    print(json.dumps(task.report(seconds, versions("keras", "tensorflow"), log=log)))


if __name__ == "__main__":
    main()
