"""OpenNMT-tf's `infer` with a model of the same size, on the same subwords, by the time that its log gives.

Its weights are random, so that it would not know when to end, and one number of steps is set for all requests: the
mean of what our search's requests take. The time of the first request by itself, in which TensorFlow optimizes the
graph, is subtracted from that of the first request and all.

Run by the Python of an environment that has OpenNMT-tf.
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
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, DecodingTask, report
from benchmarks.processes import versions

TOTAL = re.compile(r"Total prediction time \(s\): ([\d.]+)")


class Totals(logging.Handler):
    """Keeps the seconds of every inference, as they are logged."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def emit(self, record):
        if found := TOTAL.search(record.getMessage()):
            self.seconds.append(float(found[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    options = parser.parse_args()
    task = DecodingTask(options.task)
    vocabulary = str(task.path / "vocabulary.txt")
    totals = Totals()
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addHandler(totals)
    lines = (task.path / "ids.en").read_text().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = {
            "model_dir": str(folder),
            "data": {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary},
            "params": {
                "beam_width": BEAM_SIZE,
                "length_penalty": 0,
                "minimum_decoding_length": task.mean_steps,
                "maximum_decoding_length": task.mean_steps,
            },
            # Sentences come in the order of their length already.
            "infer": {"batch_size": REQUEST_SIZE, "batch_type": "examples", "length_bucket_width": 0},
        }
        runner = opennmt.Runner(build_model(**task.facts["sizes"]), config)
        first = lines[:REQUEST_SIZE]
        for name, text in (("first", first), ("first-and-all", first + lines)):
            (folder / name).write_text("".join(text))
            runner.infer(str(folder / name), str(folder / f"{name}.predictions"), log_time=True)
    alone, together = totals.seconds
    measured = report(
        len(lines), together - alone, versions("OpenNMT-tf", "tensorflow"), num_steps=task.mean_steps, first=alone
    )
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
