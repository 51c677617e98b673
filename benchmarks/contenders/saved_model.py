"""The exported SavedModel, in a process that imports TensorFlow, what its graph's operations need, and no more."""

import json

import tensorflow as tf
import tensorflow_text  # noqa: F401, the tokenizer's operations

from benchmarks.decoding_task import DecodingTask, parser
from benchmarks.processes import versions


def main():
    options_parser = parser(__doc__.splitlines()[0])
    options_parser.add_argument("--precision", default="float32")
    # As a server has it by --tensorflow_intra_op_parallelism=1.
    options_parser.add_argument("--threads", type=int, default=1, metavar="N", help="of one operation")
    options = options_parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    task = DecodingTask(options.task)
    served = tf.saved_model.load(str(task.saved_model(options.precision, options.beam_size)))
    signature = served.signatures["serving_default"]

    def translate(request):
        answer = signature(text=tf.constant(request))
        return [text.decode() for text in answer["text"].numpy()], answer["score"].numpy().tolist()

    print(json.dumps(task.measure(translate, versions("tensorflow", "tensorflow-text"), options)))


if __name__ == "__main__":
    main()
