"""Hugging Face's port of Marian models: config.json, model.safetensors, vocab.json, source.spm and target.spm."""

import pathlib
import re
from collections.abc import Mapping

import numpy as np

from ..config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from ..config.rules import require
from ..errors import ConfigError
from .foreign_files import option, read_json, read_json_vocabulary, read_safetensors, reading, require_supported
from .model import PretrainedModel, TieEmbeddings, as_weight, tie_embeddings
from .vocabulary import Vocabulary, tokenizers_of

_SUPPORTED: dict[str, tuple[object, ...]] = {
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


def matches(folder: pathlib.Path) -> bool:
    """Whether there may be a model of Hugging Face in a folder."""
    return (folder / "config.json").is_file()


def read(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder that `save_pretrained` of a MarianMTModel and its tokenizer wrote.

    Raises:
        InvalidFileError: A file is missing or damaged, or an option has a value that is not supported.
    """
    config_path, weights_path = folder / "config.json", folder / "model.safetensors"
    options = read_json(config_path)
    with reading(config_path):
        require_supported(options, _SUPPORTED)
        vocab_size = option(options, "vocab_size", int)
        sizes = vocab_size, option(options, "decoder_vocab_size", int, vocab_size)
        has_start = options.get("decoder_start_token_id") is not None
        start_id = option(options, "decoder_start_token_id", int) if has_start else None
        # All values are checked before the large files are read; the model is known only after them.
        _model(options, *sizes, tie_embeddings="none")
    arrays = read_safetensors(weights_path)
    with reading(weights_path):
        weights = _weights(arrays)
    source, target = (
        (folder / name, Vocabulary.of(read_json_vocabulary(ids), ids, size, start_id))
        for name, ids, size in zip(("source.spm", "target.spm"), _vocabulary_paths(folder), sizes, strict=True)
    )
    tokenizers = tokenizers_of(source, target)
    with reading(config_path):
        model = _model(options, len(source[1].rows), len(target[1].rows), tie_embeddings(weights))
        tokenizer = TokenizerConfig("sentencepiece", len(target[1].rows), tokenizers.is_shared)
    config = Config(model, tokenizer, _decoding(folder / "generation_config.json"))
    return PretrainedModel(weights_path, config, tokenizers, weights, source[1].rows, target[1].rows)


def _model(
    options: Mapping[str, object], source_size: int, target_size: int, tie_embeddings: TieEmbeddings
) -> TransformerConfig:
    depths = option(options, "encoder_layers", int), option(options, "decoder_layers", int)
    return TransformerConfig(
        source_size,
        target_size,
        num_layers=depths[0],
        num_decoder_layers=None if depths[0] == depths[1] else depths[1],
        d_model=option(options, "d_model", int),
        d_ff=_same(options, "ffn_dim"),
        num_heads=_same(options, "attention_heads"),
        dropout=option(options, "dropout", float, 0.1),
        attention_dropout=option(options, "attention_dropout", float, 0.0),
        activation_dropout=option(options, "activation_dropout", float, 0.0),
        activation=option(options, "activation_function", str),
        tie_embeddings=tie_embeddings,
        attention_bias=True,
        logits_bias=True,
        epsilon=_EPSILON,
        max_length=option(options, "max_position_embeddings", int, 512),
    )


def _same(options: Mapping[str, object], name: str) -> int:
    """The value of an option of the encoder and of the decoder, which must be the same."""
    encoder, decoder = (option(options, f"{side}_{name}", int) for side in ("encoder", "decoder"))
    require(decoder == encoder, f"decoder_{name}", f"encoder_{name}={encoder}", decoder)
    return encoder


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights under our names, in the shapes that Keras has."""
    weights = {}
    for name, array in arrays.items():
        if "embed_positions" in name:
            continue
        ours = _our_name(name)
        weights[ours] = as_weight(ours, array.T if ours.endswith("kernel") else array)
    if "logits/kernel" in weights and "target_embedding" in weights:
        weights.setdefault("source_embedding", weights["target_embedding"])
    return weights


def _vocabulary_paths(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    shared, target = folder / "vocab.json", folder / "target_vocab.json"
    return shared, target if target.is_file() else shared


def _decoding(path: pathlib.Path) -> DecodingConfig:
    settings = read_json(path) if path.is_file() else {}
    with reading(path):
        beam_size = option(settings, "num_beams", int, 1)
        length_penalty = option(settings, "length_penalty", float, 1.0)
        return DecodingConfig(beam_size, length_penalty if beam_size > 1 else 0.0, forbidden_tokens="special")


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
    if match := re.fullmatch(r"model\.(encoder|decoder)\.layers\.([0-9]{1,4})\.(.*)\.(weight|bias)", name):
        layer, kind = f"{match[1]}/{match[2]}", match[4]
        if norm := re.fullmatch(r"(self_attn|encoder_attn|final)_layer_norm", match[3]):
            return f"{layer}/{_NORMS[norm[1]]}/norm/{'gamma' if kind == 'weight' else 'beta'}"
        kind = "kernel" if kind == "weight" else "bias"
        if dense := re.fullmatch(r"(self_attn|encoder_attn)\.(q|k|v|out)_proj", match[3]):
            return f"{layer}/{_ATTENTION[dense[1]]}/{_PARTS[dense[2]]}/{kind}"
        if dense := re.fullmatch(r"fc([12])", match[3]):
            return f"{layer}/feed_forward/{'hidden' if dense[1] == '1' else 'output'}/{kind}"
    raise ConfigError(f"the weight {name} is not one of a Transformer of this package")
