"""The translator as a folder of Hugging Face's `transformers`: the inverse of `keras_transformer.pretrained`."""

import dataclasses
import json
import logging
import os
import pathlib
from typing import Any, Literal

import numpy as np
from keras import ops
from safetensors.numpy import save

from keras_transformer import __version__
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.model_dir.files import temporary_beside
from keras_transformer.models.transformer import Transformer, named_weights
from keras_transformer.pretrained import import_model
from keras_transformer.pretrained.hugging_face import ACTIVATIONS, EPSILON, their_name
from keras_transformer.pretrained.pretrained_model import interleaved, model_axis
from keras_transformer.rules import require
from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.translation import Translator

from .hugging_face_tokenizers import HuggingFaceTokenizers, convert_tokenizers, to_json
from .publishing import PROBES, Facts, publish, require_supported, transformer_of, verify_scores

_log = logging.getLogger(__name__)

_ARCHITECTURES = {"marian": "MarianMTModel", "blenderbot": "BlenderbotForConditionalGeneration"}


def export_hugging_face(
    translator: Translator, output: str | os.PathLike[str], version: int | None = None, facts: Facts | None = None
) -> pathlib.Path:
    """Writes `output/<version>/`, which `from_pretrained` of Hugging Face's `transformers` loads; returns its path.

    It holds float32 weights, the tokenizer, the search settings and a model card. A model that normalizes after each
    sublayer, as the paper's, becomes a `MarianMTModel`; one that normalizes first, a
    `BlenderbotForConditionalGeneration`, whose layers are the same. The folder appears when it is complete and
    `import_model` has read from it a model that scores some texts as the translator does.

    Args:
        version: defaults to one more than the highest version.
        facts: for the model card. Defaults to None: nothing is known.

    Raises:
        ConfigError: Hugging Face has no such model, or the version exists or is not positive.
        VerificationError: The model that was written gives other log probabilities than the translator.
    """
    model = transformer_of(translator)
    model_type = _model_type(model.config)
    tokenizers = convert_tokenizers(translator.tokenizers, model.config.max_length)
    _warn_of_search(translator)

    def write(directory: pathlib.Path) -> None:
        files = {
            "config.json": to_json(_config(model.config, model_type, tokenizers)),
            "generation_config.json": to_json(_generation(translator.decoding, model.config, tokenizers)),
            **tokenizers.files,
            # `transformers` refuses a file that does not name its format.
            "model.safetensors": save(_weights(model, tokenizers), metadata={"format": "pt"}),
            "README.md": _card(translator, _ARCHITECTURES[model_type], facts or Facts()).encode(),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
        _verify(directory, translator)

    return publish(output, version, write)


def _model_type(config: TransformerConfig) -> Literal["marian", "blenderbot"]:
    width, rest = divmod(config.d_model, config.num_heads)
    # The heads of Hugging Face's classes divide d_model evenly.
    key_dims = (None,) if rest else (None, width)
    require_supported(
        config,
        "Hugging Face",
        activation=ACTIVATIONS,
        positions=("sinusoidal", "tensor2tensor", "learned"),
        key_dim=key_dims,
        value_dim=key_dims,
    )
    require(config.epsilon <= EPSILON, "model.epsilon", f"at most the {EPSILON:g} of Hugging Face", config.epsilon)
    if not config.norm_first:
        return "marian"
    rule = "all for Hugging Face if norm_first=true"
    require(config.tie_embeddings == "all", "model.tie_embeddings", rule, config.tie_embeddings)
    return "blenderbot"


def _warn_of_search(translator: Translator) -> None:
    """Logs how Hugging Face's search differs from ours."""
    decoding = translator.decoding
    if decoding.beam_size > 1 and decoding.length_penalty:
        _log.warning(
            f"Hugging Face divides scores by length ** {decoding.length_penalty:g}, not by ((5 + length) / 6) ** "
            f"{decoding.length_penalty:g}: some translations differ; with --length-penalty 0, none do for this reason"
        )
    if translator.candidates is not None:
        _log.warning("Hugging Face searches the whole vocabulary, not the shortlist: some translations differ")
    if decoding.tag is not None:
        (tag_id,) = translator.graph.codec.tag_ids
        _log.warning(
            f"Hugging Face puts no tag in front of sources: for {decoding.tag}, token {tag_id} has to go before those "
            "of each source"
        )
    if decoding.placeholders:
        _log.warning("Hugging Face has no placeholders: URLs, {names} and tags may come out changed")


def _config(config: TransformerConfig, model_type: str, tokenizers: HuggingFaceTokenizers) -> dict[str, Any]:
    encoder_layers, decoder_layers = config.depths
    special = tokenizers.special_ids
    return {
        "activation_dropout": config.activation_dropout,
        "activation_function": config.activation,
        "architectures": [_ARCHITECTURES[model_type]],
        "attention_dropout": config.attention_dropout,
        "bos_token_id": None,
        "d_model": config.d_model,
        "decoder_attention_heads": config.num_heads,
        "decoder_ffn_dim": config.d_ff,
        "decoder_layers": decoder_layers,
        "decoder_start_token_id": special["start"],
        "decoder_vocab_size": len(tokenizers.target_ids),
        "dropout": config.dropout,
        "dtype": "float32",
        "encoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "encoder_layers": encoder_layers,
        # By default, Blenderbot repeats no three tokens of its source.
        **({"encoder_no_repeat_ngram_size": 0} if model_type == "blenderbot" else {}),
        "eos_token_id": special["end"],
        "forced_eos_token_id": None,
        "is_encoder_decoder": True,
        "max_position_embeddings": config.max_length,
        "model_type": model_type,
        "pad_token_id": special["pad"],
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "use_cache": True,
        "vocab_size": len(tokenizers.source_ids),
    }


def _generation(
    decoding: DecodingConfig, config: TransformerConfig, tokenizers: HuggingFaceTokenizers
) -> dict[str, Any]:
    special = tokenizers.special_ids
    forbidden = {
        "none": {special["pad"]} if tokenizers.pads_with_start else set(),
        "special": {special["pad"], special["start"]},
        "unknown": {special["pad"], special["start"], special["unk"]},
    }[decoding.forbidden_tokens]
    settings: dict[str, object] = {
        "decoder_start_token_id": special["start"],
        "do_sample": False,
        "eos_token_id": special["end"],
        "max_new_tokens": config.max_length,
        "num_beams": decoding.beam_size,
        "pad_token_id": special["pad"],
    }
    if decoding.beam_size > 1:
        # With "never", a search ends when no hypothesis can become better than the best.
        settings |= {"early_stopping": "never", "length_penalty": decoding.length_penalty}
    if forbidden:
        settings["bad_words_ids"] = [[token_id] for token_id in sorted(forbidden)]
    if decoding.no_repeat_ngram_size:
        settings["no_repeat_ngram_size"] = decoding.no_repeat_ngram_size
    if decoding.repetition_penalty != 1:
        settings["repetition_penalty"] = decoding.repetition_penalty
    if decoding.min_length > 1:
        # Hugging Face does not count the end token.
        settings["min_new_tokens"] = decoding.min_length - 1
    return dict(sorted(settings.items()))


def _weights(model: Transformer, tokenizers: HuggingFaceTokenizers) -> dict[str, np.ndarray]:
    config = model.config
    weights = {name: _in_their_order(name, variable) for name, variable in named_weights(model)}
    arrays = {"final_logits_bias": _logits_bias(weights.pop("logits/bias", None), tokenizers)[None]}
    source_ids, target_ids = list(tokenizers.source_ids), list(tokenizers.target_ids)
    target_embedding = weights.pop("target_embedding")[target_ids]
    if config.tie_embeddings == "all":
        arrays["model.shared.weight"] = target_embedding
    else:
        arrays["model.encoder.embed_tokens.weight"] = weights.pop("source_embedding")[source_ids]
        arrays["model.decoder.embed_tokens.weight"] = target_embedding
    if config.tie_embeddings == "none":
        arrays["lm_head.weight"] = weights.pop("logits/kernel").T[target_ids]
    if not (config.positions == "sinusoidal" and not config.norm_first):
        # Blenderbot's class has a table of positions; Marian's computes sinusoids if the file has no table.
        for side, embedding in (("encoder", model.source_embedding), ("decoder", model.target_embedding)):
            weights.pop("source_positions" if side == "encoder" else "target_positions", None)
            positions = embedding.encode_positions(ops.arange(config.max_length))
            arrays[f"model.{side}.embed_positions.weight"] = _in_their_order(f"{side}_positions", positions)
    for name, array in weights.items():
        arrays[their_name(name)] = array.T
        # Every projection of these classes has a bias.
        if name.endswith("/kernel") and (bias := name.removesuffix("kernel") + "bias") not in weights:
            arrays[their_name(bias)] = np.zeros(array.shape[1], "float32")
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _in_their_order(name: str, weight: Tensor) -> np.ndarray:
    """Puts sines in front of cosines along the model's width, as their sinusoids are."""
    array = ops.convert_to_numpy(weight)
    if (axis := model_axis(name)) is None:
        return array
    return np.take(array, np.argsort(interleaved(array.shape[axis])), axis=axis)


def _logits_bias(bias: np.ndarray | None, tokenizers: HuggingFaceTokenizers) -> np.ndarray:
    ids = list(tokenizers.target_ids)
    if bias is None:
        return np.zeros(len(ids), "float32")
    if tokenizers.pads_with_start:
        # Their padding takes the bias of our padding: that of our start token only excludes the start token.
        ids[tokenizers.special_ids["pad"]] = Tokenizer.pad_id
    return bias[ids]


def _verify(path: pathlib.Path, translator: Translator) -> None:
    with temporary_beside(path.with_name("imported"), is_directory=True) as temporary:
        received = Translator.load(import_model(path, temporary / "model")).score(PROBES, PROBES)
    verify_scores(received, translator, "the model that was written")


def _card(translator: Translator, architecture: str, facts: Facts) -> str:
    languages = f" {facts.languages}" if facts.languages else ""
    metadata = {
        **({"language": facts.languages.split("-")} if facts.languages else {}),
        **({"license": facts.license.lower()} if facts.license else {}),
        "library_name": "transformers",
        "pipeline_tag": "translation",
    }
    search = to_json(dataclasses.asdict(translator.decoding)).decode()
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in metadata.items()),
            "---",
            f"# Translation model{languages}",
            "",
            f"A Transformer of {translator.model.config.num_parameters:,} parameters, as a `{architecture}`.",
            "",
            "```python",
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            'model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")',
            'inputs = tokenizer(["A dog runs."], return_tensors="pt", padding=True, truncation=True)',
            "tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)",
            "```",
            "",
            "## Training",
            "",
            f"{facts.training or 'Unknown'}.",
            "",
            "## Quality",
            "",
            *([f"- {score}" for score in facts.scores] or ["Not measured."]),
            "",
            "## Search",
            "",
            "The scores were measured, and the model was written, with these settings of keras3-transformer "
            f"{__version__}; `generation_config.json` has what comes next to them:",
            "",
            "```json",
            search,
            "```",
            "",
        ]
    )
