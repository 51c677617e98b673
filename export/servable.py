"""The translator as a SavedModel, with which TensorFlow Serving answers text with text."""

import os
import pathlib
import re
from typing import Annotated

import tensorflow as tf

from keras_transformer.runtime.native_log import silenced
from keras_transformer.tensors import Tensor
from keras_transformer.translation import Translator

from .versions import PROBES, publish
from .warmup import write_warmup_requests


class Servable(tf.Module):
    """What is saved: the weights, the tokenizers and the translator's graph, with one signature.

    The Keras model itself is not tracked: TensorFlow Serving and the C API load a SavedModel in session mode, in which
    the variables of a tracked Keras model are not found.

    Args:
        translator: Translator.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        self.weights = [variable.value for variable in translator.model.variables]
        self.tokenizers = list(translator.tokenizers)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
        def translate(text: Annotated[Tensor, "string (batch,)"]) -> dict[str, Tensor]:
            found = translator.search(text)
            return {"text": found.texts[:, 0], "score": found.scores[:, 0]}

        self.translate = translate


def export_servable(translator: Translator, output: str | os.PathLike[str], version: int | None = None) -> pathlib.Path:
    """Writes `output/<version>/`, a SavedModel from `text` (string, (batch,)) to `text` and `score`.

    The directory appears when it is complete and has translated some texts as the translator does. It also holds the
    requests by which TensorFlow Serving warms up.

    Args:
        translator: Translator.
        output: str or path of the directory of the model's versions.
        version: int or None. Defaults to one more than the highest version.

    Returns:
        The path of the version's directory.

    Raises:
        ConfigError: The version exists or is not positive.
        OSError: A file cannot be written.
    """

    def write(directory: pathlib.Path) -> None:
        servable = Servable(translator)
        try:
            tf.saved_model.save(
                servable,
                str(directory),
                signatures={"serving_default": servable.translate.get_concrete_function()},
            )
            write_warmup_requests(directory)
        except tf.errors.OpError as error:
            # Such as a full disk.
            reason = re.sub(r"{{.*?}} | \[Op:\w+\]", "", error.message.splitlines()[0])
            raise OSError(f"{output}: the SavedModel cannot be written: {reason}") from None
        _verify(directory, translator)

    return publish(output, version, write)


def _verify(path: pathlib.Path, translator: Translator) -> None:
    # The tokenizer's operation writes to standard error when it is loaded.
    with silenced():
        served_model = tf.saved_model.load(str(path))
    answer = served_model.signatures["serving_default"](text=tf.constant(PROBES))
    served = [text.decode("utf-8") for text in answer["text"].numpy()]
    expected = translator(PROBES)
    if served != expected:
        raise RuntimeError(f"the SavedModel translates {served}, the translator {expected}")
