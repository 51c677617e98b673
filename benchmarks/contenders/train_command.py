"""`keras-transformer train`, as a user runs it: the speed of its second epoch, which it reports itself.

The command learns the vocabulary, encodes the text, and trains for two epochs, each of which a validation follows. In
the first epoch it compiles. The line that it writes after the second validation gives the speed of the second epoch,
which includes the input pipeline, but not the validation and the checkpoint. Each epoch has every sentence once, so the
second has as many tokens as the task's, whatever the order.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from benchmarks.processes import last_line, versions
from benchmarks.training_task import TrainingTask, make_parser

# "step 340: loss 3.214, validation loss 2.951, ..., 5,230 target tokens/s"
SPEED = re.compile(r"\bstep ([\d,]+): .*?(\d[\d,.]*) target tokens/s")


def reported_speed(output: str, step: int) -> float | None:
    """Returns the target tokens per second that the command has reported at a step.

    Args:
        output: str. What the command wrote.
        step: int.

    Returns:
        The speed; None if there is no such line.
    """
    for found in SPEED.finditer(output):
        reported_step, speed = (text.replace(",", "") for text in found.groups())
        if int(reported_step) == step:
            return float(speed)
    return None


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
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    output = process.stderr
    if process.returncode:
        sys.exit(last_line(output) or f"exit status {process.returncode}")
    speed = reported_speed(output, 2 * steps)
    if speed is None:
        sys.exit(f"the command did not report its target tokens/s at step {2 * steps}, the end of the second epoch")
    seconds = task.facts["target_tokens"] / speed
    log = [line for line in output.splitlines() if "parameters," in line]
    print(json.dumps(task.make_report(seconds, versions("keras", "tensorflow"), log=log)))


if __name__ == "__main__":
    main()
