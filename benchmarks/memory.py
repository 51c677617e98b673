"""Peak memory of training and of translating, compared with importing TensorFlow.

    python -m benchmarks.memory --data multi30k --json memory.json

Each value is the peak resident memory of one process. How the memory of training grows with the
text is measured by `benchmarks.long_corpus`.
"""

import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.command import COMMAND, SIZES, settings_of, train_command
from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.processes import Contender, Report, run_for_report, versions
from benchmarks.text import (
    GENERATED,
    add_data_option,
    sentence_pairs,
    vocab_size_for,
    write_pairs,
    write_text,
)
from keras_transformer.errors import Error


def peak_memory(
    command: Sequence[object], input_path: str | os.PathLike[str] = os.devnull
) -> Report:
    """Measures the peak memory of a command in MB, and its seconds.

    Raises:
        RunFailed: The command exited with an error.
    """
    report = run_for_report([sys.executable, "-m", "benchmarks.peak_memory", *command], input_path)
    return {**report, "versions": versions("keras", "tensorflow")}


def training_contender(
    model_dir: pathlib.Path, text: dict[str, object], settings: dict[str, object]
) -> Contender:
    """Returns a contender that trains a new model in each run, with `train_command`."""

    def run_once() -> Report:
        shutil.rmtree(model_dir, ignore_errors=True)
        return peak_memory(train_command(model_dir, text, settings))

    return run_once


def compare_processes(directory: pathlib.Path, data: str | None, steps: int) -> Comparison:
    """Compares training, translating, and a process that only imports TensorFlow."""
    model_dir = directory / "model"
    settings = settings_of(SIZES, vocab_size_for(data), steps)
    test_path, _ = write_pairs(sentence_pairs(data, "test"), directory / "test")
    contenders = {
        "import tensorflow": lambda: peak_memory([sys.executable, "-c", "import tensorflow"]),
        "keras-transformer train": training_contender(
            model_dir, write_text(data, directory), settings
        ),
        "keras-transformer translate": lambda: peak_memory(
            [*COMMAND, "translate", "--model-dir", model_dir], test_path
        ),
    }
    return Comparison("peak memory", "MB", contenders)


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.memory", __doc__, repeats=1)
    add_data_option(parser)
    parser.add_argument(
        "--steps", type=int, default=100, metavar="N", help="steps of the training (%(default)s)"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as directory:
        try:
            comparison = compare_processes(pathlib.Path(directory), options.data, options.steps)
        except Error as error:
            parser.error(str(error))
        measure([comparison], options.repeats)
    publish(options.json, [comparison], data=options.data or GENERATED, steps=options.steps)


if __name__ == "__main__":
    main()
