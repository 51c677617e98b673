"""Training speed beside the peers': unpadded target tokens per second, in steady state.

    python -m benchmarks.training --data multi30k --opennmt opennmt/bin/python --json training.json

Everybody trains the same model on the same text, cut into the same batches by the code of `keras-transformer train`,
for one epoch after a warm-up. A target's tokens are those the loss counts: its subwords and its end token, no
padding.

    keras-transformer train     the command itself, with its input pipeline (contenders/train_command.py)
    stock Keras                 the model of Keras' own layers, `compile` and `fit` (contenders/stock_keras.py)
    PyTorch                     `nn.Transformer`, eager and compiled (contenders/pytorch.py)
    OpenNMT-tf                  its own trainer, with batches of its own (contenders/opennmt_tf.py)
    matrix products             the step's matrix products alone, what no step exceeds (contenders/matrix_products.py):
                                one after another on all cores, or each core with its share of the rows

OpenNMT-tf needs an environment of its own, of Python 3.11:

    pip install OpenNMT-tf==2.32.0 'tensorflow==2.12.*' 'numpy<1.24' jax==0.4.13 jaxlib==0.4.13
"""

import os
import tempfile

from benchmarks.comparison import Comparison, best_of, parser, publish, take_turns
from benchmarks.model import SIZES, VOCAB_SIZE
from benchmarks.processes import contender, left_out
from benchmarks.text import add_data_option, sentence_pairs
from benchmarks.training_task import prepare

OURS = "keras-transformer train"
TOKENS_PER_BATCH = 3000
# Enough to validate on; validation is not timed.
VALID_PAIRS = 16


def contenders(task_path, precision, opennmt):
    """From names to what runs them once.

    Args:
        task_path: directory of a `TrainingTask`.
        precision: "float32" or "bfloat16".
        opennmt: the Python of OpenNMT-tf's environment, or None.
    """

    def run(module, *arguments):
        return contender(module, task_path, "--precision", precision, *arguments)

    if precision != "float32":
        opennmt_tf = left_out("it trains in float32 on a CPU")
    elif opennmt is None:
        opennmt_tf = left_out("give --opennmt, the Python of an environment that has it")
    else:
        opennmt_tf = contender("opennmt_tf", task_path, python=opennmt)
    return {
        OURS: run("train_command"),
        "stock Keras": run("stock_keras"),
        "PyTorch, eager": run("pytorch"),
        "PyTorch, compiled": run("pytorch", "--compile"),
        "OpenNMT-tf": opennmt_tf,
        "matrix products": run("matrix_products"),
        "matrix products, by core": run("matrix_products", "--parts", len(os.sched_getaffinity(0))),
    }


def main():
    options_parser = parser("benchmarks.training", __doc__.splitlines()[0])
    add_data_option(options_parser)
    options_parser.add_argument("--pairs", type=int, metavar="N", help="train on the first N sentence pairs alone")
    options_parser.add_argument("--opennmt", metavar="PYTHON", help="the Python of an environment with OpenNMT-tf")
    options_parser.add_argument(
        "--precision", action="append", choices=("float32", "bfloat16"), help="one of them alone"
    )
    options_parser.add_argument(
        "--only", action="append", metavar="NAME", help="measure this contender alone; may be given often"
    )
    options = options_parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        comparisons = []
        for precision in options.precision or ("float32", "bfloat16"):
            entered = contenders(path, precision, options.opennmt)
            if unknown := set(options.only or ()).difference(entered):
                options_parser.error(f"--only {unknown.pop()}: none of {', '.join(entered)}")
            entered = {name: run for name, run in entered.items() if name in (options.only or entered)}
            comparisons.append(Comparison(f"training, {precision}", "target tokens/s", entered, OURS))
        try:
            task = prepare(
                path,
                sentence_pairs(options.data, "train", options.pairs),
                sentence_pairs(options.data, "valid", VALID_PAIRS),
                vocab_size=VOCAB_SIZE,
                sizes=SIZES,
                tokens_per_batch=TOKENS_PER_BATCH,
            )
        except ValueError as error:
            options_parser.error(error)
        take_turns(comparisons, options.repeats)
        facts = task.facts
    if len(comparisons) > 1:
        comparisons.append(best_of(comparisons, "training, each in its best precision"))
    print(
        f"{facts['pairs']:,} sentence pairs, {facts['target_tokens']:,} target tokens, "
        f"{facts['steps']:,} steps, {facts['padding']:.1%} padding"
    )
    publish(options.json, comparisons, data=options.data or "embedded corpus", **facts)


if __name__ == "__main__":
    main()
