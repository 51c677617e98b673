"""A model card: what an operator wants to know of a servable, as Markdown beside it."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from importlib import metadata

from keras_transformer import __version__
from keras_transformer.config.signature_names import SignatureName
from keras_transformer.translation import Translator
from keras_transformer.translation.documents import MAX_SENTENCES, MAX_TOKENS

from .signatures import SIGNATURES

_PACKAGES = ("tensorflow", "tensorflow-text", "keras")
# What `make test-servers` tries, with the tensorflow-text of each.
TRIED = {"2.19.1": "2.19.0", "2.20.0": "2.20.1", "2.21.0": "2.21.1"}


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a translator does not know of itself.

    Args:
        languages: such as "en-de". Defaults to None: unknown.
        license: the license of the weights. Defaults to None: unknown.
        scores: scores with their signatures, and the text that they were measured on. Defaults to none.
        training: the text that it was trained on, and how long. Defaults to None: unknown.
    """

    languages: str | None = None
    license: str | None = None
    scores: Sequence[str] = ()
    training: str | None = None


def model_card(
    translator: Translator, saved_model: pathlib.Path, signatures: Sequence[SignatureName], facts: Facts
) -> str:
    """Returns the model card of a translator's SavedModel, which answers these signatures."""
    model, decoding, tokenizers = translator.model.config, translator.decoding, translator.tokenizers
    weights = saved_model / "variables" / "variables.data-00000-of-00001"
    with open(weights, "rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    encoder_layers, decoder_layers = model.depths
    search = (
        "greedy"
        if decoding.beam_size == 1
        else f"beam of {decoding.beam_size}, length penalty {decoding.length_penalty:g}"
    )
    table = {
        "Languages": facts.languages or "unknown",
        "Training": facts.training or "unknown",
        "License of the weights": facts.license or "unknown",
        "Parameters": f"{model.num_parameters:,}, {translator.precision}, {weights.stat().st_size / 1e6:,.1f} MB",
        "Layers": f"{encoder_layers} of the encoder, {decoder_layers} of the decoder, d_model {model.d_model}",
        "Vocabulary": f"{model.source_vocab_size:,} tokens"
        + ("" if tokenizers.is_shared else f" of the source language, {model.target_vocab_size:,} of the target"),
        "Search": search,
        **({"Tag": f"{decoding.tag}, in front of every source"} if decoding.tag else {}),
        "Longest input": f"{model.max_length:,} tokens with the end token; of a longer text the end is not read, and "
        "`truncated` is true",
        "Longest document": f"{MAX_SENTENCES:,} sentences, or those that reach {MAX_TOKENS:,} tokens; divided by the "
        f"rules for {translator.language or 'unknown languages'}",
        "Longest output": f"{decoding.max_extra_tokens:,} tokens more than the input, at most {model.max_length:,}",
        "SHA-256 of the weights": f"`{checksum}` (`variables/{weights.name}`)",
        "Written by": ", ".join(
            [f"keras3-transformer {__version__}", *(f"{name} {metadata.version(name)}" for name in _PACKAGES)]
        ),
        "Servers": "SavedModels of this release were tried with TensorFlow "
        + ", ".join(f"{version} (tensorflow-text {text})" for version, text in TRIED.items()),
    }
    lines = [
        f"# Translation model{f' {facts.languages}' if facts.languages else ''}",
        "",
        "A SavedModel for TensorFlow Serving. Tokenizers and search are in its graph.",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {_cell(value)} |" for name, value in table.items()),
        "",
        "## Quality",
        "",
        *([f"- {score}" for score in facts.scores] or ["Not measured."]),
        "",
        "## Signatures",
        "",
        "Texts are UTF-8; bytes that are not are read as U+FFFD.",
    ]
    for name in signatures:
        signature = SIGNATURES[name]
        lines += ["", f"### `{name}`", "", signature.description, "", "| | |", "| --- | --- |"]
        lines += [
            f"| input `{key}` | {spec.dtype.name} ({', '.join(['batch', 'length'][: len(spec.shape)])}"
            f"{',' if len(spec.shape) == 1 else ''}) |"
            for key, spec in signature.inputs.items()
        ]
        lines += [f"| output `{key}` | {_cell(value)} |" for key, value in signature.outputs.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
