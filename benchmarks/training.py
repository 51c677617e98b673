"""Training speed compared with other libraries: target tokens per second, without padding.

    python -m benchmarks.training --data multi30k --json training.json

All contenders train a model of the same sizes on the same batches, those of `keras-transformer
train`, for one epoch after a warm-up. The target tokens are those that the loss counts: subwords
and end tokens. With `--isa avx2`, bfloat16 is left out.

    keras-transformer train    the command, with its input pipeline (contenders/train_command.py)
    stock Keras                a model of Keras' own layers, with `compile` and `fit`
                               (contenders/stock_keras.py)
    PyTorch                    `nn.Transformer`, eager and compiled (contenders/pytorch.py)
    matrix products            only the matrix products of each step, an upper bound for the others
                               (contenders/matrix_products.py): one after another on all cores, or
                               with the rows of a batch divided among the cores
"""

import os
import tempfile

from benchmarks.command import SIZES, settings_of
from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.machine import NO_BFLOAT16, is_limited_to_avx2
from benchmarks.processes import Contender, contender, skipped
from benchmarks.text import GENERATED, add_data_option, sentence_pairs, vocab_size_for
from benchmarks.training_task import prepare
from keras_transformer.config.values import Precision
from keras_transformer.errors import Error

TRAIN_COMMAND = "keras-transformer train"
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# The command has to validate; that is not timed.
NUM_VALID_PAIRS = 16


def contenders(task_path: str, precision: Precision) -> dict[str, Contender]:
    """Returns the contenders by name; `task_path` is the directory of a `TrainingTask`."""

    def run(module: str, *arguments: object, **environment: str) -> Contender:
        if precision == "bfloat16" and is_limited_to_avx2():
            return skipped(NO_BFLOAT16)
        return contender(module, task_path, "--precision", precision, *arguments, **environment)

    # The command turns on oneDNN's operations, which `--isa avx2` turns off; its upper bound has
    # to do the same.
    def run_with_onednn(module: str, *arguments: object) -> Contender:
        return run(module, *arguments, TF_ENABLE_ONEDNN_OPTS="1")

    return {
        TRAIN_COMMAND: run_with_onednn("train_command"),
        "stock Keras": run("stock_keras"),
        "PyTorch, eager": run("pytorch"),
        "PyTorch, compiled": run("pytorch", "--compile"),
        "matrix products": run_with_onednn("matrix_products"),
        "matrix products, by core": run_with_onednn(
            "matrix_products", "--parts", len(os.sched_getaffinity(0))
        ),
    }


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.training", __doc__)
    add_data_option(parser)
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="train on the first N sentence pairs only"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as path:
        try:
            task = prepare(
                path,
                sentence_pairs(options.data, "train", options.pairs),
                sentence_pairs(options.data, "valid", NUM_VALID_PAIRS),
                settings_of(SIZES, vocab_size_for(options.data), steps=1),
            )
        except Error as error:
            parser.error(str(error))
        comparisons = [
            Comparison(
                f"training, {precision}",
                "target tokens/s",
                contenders(path, precision),
                TRAIN_COMMAND,
            )
            for precision in PRECISIONS
        ]
        measure(comparisons, options.repeats)
        facts = task.facts
    print(
        f"{facts['pairs']:,} sentence pairs, {facts['target_tokens']:,} target tokens, "
        f"{facts['steps']:,} steps, {facts['padding']:.1%} padding"
    )
    publish(options.json, comparisons, data=options.data or GENERATED, **facts)


if __name__ == "__main__":
    main()
