"""OpenNMT-tf's `infer` with a model of the same size, on the same subwords; its log gives the time.

It has random weights, which do not know when to end a translation, and takes a single number of steps for all requests:
the mean of what the trained model takes. TensorFlow optimizes the graph during the first request. The first request is
therefore measured alone, and then together with all requests; the difference of the two times is reported.

To be run with the Python interpreter of an environment that has OpenNMT-tf.
"""

import argparse
import json
import logging
import pathlib
import re
import tempfile

import opennmt
import tensorflow as tf

from benchmarks.contenders.opennmt_tf import build_model
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, DecodingTask, make_report
from benchmarks.processes import versions

TOTAL_TIME = re.compile(r"Total prediction time \(s\): ([\d.]+)")


class TimeHandler(logging.Handler):
    """Collects the times that `infer` logs.

    Attributes:
        seconds: list of float.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if found := TOTAL_TIME.search(record.getMessage()):
            self.seconds.append(float(found[1]))


def main() -> None:
    """Measures the contender and prints its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    options = parser.parse_args()
    task = DecodingTask(options.task)
    vocabulary = str(task.path / "vocabulary.txt")
    handler = TimeHandler()
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addHandler(handler)
    lines = (task.path / "ids.en").read_text().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        config = {
            "model_dir": str(directory),
            "data": {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary},
            "params": {
                "beam_width": BEAM_SIZE,
                "length_penalty": 0,
                "minimum_decoding_length": task.mean_steps,
                "maximum_decoding_length": task.mean_steps,
            },
            # The sentences are sorted by length already.
            "infer": {"batch_size": REQUEST_SIZE, "batch_type": "examples", "length_bucket_width": 0},
        }
        runner = opennmt.Runner(build_model(**task.facts["sizes"]), config)
        first = lines[:REQUEST_SIZE]
        for name, text in (("first", first), ("first-and-all", first + lines)):
            (directory / name).write_text("".join(text))
            runner.infer(str(directory / name), str(directory / f"{name}.predictions"), log_time=True)
    first_seconds, all_seconds = handler.seconds
    report = make_report(
        len(lines),
        all_seconds - first_seconds,
        versions("OpenNMT-tf", "tensorflow"),
        num_steps=task.mean_steps,
        first=first_seconds,
    )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
