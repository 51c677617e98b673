"""`keras-transformer train`, as a user runs it: the speed of its second epoch.

The command learns the vocabulary, encodes the text, and trains for two epochs, each of which a
validation follows. In the first epoch it compiles. The line that it writes after the second
validation gives the speed of the second epoch, which includes the input pipeline, but not the
validation and the checkpoint. Each epoch has every sentence once, so the second has as many tokens
as the task's, whatever the order.
"""

import json
import re
import subprocess
import sys
import tempfile

from benchmarks.command import train_command
from benchmarks.processes import last_line, versions
from benchmarks.training_task import TrainingTask, make_parser


def reported_speed(output: str, step: int) -> float | None:
    """Returns the target tokens per second that the command has reported at a step, or None.

    The line is "step 1,340: loss 3.214, validation loss 2.951, ..., 5,230 target tokens/s".
    """
    match = re.search(rf"\bstep (?:{step}|{step:,}): .*?(\d[\d,.]*) target tokens/s", output)
    return float(match[1].replace(",", "")) if match else None


def main() -> None:
    """Measures the contender and prints its report."""
    options = make_parser(__doc__).parse_args()
    task = TrainingTask(options.task)
    steps = task.facts["steps"]
    settings = {
        **task.facts["settings"],
        "training.precision": options.precision,
        "training.steps": 2 * steps,
        "training.validate_every": steps,
    }
    with tempfile.TemporaryDirectory() as model_dir:
        command = train_command(model_dir, task.facts["text"], settings)
        process = subprocess.run(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    if process.returncode:
        sys.exit(last_line(process.stderr) or f"exit status {process.returncode}")
    speed = reported_speed(process.stderr, 2 * steps)
    if speed is None:
        sys.exit(
            f"the command did not report its target tokens/s at step {2 * steps}, "
            "the end of the second epoch"
        )
    seconds = task.facts["target_tokens"] / speed
    print(json.dumps(task.make_report(seconds, versions("keras", "tensorflow"))))


if __name__ == "__main__":
    main()
