"""Reads Hugging Face models of the Marian class and of the Blenderbot class (pre-norm).

A folder contains config.json, model.safetensors and tokenizer files: vocab.json, source.spm and
target.spm for Marian models, or tokenizer.model for a model that was trained with this package and
exported by `export --format hugging-face`.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from keras import ops
from safetensors import SafetensorError, safe_open

from ..checks import integer, require, shown
from ..config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from ..errors import ConfigError, InvalidFileError
from ..layers.absolute_positions import sinusoids
from ..model_dir.files import UNREADABLE
from ..tokenizers import SentencePieceTokenizer, Tokenizer, TokenizerPair
from ..tokenizers.sentencepiece import parse_model
from .pretrained_model import (
    MAX_VOCABULARY_BYTES,
    ForeignTokenizers,
    PretrainedModel,
    TokenizerAndRows,
    array_name,
    as_weight,
    interleaved,
    option,
    read_bytes,
    read_tokenizer,
    reading,
    require_file,
    require_supported,
    tie_embeddings,
)

# Whether the layers of a class normalize their inputs (pre-norm) or the residual sums.
NORM_FIRST = {"marian": False, "blenderbot": True}
ACTIVATIONS = ("swish", "silu", "relu", "gelu")
_SUPPORTED: dict[str, tuple[object, ...]] = {
    "model_type": tuple(NORM_FIRST),
    "activation_function": ACTIVATIONS,
    "scale_embedding": (True,),
    "tie_word_embeddings": (True, False),
}
# Parts of a layer that have weights: our names and Hugging Face's names.
_PARTS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_THEIRS = {
    **{f"self_attention/{ours}": f"self_attn.{theirs}" for ours, theirs in _PARTS.items()},
    **{f"cross_attention/{ours}": f"encoder_attn.{theirs}" for ours, theirs in _PARTS.items()},
    "feed_forward/hidden": "fc1",
    "feed_forward/output": "fc2",
    "self_attention/norm": "self_attn_layer_norm",
    "cross_attention/norm": "encoder_attn_layer_norm",
    "feed_forward/norm": "final_layer_norm",
}
_OURS = {theirs: ours for ours, theirs in _THEIRS.items()}
_DENSE_KINDS = {"weight": "kernel", "bias": "bias"}
_NORM_KINDS = {"weight": "gamma", "bias": "beta"}
_KINDS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_FINAL_NORM = re.compile(r"model\.(encoder|decoder)\.layer_norm\.(weight|bias)")
_WEIGHT_OF_LAYER = re.compile(
    r"model\.(encoder|decoder)\.layers\.([0-9]{1,4})\.(.*)\.(weight|bias)"
)
# Epsilon of both classes. Marian itself uses 1e-6.
EPSILON = 1e-5
# Far above the sizes in any model. These limits keep a small file from allocating much memory.
_MAX_OPTIONS_BYTES = 2**20
_MAX_SAFETENSORS_HEADER_BYTES = 8 * 2**20
_SAFETENSORS_TYPES = ("F64", "F32", "F16", "BF16")
# This is above the difference between float32 and float64 sinusoids at position 1000, and far below
# the difference between sinusoids and learned positions.
_POSITIONS_TOLERANCE = 1e-3


def read(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder with a MarianMTModel and its tokenizer, or one from `export_hugging_face`."""
    config_path = folder / "config.json"
    weights_path = folder / "model.safetensors"
    options = _read_json(config_path)
    with reading(config_path):
        require_supported(options, _SUPPORTED)
        source_size = option(options, "vocab_size", int)
        target_size = option(options, "decoder_vocab_size", int, source_size)
        sizes = source_size, target_size
        # Check all values before reading large files.
        model = _model(options, sizes)
    arrays = _read_safetensors(weights_path)
    with reading(weights_path):
        weights = _weights(arrays)
        positions = _take_positions(weights)
    tokenizers = _tokenizers(folder, options, sizes)
    if tokenizers.config.kind == "sentencepiece":
        # The bias excludes our start token, which is missing in these tokenizers.
        logits_bias = "logits/bias" in weights
    else:
        logits_bias = _keep_biases(weights, "logits/bias")
    with reading(config_path):
        model = dataclasses.replace(
            model,
            source_vocab_size=tokenizers.pair.source.vocab_size,
            target_vocab_size=tokenizers.pair.target.vocab_size,
            positions=positions,
            tie_embeddings=tie_embeddings(weights),
            attention_bias=_keep_biases(weights, r".*attention/\w+/bias"),
            feed_forward_bias=_keep_biases(weights, r".*feed_forward/\w+/bias"),
            logits_bias=logits_bias,
        )
    decoding = _decoding(folder / "generation_config.json", tokenizers)
    config = Config(model, tokenizers.config, decoding)
    rows = tokenizers.source_rows, tokenizers.target_rows
    return PretrainedModel(weights_path, config, tokenizers.pair, weights, *rows)


def _read_json(path: pathlib.Path, max_bytes: int = _MAX_OPTIONS_BYTES) -> dict[str, Any]:
    content = read_bytes(path, max_bytes)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidFileError(f"{path}: the file cannot be read as JSON") from None
    if not isinstance(values, dict):
        raise InvalidFileError(
            f"{path}: the file must hold a mapping; received {type(values).__name__}"
        )
    return values


def _read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a .safetensors file, which must have floating-point types."""
    require_file(path)
    arrays = {}
    with reading(path, *UNREADABLE, SafetensorError):
        with open(path, "rb") as content:
            header_bytes = int.from_bytes(content.read(8), "little")
        is_small = header_bytes <= _MAX_SAFETENSORS_HEADER_BYTES
        rule = f"at most {_MAX_SAFETENSORS_HEADER_BYTES:,} bytes"
        require(is_small, "the size of the header", rule, header_bytes)
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118
                dtype = file.get_slice(array_name(name)).get_dtype()
                if dtype not in _SAFETENSORS_TYPES:
                    raise ConfigError(f"the weight {name} of type {dtype} is not supported")
                arrays[name] = file.get_tensor(name)
    return arrays


def _model(options: Mapping[str, object], sizes: tuple[int, int]) -> TransformerConfig:
    encoder_layers = option(options, "encoder_layers", int)
    decoder_layers = option(options, "decoder_layers", int)
    return TransformerConfig(
        *sizes,
        num_layers=encoder_layers,
        num_decoder_layers=None if decoder_layers == encoder_layers else decoder_layers,
        d_model=option(options, "d_model", int),
        d_ff=_same(options, "ffn_dim"),
        num_heads=_same(options, "attention_heads"),
        dropout=option(options, "dropout", float, 0.1),
        attention_dropout=option(options, "attention_dropout", float, 0.0),
        activation_dropout=option(options, "activation_dropout", float, 0.0),
        activation=option(options, "activation_function", str),
        norm_first=NORM_FIRST[option(options, "model_type", str)],
        tie_embeddings="none",
        epsilon=EPSILON,
        max_length=option(options, "max_position_embeddings", int, 512),
    )


def _same(options: Mapping[str, object], name: str) -> int:
    """Returns the value of an option that must be the same for encoder and decoder."""
    encoder = option(options, f"encoder_{name}", int)
    decoder = option(options, f"decoder_{name}", int)
    require(decoder == encoder, f"decoder_{name}", f"encoder_{name}={encoder}", decoder)
    return encoder


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the weights with our names and Keras shapes."""
    weights = {}
    for name, array in arrays.items():
        ours = _our_name(name)
        weights[ours] = as_weight(ours, array.T if ours.endswith("kernel") else array)
    if "logits/kernel" in weights and "target_embedding" in weights:
        weights.setdefault("source_embedding", weights["target_embedding"])
    return weights


def _take_positions(
    weights: dict[str, np.ndarray],
) -> Literal["sinusoidal", "tensor2tensor", "learned"]:
    """Returns the kind of positions in a file, and removes sinusoids from the weights.

    Learned positions remain in the weights.
    """
    tables = []
    for name in ("source_positions", "target_positions"):
        if name in weights:
            tables.append(weights.pop(name))
    # If the file has no tables, the class computes sinusoids.
    if all(_is_sinusoidal(table, ends_at_limit=False) for table in tables):
        return "sinusoidal"
    if all(_is_sinusoidal(table, ends_at_limit=True) for table in tables):
        return "tensor2tensor"
    weights["target_positions"] = tables[-1]
    if tie_embeddings(weights) != "all":
        weights["source_positions"] = tables[0]
    elif not np.array_equal(tables[0], tables[-1]):
        raise ConfigError(
            "encoder and decoder share embeddings, but not learned positions; this is not supported"
        )
    return "learned"


def _is_sinusoidal(table: np.ndarray, ends_at_limit: bool) -> bool:
    length, d_model = table.shape
    if d_model % 2:
        return False
    expected = ops.convert_to_numpy(sinusoids(ops.arange(length), d_model, ends_at_limit))
    return np.allclose(table[:, interleaved(d_model)], expected, rtol=0, atol=_POSITIONS_TOLERANCE)


def _keep_biases(weights: dict[str, np.ndarray], pattern: str) -> bool:
    """Returns whether any bias is nonzero. If none is, removes the biases from the weights.

    The class of the model always has biases.
    """
    names = [name for name in weights if re.fullmatch(pattern, name)]
    if any(weights[name].any() for name in names):
        return True
    for name in names:
        del weights[name]
    return False


def _tokenizers(
    folder: pathlib.Path, options: Mapping[str, object], sizes: tuple[int, int]
) -> ForeignTokenizers:
    if (folder / "tokenizer.model").is_file():
        return _trained_tokenizers(folder / "tokenizer.model", sizes)
    with reading(folder / "config.json"):
        start_id = None
        if options.get("decoder_start_token_id") is not None:
            start_id = option(options, "decoder_start_token_id", int)
    source_path = folder / "vocab.json"
    target_path = folder / "target_vocab.json"
    if not target_path.is_file():
        target_path = source_path

    def read_side(model: str, ids_path: pathlib.Path, size: int) -> TokenizerAndRows:
        ids = _read_json(ids_path, MAX_VOCABULARY_BYTES)
        with reading(ids_path):
            for piece, token_id in ids.items():
                integer(f"the id of {shown(piece)}", token_id)
        return read_tokenizer(folder / model, ids, ids_path, size, start_id)

    source = read_side("source.spm", source_path, sizes[0])
    target = read_side("target.spm", target_path, sizes[1])
    with reading(folder / "config.json"):
        return ForeignTokenizers.of(source, target)


def _trained_tokenizers(path: pathlib.Path, sizes: tuple[int, int]) -> ForeignTokenizers:
    """Reads a shared tokenizer that was trained with this package."""
    content = read_bytes(path)
    with reading(path):
        proto = parse_model(content)
        spec = proto.normalizer_spec
        if spec.precompiled_charsmap or spec.add_dummy_prefix or spec.remove_extra_whitespaces:
            raise ConfigError(
                "the SentencePiece model must be one without normalization, "
                "as this package trains it"
            )
        tokenizer = SentencePieceTokenizer(content)
        vocab_size = tokenizer.vocab_size
        for size in sizes:
            rule = f"the model's {size}"
            require(vocab_size == size, "the number of pieces", rule, vocab_size)
        is_bpe = proto.trainer_spec.model_type == proto.trainer_spec.BPE
        config = TokenizerConfig("bpe" if is_bpe else "unigram", tokenizer.vocab_size)
    rows = range(tokenizer.vocab_size)
    return ForeignTokenizers(config, TokenizerPair.of(tokenizer), rows, rows)


def _decoding(path: pathlib.Path, tokenizers: ForeignTokenizers) -> DecodingConfig:
    settings = _read_json(path) if path.is_file() else {}
    with reading(path):
        beam_size = option(settings, "num_beams", int, 1)
        length_penalty = option(settings, "length_penalty", float, 1.0)
        min_new_tokens = option(settings, "min_new_tokens", int, 0)
        return DecodingConfig(
            beam_size,
            length_penalty if beam_size > 1 else 0.0,
            forbidden_tokens=_forbidden_tokens(settings.get("bad_words_ids"), tokenizers),
            no_repeat_ngram_size=option(settings, "no_repeat_ngram_size", int, 0),
            repetition_penalty=option(settings, "repetition_penalty", float, 1.0),
            # `min_length` includes the end token.
            min_length=min_new_tokens + 1 if min_new_tokens > 0 else 0,
        )


def _forbidden_tokens(
    bad_words: object, tokenizers: ForeignTokenizers
) -> Literal["none", "special", "unknown"]:
    if isinstance(bad_words, list) and [tokenizers.target_rows[Tokenizer.unk_id]] in bad_words:
        return "unknown"
    # Tokenizers of other programs use the same token for padding and start, which must not occur in
    # translations.
    if bad_words or tokenizers.config.kind == "sentencepiece":
        return "special"
    return "none"


def their_name(name: str) -> str:
    """Returns Hugging Face's name for a weight of a layer or final norm."""
    *path, kind = name.split("/")
    if path[1] == "final_norm":
        return f"model.{path[0]}.layer_norm.{_KINDS[kind]}"
    return f"model.{path[0]}.layers.{path[1]}.{_THEIRS['/'.join(path[2:])]}.{_KINDS[kind]}"


def _our_name(name: str) -> str:
    special = {
        "model.shared.weight": "target_embedding",
        "model.decoder.embed_tokens.weight": "target_embedding",
        "model.encoder.embed_tokens.weight": "source_embedding",
        "model.encoder.embed_positions.weight": "source_positions",
        "model.decoder.embed_positions.weight": "target_positions",
        "lm_head.weight": "logits/kernel",
        "final_logits_bias": "logits/bias",
    }
    if name in special:
        return special[name]
    match = _FINAL_NORM.fullmatch(name)
    if match:
        side, kind = match.groups()
        return f"{side}/final_norm/{_NORM_KINDS[kind]}"
    match = _WEIGHT_OF_LAYER.fullmatch(name)
    if match:
        side, number, part, kind = match.groups()
        if part in _OURS:
            kinds = _NORM_KINDS if _OURS[part].endswith("/norm") else _DENSE_KINDS
            return f"{side}/{number}/{_OURS[part]}/{kinds[kind]}"
    raise ConfigError(f"the weight {name} is not supported")
