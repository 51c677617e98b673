"""The exported SavedModel, in a process that imports only TensorFlow and the operations that the graph needs."""

import json

import tensorflow as tf
import tensorflow_text  # noqa: F401, the tokenizer's operations

from benchmarks.decoding_task import DecodingTask, make_parser
from benchmarks.processes import versions


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    # TensorFlow Serving is set to the same by --tensorflow_intra_op_parallelism=1.
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of an operation (%(default)s)")
    parser.add_argument("--shortlist", action="store_true", help="search only the pieces of the model's shortlist")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    task = DecodingTask(options.task)
    served = tf.saved_model.load(str(task.saved_model(options.precision, options.beam_size, options.shortlist)))
    signature = served.signatures["serving_default"]

    def translate(request: list[str]) -> tuple[list[str], list[float]]:
        answer = signature(text=tf.constant(request))
        return [text.decode() for text in answer["text"].numpy()], answer["score"].numpy().tolist()

    print(json.dumps(task.measure(translate, versions("tensorflow", "tensorflow-text"), options)))


if __name__ == "__main__":
    main()
