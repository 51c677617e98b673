"""The trained model without a cache of keys and values: each step runs the whole model on the whole prefix again.

The translator of the tensorflow.org tutorial works like this, one sentence at a time. Text processing, search and graph
are those of `Translator`.
"""

import json
import os
from typing import Any

import tensorflow as tf

from benchmarks.decoding_task import DecodingTask, make_parser
from benchmarks.processes import versions
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import Step
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import load_tokenizer
from keras_transformer.translation import Translator


class WholePrefixModel:
    """Implements the protocol of `keras_transformer.decoding` with a state of sources and prefixes only.

    Args:
        model: Transformer.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.config = model.config
        self.variables = model.variables

    def start_decoding(self, source: Any, beam_size: int = 1, max_length: Any = None) -> tuple[Step, Any]:
        """Prepares to decode; for the arguments see `keras_transformer.decoding.Decodable`."""
        batch_size = tf.shape(source)[0]
        # Without a length, a size that is not known statically, so that the prefixes may grow in a loop.
        length = 0 * batch_size if max_length is None else max_length

        def step(token_ids: Any, parents: Any, position: Any, state: Any) -> tuple[Any, Any]:
            source, prefixes = state
            prefixes = tf.gather(prefixes, parents, batch_dims=1)
            newest = token_ids[:, :, None]
            if max_length is None:
                prefixes = tf.concat([prefixes, newest], axis=2)
            else:
                prefixes = tf.where(tf.range(max_length) == position, newest, prefixes)
            target = tf.reshape(prefixes[:, :, : position + 1], [-1, position + 1])
            logits = self.model({"source": tf.repeat(source, beam_size, axis=0), "target": target}, training=False)
            return tf.reshape(logits[:, -1], [-1, beam_size, logits.shape[-1]]), (source, prefixes)

        return step, (source, tf.zeros([batch_size, beam_size, length], tf.int32))


def load(model_dir: str | os.PathLike[str], decoding: DecodingConfig) -> Translator:
    """Loads a translator as `Translator.load` does, but without a cache.

    Args:
        model_dir: str or path.
        decoding: DecodingConfig.
    """
    directory = ModelDir(model_dir)
    model = directory.load_model(directory.read_config().model)
    return Translator(WholePrefixModel(model), load_tokenizer(directory.path), decoding)


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument("--model-dir", metavar="DIR", required=True, help="directory of the trained model")
    options = parser.parse_args()
    task = DecodingTask(options.task)
    decoding = DecodingConfig(options.beam_size, length_penalty=0.0, max_extra_tokens=task.facts["max_length"])
    translator = load(options.model_dir, decoding)

    def translate(request: list[str]) -> tuple[list[str], list[float]]:
        texts, scores = zip(*(best[0] for best in translator.n_best(request, 1)), strict=True)
        return list(texts), list(scores)

    print(json.dumps(task.measure(translate, versions("keras", "tensorflow"), options, warmup_every=8)))


if __name__ == "__main__":
    main()
