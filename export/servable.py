"""The translator as a SavedModel that TensorFlow Serving answers text with text with."""

import tensorflow as tf

from .versions import PROBES, publishing, version_path
from .warmup import write_warmup_requests


class Servable(tf.Module):
    """What is saved: the weights, the tokenizer and the translator's graph, with one signature.

    The Keras model itself is not tracked: TensorFlow Serving and the C API load a SavedModel in session mode, where the
    variables of a tracked Keras model are not found.

    Args:
        translator: a `Translator`.
    """

    def __init__(self, translator):
        super().__init__()
        self.weights = [variable.value for variable in translator.model.variables]
        self.tokenizer = translator.tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
        def translate(text):
            translations, scores = translator.search(text)
            return {"text": translations[:, 0], "score": scores[:, 0]}

        self.translate = translate


def export_servable(translator, output, version=None):
    """Writes `output/<version>/`, a SavedModel from `text` (string, (batch,)) to `text` and `score`.

    The folder appears under its number when it is complete and has translated as the translator does. It also holds
    the requests by which TensorFlow Serving warms up.

    Args:
        translator: a `Translator`.
        output: the folder of the model's versions.
        version: a number; one more than the highest that stands if None.

    Returns:
        The path of the version's folder.

    Raises:
        ConfigError: the version stands already or is not positive.
    """
    path = version_path(output, version)
    with publishing(path) as temporary:
        servable = Servable(translator)
        tf.saved_model.save(
            servable,
            str(temporary),
            signatures={"serving_default": servable.translate.get_concrete_function()},
        )
        write_warmup_requests(temporary)
        _verify(temporary, translator)
    return path


def _verify(path, translator):
    answer = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(PROBES))
    served = [text.decode("utf-8") for text in answer["text"].numpy()]
    expected = translator(PROBES)
    if served != expected:
        raise RuntimeError(f"the SavedModel translates {served}, the translator {expected}")
