"""The exported SavedModel in a session, as in TensorFlow Serving.

It imports only the packages that the graph needs.
"""

import json

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, the tokenizer's operations
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from benchmarks.decoding_task import DecodingTask, make_parser
from benchmarks.processes import versions


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    # TensorFlow Serving is set to the same by --tensorflow_intra_op_parallelism=1.
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of an operation (%(default)s)"
    )
    parser.add_argument(
        "--shortlist", action="store_true", help="search only the pieces of the model's shortlist"
    )
    # In TensorFlow Serving, --xla_cpu_compilation_enabled=true.
    parser.add_argument(
        "--compile", action="store_true", help="compile searches, in the warm-up (float32)"
    )
    options = parser.parse_args()
    task = DecodingTask(options.task)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=options.threads)
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(config=config)
        path = task.saved_model(
            options.precision, options.beam_size, options.shortlist, options.compile
        )
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = meta_graph.signature_def["serving_default"]
    # `Session.run` looks up its feeds and fetches in every call, which takes 0.6 ms; a server does
    # not.
    fetched = [signature.outputs[name].name for name in ("text", "score")]
    run = session._make_callable_from_options(
        CallableOptions(feed=[signature.inputs["text"].name], fetch=fetched)
    )

    def translate(request: list[str]) -> tuple[list[str], list[float]]:
        texts, scores = run(np.array(request, object))
        return [text.decode() for text in texts], scores.tolist()

    print(json.dumps(task.measure(translate, versions("tensorflow", "tensorflow-text"), options)))


if __name__ == "__main__":
    main()
