"""Training speed compared with other libraries: target tokens per second, without padding, after a warm-up.

    python -m benchmarks.training --data multi30k --opennmt opennmt/bin/python --json training.json

All contenders train a model of the same sizes on the same text for one epoch after a warm-up. The batches are those of
`keras-transformer train`, unless a contender makes its own. The target tokens are those that the loss counts: subwords
and end tokens. With `--isa avx2`, bfloat16 is left out.

    keras-transformer train     the command, with its input pipeline (contenders/train_command.py)
    stock Keras                 a model of Keras' own layers, with `compile` and `fit` (contenders/stock_keras.py)
    PyTorch                     `nn.Transformer`, eager and compiled (contenders/pytorch.py)
    OpenNMT-tf                  its own trainer, which makes its own batches (contenders/opennmt_tf.py)
    matrix products             only the matrix products of each step, an upper bound for any of the others
                                (contenders/matrix_products.py): one after another on all cores, or with the rows of a
                                batch divided among the cores

OpenNMT-tf needs an environment of its own, with Python 3.11:

    pip install OpenNMT-tf==2.32.0 'tensorflow==2.12.*' 'numpy<1.24' jax==0.4.13 jaxlib==0.4.13
"""

import os
import tempfile

from benchmarks.comparison import (
    Comparison,
    add_contender_options,
    best_of,
    make_parser,
    measure,
    parse_options,
    publish,
    select,
)
from benchmarks.machine import NO_BFLOAT16, is_limited_to_avx2
from benchmarks.model import SIZES, vocab_size_for
from benchmarks.processes import Contender, contender, opennmt_contender, skipped
from benchmarks.text import GENERATED, add_data_option, sentence_pairs
from benchmarks.training_task import prepare
from keras_transformer.config.precision import Precision

TRAIN_COMMAND = "keras-transformer train"
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
TOKENS_PER_BATCH = 3000
# The command has to validate; that is not timed.
NUM_VALID_PAIRS = 16


def contenders(task_path: str, precision: Precision, opennmt: str | None) -> dict[str, Contender]:
    """Returns the contenders by name.

    Args:
        task_path: str. Directory of a `TrainingTask`.
        precision: "float32" or "bfloat16".
        opennmt: str or None. Python interpreter of an environment with OpenNMT-tf.
    """

    def run(module: str, *arguments: object, **environment: str) -> Contender:
        if precision == "bfloat16" and is_limited_to_avx2():
            return skipped(NO_BFLOAT16)
        return contender(module, task_path, "--precision", precision, *arguments, **environment)

    # The command turns on oneDNN's operations, which `--isa avx2` turns off. So does its upper bound.
    def run_with_onednn(module: str, *arguments: object) -> Contender:
        return run(module, *arguments, TF_ENABLE_ONEDNN_OPTS="1")

    if precision == "float32":
        opennmt_tf = opennmt_contender("opennmt_tf", task_path, python=opennmt)
    else:
        opennmt_tf = skipped("trains only in float32 on a CPU")
    return {
        TRAIN_COMMAND: run_with_onednn("train_command"),
        "stock Keras": run("stock_keras"),
        "PyTorch, eager": run("pytorch"),
        "PyTorch, compiled": run("pytorch", "--compile"),
        "OpenNMT-tf": opennmt_tf,
        "matrix products": run_with_onednn("matrix_products"),
        "matrix products, by core": run_with_onednn("matrix_products", "--parts", len(os.sched_getaffinity(0))),
    }


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.training", __doc__)
    add_data_option(parser)
    add_contender_options(parser)
    parser.add_argument("--pairs", type=int, metavar="N", help="train on the first N sentence pairs only")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="measure only this precision")
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as path:
        comparisons = [
            Comparison(
                f"training, {precision}",
                "target tokens/s",
                contenders(path, precision, options.opennmt),
                TRAIN_COMMAND,
            )
            for precision in options.precision or PRECISIONS
        ]
        try:
            comparisons = select(comparisons, options.only)
            task = prepare(
                path,
                sentence_pairs(options.data, "train", options.pairs),
                sentence_pairs(options.data, "valid", NUM_VALID_PAIRS),
                vocab_size=vocab_size_for(options.data),
                sizes=SIZES,
                tokens_per_batch=TOKENS_PER_BATCH,
            )
        except ValueError as error:
            parser.error(str(error))
        measure(comparisons, options.repeats)
        facts = task.facts
    if len(comparisons) > 1:
        comparisons.append(best_of(comparisons, "training, each in its best precision"))
    print(
        f"{facts['pairs']:,} sentence pairs, {facts['target_tokens']:,} target tokens, "
        f"{facts['steps']:,} steps, {facts['padding']:.1%} padding"
    )
    publish(options.json, comparisons, data=options.data or GENERATED, **facts)


if __name__ == "__main__":
    main()
