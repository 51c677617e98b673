"""Memory: the peaks of training and of decoding, and what the input pipeline holds of a corpus.

    python -m benchmarks.memory --data multi30k --json memory.json

Every value is the peak of resident memory of one process. The input pipeline's is that of `keras-transformer train`
on generated lines: with a model so small that it hardly counts, and for one step alone, for which the command reads
the whole corpus, learns a vocabulary from it, encodes it and makes the first batches. What is held of the corpus
shows in how the peak grows with the number of lines. The JSON file has the seconds at which each run said what.
"""

import os
import pathlib
import sys
import tempfile

from benchmarks.comparison import Comparison, parser, publish, take_turns
from benchmarks.generated_lines import write_lines
from benchmarks.model import SIZES, VOCAB_SIZE, write_random_model
from benchmarks.processes import report, versions
from benchmarks.text import add_data_option, sentence_pairs, write_pairs

TOKENS_PER_BATCH = 3000
SMALL_SIZES = dict(num_layers=1, d_model=16, d_ff=16, num_heads=1)
VALID_PAIRS = 16


def peak(command, input_path=os.devnull):
    """The report of a command's peak of memory; `input_path` is its standard input."""
    measured = report([sys.executable, "-m", "benchmarks.peak_memory", *map(str, command)], input_path)
    return {**measured, "versions": versions("keras", "tensorflow")}


def train_command(train_paths, valid_paths, model_dir, sizes, steps):
    """`keras-transformer train` on files, for so many steps."""
    settings = {f"model.{name}": value for name, value in sizes.items()}
    settings |= {
        "tokenizer.vocab_size": VOCAB_SIZE,
        "training.steps": steps,
        "training.tokens_per_batch": TOKENS_PER_BATCH,
        "training.average_last": 0,
    }
    return [
        *(sys.executable, "-m", "keras_transformer", "train"),
        *("--source", train_paths[0], "--target", train_paths[1]),
        *("--valid-source", valid_paths[0], "--valid-target", valid_paths[1]),
        *("--model-dir", model_dir),
        *(argument for item in settings.items() for argument in ("--set", "=".join(map(str, item)))),
    ]


def peak_of_training(train_paths, valid_paths, sizes, steps):
    with tempfile.TemporaryDirectory() as model_dir:
        return peak(train_command(train_paths, valid_paths, model_dir, sizes, steps))


def peaks(folder, data, steps):
    """The comparison of training, decoding, and a process that only imports TensorFlow."""
    train_paths = write_pairs(sentence_pairs(data, "train"), folder / "train")
    valid_paths = write_pairs(sentence_pairs(data, "valid"), folder / "valid")
    test_path, _ = write_pairs(sentence_pairs(data, "test"), folder / "test")
    model_dir = folder / "model"
    write_random_model(model_dir, sentence_pairs(data, "train"))
    translate = [sys.executable, "-m", "keras_transformer", "translate", "--model-dir", model_dir]
    contenders = {
        "import tensorflow": lambda: peak([sys.executable, "-c", "import tensorflow"]),
        "keras-transformer train": lambda: peak_of_training(train_paths, valid_paths, SIZES, steps),
        "keras-transformer translate": lambda: peak(translate, test_path),
    }
    return Comparison("peak of memory", "MB", contenders)


def growth(folder, num_lines):
    """The comparison of corpora of `num_lines` lines, a fifth and a 25th of them."""
    valid_paths = [write_lines(folder / f"lines-valid.{i}", VALID_PAIRS, seed=i) for i in range(2)]
    contenders = {}
    for size in (num_lines // 25, num_lines // 5, num_lines):
        paths = [write_lines(folder / f"lines-{size}.{i}", size, seed=i) for i in range(2)]
        contenders[f"{size:,} lines"] = lambda paths=paths: peak_of_training(
            paths, valid_paths, SMALL_SIZES, steps=1
        )
    return Comparison("peak of the input pipeline", "MB", contenders, reference=f"{num_lines:,} lines")


def main():
    options_parser = parser("benchmarks.memory", __doc__.splitlines()[0])
    add_data_option(options_parser)
    options_parser.add_argument("--steps", type=int, default=100, metavar="N", help="of the training run (100)")
    options_parser.add_argument(
        "--lines", type=int, default=5_000_000, metavar="N", help="lines of the largest corpus (5,000,000)"
    )
    options_parser.set_defaults(repeats=1)
    options = options_parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        comparisons = [peaks(folder, options.data, options.steps), growth(folder, options.lines)]
        take_turns(comparisons, options.repeats)
    settings = {"data": options.data or "embedded corpus", "steps": options.steps, "lines": options.lines}
    publish(options.json, comparisons, **settings)


if __name__ == "__main__":
    main()
