"""Peak memory of training and of decoding, and how the memory of the input pipeline grows with the text.

    python -m benchmarks.memory --data multi30k --json memory.json

Each value is the peak resident memory of one process. For the input pipeline this is `keras-transformer train` on
generated lines, with a model so small that its memory is negligible, and for a single step: for that, the command reads
the whole text, learns a vocabulary from it, encodes it and makes the first batches. How much memory the text takes
shows in how the peak grows with the number of lines. The JSON file contains the log of each run with its times.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.generated_lines import write_lines
from benchmarks.model import SIZES, VOCAB_SIZE, vocab_size_for, write_random_model
from benchmarks.processes import Contender, Report, run_for_report, versions
from benchmarks.text import GENERATED, add_data_option, sentence_pairs, write_pairs

TOKENS_PER_BATCH = 3000
SMALL_SIZES: dict[str, Any] = dict(num_layers=1, d_model=16, d_ff=16, num_heads=1)
NUM_VALID_LINES = 16

Paths = Sequence[pathlib.Path]


def peak_memory(command: Sequence[object], input_path: str | os.PathLike[str] = os.devnull) -> Report:
    """Measures the peak memory of a command in MB.

    Args:
        command: list of arguments; converted to str.
        input_path: str or path of the file to use as standard input. Defaults to an empty one.

    Raises:
        RunFailed: The command exited with an error.
    """
    report = run_for_report([sys.executable, "-m", "benchmarks.peak_memory", *map(str, command)], input_path)
    return {**report, "versions": versions("keras", "tensorflow")}


def train_command(
    train_paths: Paths,
    valid_paths: Paths,
    model_dir: str | os.PathLike[str],
    *,
    sizes: Mapping[str, Any],
    vocab_size: int,
    steps: int,
) -> list[object]:
    """Returns the arguments of `keras-transformer train`.

    Args:
        train_paths: paths of the two files to train on.
        valid_paths: paths of the two files to validate on.
        model_dir: str or path of the model directory to write.
        sizes: Mapping. The model's sizes, fields of TransformerConfig.
        vocab_size: int.
        steps: int.
    """
    settings = {f"model.{name}": value for name, value in sizes.items()}
    settings |= {
        "tokenizer.vocab_size": vocab_size,
        "training.steps": steps,
        "training.tokens_per_batch": TOKENS_PER_BATCH,
        "training.average_last": 0,
    }
    return [
        *(sys.executable, "-m", "keras_transformer", "train"),
        *("--source", train_paths[0], "--target", train_paths[1]),
        *("--valid-source", valid_paths[0], "--valid-target", valid_paths[1]),
        *("--model-dir", model_dir),
        *(argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")),
    ]


def training_contender(train_paths: Paths, valid_paths: Paths, **options: Any) -> Contender:
    """Returns a contender that trains into a temporary directory; for the arguments see `train_command`."""

    def run_once() -> Report:
        with tempfile.TemporaryDirectory() as model_dir:
            return peak_memory(train_command(train_paths, valid_paths, model_dir, **options))

    return run_once


def compare_processes(directory: pathlib.Path, data: str | None, steps: int) -> Comparison:
    """Compares training, translating, and a process that only imports TensorFlow.

    Args:
        directory: path of a directory for text and models.
        data: str or None. Directory of the text. None: generated text.
        steps: int. Steps to train for.
    """
    vocab_size = vocab_size_for(data)
    train_pairs = sentence_pairs(data, "train")
    train_paths = write_pairs(train_pairs, directory / "train")
    valid_paths = write_pairs(sentence_pairs(data, "valid"), directory / "valid")
    test_path, _ = write_pairs(sentence_pairs(data, "test"), directory / "test")
    model_dir = directory / "model"
    write_random_model(model_dir, train_pairs, vocab_size)
    translate = [sys.executable, "-m", "keras_transformer", "translate", "--model-dir", model_dir]
    contenders: dict[str, Contender] = {
        "import tensorflow": lambda: peak_memory([sys.executable, "-c", "import tensorflow"]),
        "keras-transformer train": training_contender(
            train_paths, valid_paths, sizes=SIZES, vocab_size=vocab_size, steps=steps
        ),
        "keras-transformer translate": lambda: peak_memory(translate, test_path),
    }
    return Comparison("peak memory", "MB", contenders)


def compare_text_sizes(directory: pathlib.Path, num_lines: int) -> Comparison:
    """Compares the input pipeline on `num_lines` generated lines, a fifth and a 25th of them.

    Args:
        directory: path of a directory for the text.
        num_lines: int.
    """

    def write(name: str, size: int) -> Paths:
        return [write_lines(directory / f"lines-{name}.{side}", size, seed=side) for side in range(2)]

    valid_paths = write("valid", NUM_VALID_LINES)
    contenders = {
        f"{size:,} lines": training_contender(
            write(str(size), size), valid_paths, sizes=SMALL_SIZES, vocab_size=VOCAB_SIZE, steps=1
        )
        for size in (num_lines // 25, num_lines // 5, num_lines)
    }
    return Comparison("peak memory of the input pipeline", "MB", contenders, reference=f"{num_lines:,} lines")


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.memory", __doc__, repeats=1)
    add_data_option(parser)
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps of the training (%(default)s)")
    parser.add_argument(
        "--lines", type=int, default=5_000_000, metavar="N", help="lines of the longest text (5,000,000)"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        try:
            comparisons = [
                compare_processes(directory, options.data, options.steps),
                compare_text_sizes(directory, options.lines),
            ]
        except ValueError as error:
            parser.error(str(error))
        measure(comparisons, options.repeats)
    publish(options.json, comparisons, data=options.data or GENERATED, steps=options.steps, lines=options.lines)


if __name__ == "__main__":
    main()
