"""The translator as a SavedModel that TensorFlow Serving answers text with text with."""

import os
import pathlib
import re
import shutil

import tensorflow as tf

from keras_transformer.config import ConfigError

# Translated by the written model and by the translator before a version is published.
_PROBES = ["", "A dog runs.", "Zwei Männer 123 🙂", "b" * 300]


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

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def translate(text):
            translations, scores = translator.search(text)
            return {"text": translations[:, 0], "score": scores[:, 0]}

        self.translate = translate


def export_servable(translator, output, version=None):
    """Writes `output/<version>/`, a SavedModel from `text` (string, (batch,)) to `text` and `score`.

    The folder appears under its number when it is complete and has translated as the translator does; before that it
    has a name which TensorFlow Serving does not look at.

    Args:
        translator: a `Translator`.
        output: the folder of the model's versions.
        version: a number; one more than the highest that stands if None.

    Returns:
        The path of the version's folder.

    Raises:
        ConfigError: the version stands already or is not positive.
    """
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    if version is None:
        version = 1 + max(_versions(output), default=0)
    if version < 1:
        raise ConfigError(f"version must be positive; received {version}")
    final = output / str(version)
    if final.exists():
        raise ConfigError(f"{final}: this version stands already")
    temporary = output / f".writing-{os.getpid()}-{version}"
    try:
        servable = Servable(translator)
        tf.saved_model.save(
            servable,
            str(temporary),
            signatures={"serving_default": servable.translate.get_concrete_function()},
        )
        _verify(temporary, translator)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _versions(output):
    return [int(path.name) for path in output.iterdir() if re.fullmatch(r"[0-9]+", path.name)]


def _verify(path, translator):
    answer = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(_PROBES))
    served = [text.decode("utf-8") for text in answer["text"].numpy()]
    expected = translator(_PROBES)
    if served != expected:
        raise RuntimeError(f"the SavedModel translates {served}, the translator {expected}")
