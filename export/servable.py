"""Exports a translator as a SavedModel that accepts and returns text, for TensorFlow Serving."""

import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer import __version__
from keras_transformer.checks import require
from keras_transformer.config.values import SignatureName, language_of
from keras_transformer.tensors import Tensor
from keras_transformer.translation import Translator
from keras_transformer.translation.documents import MAX_SENTENCES, MAX_TOKENS
from keras_transformer.translation.graph import TranslationGraph
from keras_transformer.translation.sentences import ABBREVIATIONS
from keras_transformer.translation.shapes import SearchShapes

from .proof import verify
from .publishing import Facts, publish
from .signatures import SIGNATURES, Signature, signatures_of
from .warmup import requests_that_compile, write_warmup_requests

_PACKAGES = ("tensorflow", "tensorflow-text", "keras")
# The TensorFlow releases that `make test-servers` tests, each with its tensorflow-text.
TRIED = {
    "2.16.1": "2.16.1",
    "2.17.0": "2.17.0",
    "2.18.0": "2.18.0",
    "2.19.1": "2.19.0",
    "2.20.0": "2.20.1",
    "2.21.0": "2.21.1",
}
# TensorFlow Serving compiles on a CPU only with this flag.
XLA_FLAG = "--xla_cpu_compilation_enabled=true"
# A server without the flag reports this error.
DISABLED = "XLA compilation disabled"
CARD = pathlib.PurePath("assets.extra", "README.md")


class Servable(tf.Module):
    """The content of a SavedModel: weights, tokenizers, and a graph for each signature.

    The Keras model is not tracked. TensorFlow Serving and the C API load a SavedModel in session
    mode, in which the variables of a tracked Keras model are not found.

    Args:
        translator: The translator to save.
        signatures: The signatures by name. Defaults to `SIGNATURES`.
        shapes: Shapes for which searches are compiled. Defaults to None: searches are not compiled.
    """

    def __init__(
        self,
        translator: Translator,
        signatures: Mapping[SignatureName, Signature] = SIGNATURES,
        shapes: SearchShapes | None = None,
    ) -> None:
        super().__init__()
        # Signatures with the same function share a graph.
        chosen = {signature.function: signature for signature in signatures.values()}
        graph = translator.graph.for_serving(shapes)
        traced = {
            function: graph_of(signature, graph, with_hidden=True).get_concrete_function()
            for function, signature in chosen.items()
        }
        self.weights = graph.weights
        self.functions = {
            name: traced[signature.function] for name, signature in signatures.items()
        }
        # If no signature accepts or returns text, the SavedModel loads without tensorflow-text.
        self.tokenizers = []
        inputs_and_outputs = [(function.inputs, function.outputs) for function in traced.values()]
        if any(tensor.dtype == tf.string for tensor in tf.nest.flatten(inputs_and_outputs)):
            self.tokenizers = list(translator.tokenizers)


def graph_of(signature: Signature, graph: TranslationGraph, with_hidden: bool = False) -> Any:
    """Returns a signature as a `tf.function` with named inputs.

    Args:
        with_hidden: Whether it also returns the hidden outputs. Defaults to False.
    """

    @functools.wraps(signature.function)
    def compute(*arguments: Any, **inputs: Tensor) -> dict[str, Tensor]:
        outputs = signature.function(*arguments, **inputs)
        return outputs if with_hidden else {name: outputs[name] for name in signature.outputs}

    return tf.function(
        functools.partial(compute, graph),
        input_signature=list(signature.inputs.values()),
        autograph=False,
    )


def export_servable(
    translator: Translator,
    output: str | os.PathLike[str],
    version: int | None = None,
    signatures: Sequence[SignatureName] | None = None,
    serving_default: SignatureName = "translate",
    verified: bool = True,
    facts: Facts | None = None,
    shapes: SearchShapes | None = None,
) -> pathlib.Path:
    """Writes a SavedModel with text inputs and outputs to `output/<version>/` and returns the path.

    The directory appears only after the SavedModel, in a separate process, has returned the same
    results as the translator for test texts. Its folder `assets.extra` contains warm-up requests
    for TensorFlow Serving and a model card, which is also copied to `output/README.md`.

    Args:
        version: Version number. Defaults to None: one more than the highest version.
        signatures: Names of signatures from `export.signatures.signatures_of(translator)`. Defaults
            to None: all of them.
        serving_default: The signature that is also called `serving_default`. Defaults to
            "translate".
        verified: Whether to check the SavedModel before it appears. Defaults to True.
        facts: Facts for the model card. Defaults to None: all facts are unknown.
        shapes: Shapes for which the server compiles searches. You must start TensorFlow Serving
            with `XLA_FLAG`; otherwise, it cannot load the SavedModel. Defaults to None: nothing is
            compiled.

    Raises:
        ConfigError: The version exists or is not positive, a signature does not exist, or
            `serving_default` is given but is not among the signatures.
        OSError: A file cannot be written.
        VerificationError: The SavedModel and the translator return different results.
    """
    known = signatures_of(translator)
    signatures = list(known) if signatures is None else signatures
    rule = f"among {', '.join(known)}"
    for name in signatures:
        require(name in known, "signatures", rule, name)
    require(len(signatures) > 0, "signatures", "at least one name", signatures)
    require(serving_default in known, "serving_default", rule, serving_default)
    is_used = serving_default == "translate" or "serving_default" in signatures
    rule = "translate unless signatures include serving_default"
    require(is_used, "serving_default", rule, serving_default)
    known = known | {"serving_default": known[serving_default]}
    chosen = {name: known[name] for name in signatures}
    requests = {}
    if shapes is not None:
        shapes = shapes.up_to(translator.model.config.max_length)
        requests = requests_that_compile(translator, shapes, chosen)

    def write(directory: pathlib.Path) -> None:
        servable = Servable(translator, chosen, shapes)
        try:
            tf.saved_model.save(servable, str(directory), signatures=servable.functions)
            edit_signatures(directory / "saved_model.pb", chosen)
            write_warmup_requests(directory, chosen, requests)
        except tf.errors.OpError as error:
            # The disk may be full, for example.
            reason = re.sub(r"{{.*?}} | \[Op:\w+\]", "", error.message.splitlines()[0])
            raise OSError(f"{output}: the SavedModel cannot be written: {reason}") from None
        if verified:
            verify(directory, translator, chosen, requests)
        card = model_card(translator, directory, chosen, facts or Facts(), shapes)
        (directory / CARD).write_text(card, encoding="utf-8")

    return publish(output, version, write, CARD)


def edit_signatures(path: pathlib.Path, signatures: Mapping[SignatureName, Signature]) -> None:
    """Removes the hidden outputs, and makes signatures with the same function share tensors.

    A server then optimizes and warms up their graph only once.
    """
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    definitions = saved_model.meta_graphs[0].signature_def
    first: dict[Any, str] = {}
    for name, signature in signatures.items():
        definitions[name].CopyFrom(definitions[first.setdefault(signature.function, name)])
        for output in {*definitions[name].outputs} - {*signature.outputs}:
            del definitions[name].outputs[output]
    path.write_bytes(saved_model.SerializeToString())


def model_card(
    translator: Translator,
    saved_model: pathlib.Path,
    signatures: Mapping[SignatureName, Signature],
    facts: Facts,
    shapes: SearchShapes | None = None,
) -> str:
    """Returns the model card of a translator's SavedModel with the given signatures."""
    model = translator.model.config
    decoding = translator.decoding
    weights = saved_model / "variables" / "variables.data-00000-of-00001"
    with open(weights, "rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    megabytes = weights.stat().st_size / 1e6
    encoder_layers, decoder_layers = model.depths
    vocabulary = f"{model.source_vocab_size:,} tokens"
    if not translator.tokenizers.is_shared:
        vocabulary += f" of the source language, {model.target_vocab_size:,} of the target"
    search = "greedy"
    if decoding.beam_size > 1:
        search = f"beam of {decoding.beam_size}, length penalty {decoding.length_penalty:g}"
    packages = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    tried = [f"{version} (tensorflow-text {text})" for version, text in TRIED.items()]
    properties = {
        "Languages": facts.languages or "unknown",
        "Training": facts.training or "unknown",
        "License of the weights": facts.license or "unknown",
        "Parameters": f"{model.num_parameters:,}, {translator.precision}, {megabytes:,.1f} MB",
        "Layers": (
            f"{encoder_layers} of the encoder, {decoder_layers} of the decoder, "
            f"d_model {model.d_model}"
        ),
        "Vocabulary": vocabulary,
        "Unicode": {
            "none": "no normalization",
            "nfc": "texts are normalized to NFC",
            "nfkc": "texts are normalized to NFKC",
        }[translator.tokenizers.source.normalization],
        "Search": search,
    }
    if decoding.tag:
        properties["Tag"] = f"{decoding.tag}, in front of every source"
    if shapes is not None:
        properties["Compiled searches"] = (
            f"batch sizes {_one_of(shapes.batch_sizes)}, padded to {_one_of(shapes.lengths)} "
            f"source tokens; start TensorFlow Serving with `{XLA_FLAG}`; otherwise it cannot "
            f"load this model: `INTERNAL: {DISABLED}`"
        )
    properties |= {
        "Longest input": (
            f"{model.max_length:,} tokens with the end token; longer texts are truncated, "
            "and `truncated` is true"
        ),
        "Longest document": (
            f"{MAX_SENTENCES:,} sentences, or as many as begin within {MAX_TOKENS:,} tokens; "
            f"split into sentences by the rules for {_language_of_rules(translator.language)}"
        ),
        "Longest output": (
            f"{decoding.max_extra_tokens:,} tokens more than the input, "
            f"at most {model.max_length:,}"
        ),
        "SHA-256 of the weights": f"`{checksum}` (`variables/{weights.name}`)",
        "Written by": ", ".join([f"keras3-transformer {__version__}", *packages]),
        "Servers": (f"SavedModels of this release were tested with TensorFlow {', '.join(tried)}"),
    }
    title = "# Translation model"
    if facts.languages:
        title += f" {facts.languages}"
    lines = [
        title,
        "",
        "A SavedModel for TensorFlow Serving. Tokenizers and search are in its graph.",
        "",
        *_table(properties),
        "",
        "## Quality",
        "",
        *([f"- {score}" for score in facts.scores] or ["Not measured."]),
        "",
        "## Signatures",
        "",
        "Texts are UTF-8; invalid bytes become U+FFFD.",
    ]
    for name, signature in signatures.items():
        tensors = {}
        for key, spec in signature.inputs.items():
            shape = "(batch,)" if spec.shape.rank == 1 else "(batch, length)"
            tensors[f"input `{key}`"] = f"{spec.dtype.name} {shape}"
        for key, description in signature.outputs.items():
            tensors[f"output `{key}`"] = description
        lines += ["", f"### `{name}`", "", signature.description, "", *_table(tensors)]
    return "\n".join(lines) + "\n"


def _one_of(numbers: Sequence[int]) -> str:
    *first, last = [str(number) for number in numbers]
    return f"{', '.join(first)} or {last}" if first else last


def _language_of_rules(tag: str | None) -> str:
    language = language_of(tag)
    return language if language in ABBREVIATIONS else "unknown languages"


def _table(rows: Mapping[str, str]) -> list[str]:
    cells = {name: " ".join(text.split()).replace("|", "\\|") for name, text in rows.items()}
    return ["| | |", "| --- | --- |", *(f"| {name} | {cell} |" for name, cell in cells.items())]
