"""The translator as a SavedModel, with which TensorFlow Serving answers text with text."""

import functools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.config.rules import require
from keras_transformer.config.signature_names import SignatureName
from keras_transformer.errors import ConfigError
from keras_transformer.translation import Translator

from .model_card import Facts, model_card
from .publishing import publish
from .requests import verify, write_warmup_requests
from .signatures import SIGNATURES, Signature

CARD = pathlib.PurePath("assets.extra", "README.md")


class Servable(tf.Module):
    """What is saved: the weights, the tokenizers and the translator's graphs, one for each signature.

    The Keras model itself is not tracked: TensorFlow Serving and the C API load a SavedModel in session mode, in which
    the variables of a tracked Keras model are not found.

    Args:
        signatures: names of `SIGNATURES`.

    Attributes:
        functions: the signatures' concrete functions by name.
    """

    def __init__(self, translator: Translator, signatures: Sequence[SignatureName] = tuple(SIGNATURES)) -> None:
        super().__init__()
        self.weights = translator.weights
        self.tokenizers = list(translator.tokenizers)
        self.candidates = translator.candidates
        # `serving_default` and `translate` share one graph.
        chosen = {SIGNATURES[name].function: SIGNATURES[name] for name in signatures}
        traced = {
            function: graph_of(signature, translator).get_concrete_function() for function, signature in chosen.items()
        }
        self.functions = {name: traced[SIGNATURES[name].function] for name in signatures}


def graph_of(signature: Signature, translator: Translator) -> Any:
    """Returns a signature as a `tf.function`, which is traced when it is first used; it takes its inputs by name."""
    return tf.function(
        functools.partial(signature.function, translator),
        input_signature=list(signature.inputs.values()),
        autograph=False,
    )


def export_servable(
    translator: Translator,
    output: str | os.PathLike[str],
    version: int | None = None,
    signatures: Sequence[SignatureName] = tuple(SIGNATURES),
    verified: bool = True,
    facts: Facts | None = None,
) -> pathlib.Path:
    """Writes `output/<version>/`, a SavedModel that answers texts with texts, and a model card, `output/README.md`.

    The directory appears when it is complete and, in a process of its own, has answered some texts as the translator
    does. In `assets.extra` it also holds the requests by which TensorFlow Serving warms up, and its model card.

    Args:
        translator: what is exported.
        output: the directory of the model's versions.
        version: defaults to one more than the highest version.
        signatures: names of `export.signatures.SIGNATURES`. Defaults to all.
        verified: whether to check what was written before it appears. Defaults to True.
        facts: Facts for the model card. Defaults to None: nothing is known.

    Returns:
        The path of the version's directory.

    Raises:
        ConfigError: The version exists or is not positive, or there is no such signature.
        OSError: A file cannot be written.
        VerificationError: The SavedModel answers otherwise than the translator.
    """
    for name in signatures:
        require(name in SIGNATURES, "signatures", f"among {', '.join(SIGNATURES)}", name)
    if not signatures:
        raise ConfigError("signatures must name at least one")

    def write(directory: pathlib.Path) -> None:
        servable = Servable(translator, signatures)
        try:
            tf.saved_model.save(servable, str(directory), signatures=servable.functions)
            _share_tensors(directory / "saved_model.pb")
            write_warmup_requests(directory, signatures)
        except tf.errors.OpError as error:
            # Such as a full disk.
            reason = re.sub(r"{{.*?}} | \[Op:\w+\]", "", error.message.splitlines()[0])
            raise OSError(f"{output}: the SavedModel cannot be written: {reason}") from None
        if verified:
            verify(directory, servable.functions, translator.precision)
        card = model_card(translator, directory, signatures, facts or Facts())
        (directory / CARD).write_text(card, encoding="utf-8")

    return publish(output, version, write, CARD)


def _share_tensors(path: pathlib.Path) -> None:
    """Makes signatures that are one use the same tensors: a server optimizes and warms up one graph for them."""
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    signatures = saved_model.meta_graphs[0].signature_def
    first: dict[Any, str] = {}
    for name in SIGNATURES:
        if name in signatures:
            signatures[name].CopyFrom(signatures[first.setdefault(SIGNATURES[name].function, name)])
    path.write_bytes(saved_model.SerializeToString())
