"""Hugging Face's port of Marian models: config.json, model.safetensors, vocab.json, source.spm and target.spm."""

import json
import pathlib
import re
from typing import Any

import numpy as np

from ..config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from ..config.model import VocabSize
from ..config.rules import Count, check, require, shown
from ..errors import ConfigError, naming_source
from .model import PretrainedModel, tie_embeddings
from .vocabulary import Vocabulary, read_bytes, tokenizers_of

_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("marian",),
    "activation_function": ("swish", "silu", "relu", "gelu"),
    "scale_embedding": (True,),
    "tie_word_embeddings": (True, False),
}
_ATTENTION = {"self_attn": "attention", "encoder_attn": "source_attention"}
_PARTS = {"q": "query", "k": "key", "v": "value", "out": "output"}
_NORMS = {**_ATTENTION, "final": "feed_forward"}
# The port has this one; Marian's is 1e-6.
_EPSILON = 1e-5


def read_hugging_face(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder that `save_pretrained` of a MarianMTModel and its tokenizer wrote.

    Raises:
        ConfigError: A file is missing or damaged, or an option has a value that is not supported.
    """
    config_path = folder / "config.json"
    options = _read_json(config_path)
    with naming_source(config_path):
        _check(options)
    path = folder / "model.safetensors"
    with naming_source(path):
        weights = _weights(_read_arrays(path))
    start_id = options.get("decoder_start_token_id")
    source_ids, target_ids = _vocabulary_paths(folder)
    sizes = options["vocab_size"], options.get("decoder_vocab_size") or options["vocab_size"]
    source = folder / "source.spm", Vocabulary.of(_read_json(source_ids), source_ids, sizes[0], start_id)
    target = folder / "target.spm", Vocabulary.of(_read_json(target_ids), target_ids, sizes[1], start_id)
    tokenizers = tokenizers_of(source, target)
    with naming_source(config_path):
        model = TransformerConfig(
            len(source[1].rows), len(target[1].rows), tie_embeddings=tie_embeddings(weights), **_sizes(options)
        )
    config = Config(
        model,
        TokenizerConfig("sentencepiece", len(target[1].rows), tokenizers.is_shared),
        _decoding(folder / "generation_config.json"),
    )
    return PretrainedModel(config, tokenizers, weights, source[1].rows, target[1].rows)


def _check(options: dict[str, Any]) -> None:
    for name, values in _SUPPORTED.items():
        if (value := options.get(name, values[0])) not in values:
            raise ConfigError(f"the option {name}: {shown(value)} is not supported")
    check("vocab_size", options.get("vocab_size"), VocabSize)
    check("decoder_vocab_size", options.get("decoder_vocab_size"), VocabSize | None)
    check("decoder_start_token_id", options.get("decoder_start_token_id"), Count | None)
    heads = options.get("encoder_attention_heads"), options.get("decoder_attention_heads")
    widths = options.get("encoder_ffn_dim"), options.get("decoder_ffn_dim")
    for name, values in (("attention_heads", heads), ("ffn_dim", widths)):
        require(values[0] == values[1], f"decoder_{name}", f"encoder_{name}={values[0]}", values[1])


def _sizes(options: dict[str, Any]) -> dict[str, Any]:
    encoder, decoder = options.get("encoder_layers"), options.get("decoder_layers")
    return dict(
        num_layers=encoder,
        num_decoder_layers=None if decoder == encoder else decoder,
        d_model=options.get("d_model"),
        d_ff=options.get("encoder_ffn_dim"),
        num_heads=options.get("encoder_attention_heads"),
        dropout=options.get("dropout", 0.1),
        attention_dropout=options.get("attention_dropout", 0.0),
        activation_dropout=options.get("activation_dropout", 0.0),
        activation=options.get("activation_function"),
        attention_bias=True,
        logits_bias=True,
        epsilon=_EPSILON,
        max_length=options.get("max_position_embeddings", 512),
    )


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        values = json.loads(content)
    except ValueError:
        raise ConfigError(f"{path}: the file cannot be read as JSON") from None
    require(isinstance(values, dict), str(path), "a mapping", values)
    return values


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise ConfigError("the file is missing")
    try:
        return load_file(path)
    except (SafetensorError, TypeError, KeyError) as error:
        raise ConfigError(f"the file cannot be read ({str(error).splitlines()[0]})") from None


def _weights(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights under our names, in the shapes that Keras has."""
    weights = {}
    for name, array in arrays.items():
        if "embed_positions" in name:
            continue
        ours = _our_name(name)
        array = array.T if ours.endswith("kernel") else array
        weights[ours] = array.astype("float32") if ours.endswith(("kernel", "embedding")) else array.ravel()
    if "logits/kernel" in weights and "target_embedding" in weights:
        weights.setdefault("source_embedding", weights["target_embedding"])
    return weights


def _vocabulary_paths(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    shared, target = folder / "vocab.json", folder / "target_vocab.json"
    return shared, target if target.is_file() else shared


def _decoding(path: pathlib.Path) -> DecodingConfig:
    settings = _read_json(path) if path.is_file() else {}
    with naming_source(path):
        return DecodingConfig(
            beam_size=settings.get("num_beams", 1),
            length_penalty=settings.get("length_penalty", 1.0) if settings.get("num_beams", 1) > 1 else 0.0,
            forbidden_tokens="special",
        )


def _our_name(name: str) -> str:
    special = {
        "model.shared.weight": "target_embedding",
        "model.decoder.embed_tokens.weight": "target_embedding",
        "model.encoder.embed_tokens.weight": "source_embedding",
        "lm_head.weight": "logits/kernel",
        "final_logits_bias": "logits/bias",
    }
    if name in special:
        return special[name]
    if match := re.fullmatch(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.*)\.(weight|bias)", name):
        layer, kind = f"{match[1]}/{match[2]}", match[4]
        if norm := re.fullmatch(r"(self_attn|encoder_attn|final)_layer_norm", match[3]):
            return f"{layer}/{_NORMS[norm[1]]}/norm/{'gamma' if kind == 'weight' else 'beta'}"
        kind = "kernel" if kind == "weight" else "bias"
        if dense := re.fullmatch(r"(self_attn|encoder_attn)\.(q|k|v|out)_proj", match[3]):
            return f"{layer}/{_ATTENTION[dense[1]]}/{_PARTS[dense[2]]}/{kind}"
        if dense := re.fullmatch(r"fc([12])", match[3]):
            return f"{layer}/feed_forward/{'hidden' if dense[1] == '1' else 'output'}/{kind}"
    raise ConfigError(f"the weight {name} is not one of a Transformer of this package")
