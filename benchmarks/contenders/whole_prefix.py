"""Our weights in a translator that keeps nothing: each step runs the whole model over the whole prefix again.

So the tensorflow.org tutorial translates, one sentence at a time. The text, the search and the graph around it are
the real translator's.
"""

import json

import tensorflow as tf

from benchmarks.decoding_task import DecodingTask, parser
from benchmarks.processes import versions
from keras_transformer.config import DecodingConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.tokenizers import load_tokenizer
from keras_transformer.translator import Translator


class WholePrefix:
    """A `Transformer` to a `Translator`, but its state is the source and the prefixes.

    Args:
        model: a `Transformer`.
    """

    def __init__(self, model):
        self.model = model
        self.config = model.config
        self.variables = model.variables

    def init_state(self, source, beam_size, max_length):
        return source, tf.zeros([tf.shape(source)[0], beam_size, max_length], tf.int32)

    def output_kernel(self):
        return None

    def decode_step(self, token_ids, parents, position, state, grow, output_kernel):
        source, prefixes = state
        beam_size = token_ids.shape[1]
        prefixes = tf.gather(prefixes, parents, batch_dims=1)
        prefixes = tf.concat([prefixes, token_ids[:, :, None]], axis=2)
        target = tf.reshape(prefixes, [-1, position + 1])
        logits = self.model({"source": tf.repeat(source, beam_size, axis=0), "target": target}, training=False)
        return tf.reshape(logits[:, -1], [-1, beam_size, logits.shape[-1]]), (source, prefixes)


def load(model_dir, decoding):
    """A translator as `Translator.load` gives it, but one that keeps nothing."""
    model_dir = ModelDir(model_dir)
    return Translator(WholePrefix(model_dir.load_model()), load_tokenizer(model_dir.path), decoding)


def main():
    options_parser = parser(__doc__.splitlines()[0])
    options_parser.add_argument("--model-dir", required=True)
    options = options_parser.parse_args()
    task = DecodingTask(options.task)
    search = DecodingConfig(options.beam_size, length_penalty=0.0, max_extra_tokens=task.facts["max_length"])
    translator = load(options.model_dir, search)

    def translate(request):
        return zip(*(best[0] for best in translator.n_best(request, 1)))

    measured = task.measure(translate, versions("keras", "tensorflow"), options, warmup_every=8)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
