"""Exports a translator to CTranslate2."""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

import ctranslate2
import numpy as np
from ctranslate2 import specs
from ctranslate2.specs import LayerSpec, common_spec
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import PositionalEmbedding
from keras_transformer.models.transformer import Transformer, named_weights
from keras_transformer.tokenizers import Tokenizer, TokenizerPair
from keras_transformer.translation import Translator
from keras_transformer.translation.searched_model import Candidates

from .publishing import PROBES, publish, require_exportable, transformer_of, verify_scores

_ACTIVATIONS = {
    "relu": specs.Activation.RELU,
    "gelu": specs.Activation.GELU,
    "silu": specs.Activation.SWISH,
    "swish": specs.Activation.SWISH,
    "tanh": specs.Activation.Tanh,
    "sigmoid": specs.Activation.Sigmoid,
}
# By default, CTranslate2 truncates sources to this many tokens.
_POSITIONS = 1024
# White space separates the fields of a vocabulary map, so tokens that contain it are left out.
_FIELD = re.compile(r"[^ \t\n]*")


def export_ctranslate2(
    translator: Translator, output: str | os.PathLike[str], version: int | None = None
) -> pathlib.Path:
    """Writes a CTranslate2 model with its tokenizers to `output/<version>/` and returns the path.

    The directory appears only after CTranslate2 has computed the same scores for test texts as the
    translator. Weights are stored in float32, and CTranslate2 can quantize them when it loads the
    model. Search settings are not stored. The translator's shortlist becomes a "vocabulary map",
    which `translate_batch` applies if you pass `use_vmap=True`.

    Args:
        version: Version number. Defaults to None: one more than the highest version.

    Raises:
        ConfigError: CTranslate2 does not support the model, or the version exists or is not
            positive.
        VerificationError: CTranslate2 and the translator compute different log probabilities.
    """
    model = transformer_of(translator)
    spec = _model_spec(model, translator.tokenizers)

    def write(directory: pathlib.Path) -> None:
        spec.save(str(directory))
        if translator.candidates is not None:
            vocabulary_map = _vocabulary_map(translator.candidates, translator.tokenizers)
            (directory / "vmap.txt").write_text(vocabulary_map, encoding="utf-8")
        for name, tokenizer in translator.tokenizers.files().items():
            (directory / name).write_bytes(tokenizer.file_content)
        source = _pieces_of_probes(translator.tokenizers.source)
        target = _pieces_of_probes(translator.tokenizers.target)
        engine = ctranslate2.Translator(str(directory), compute_type="float32")
        scored = engine.score_batch(source, target, max_input_length=model.config.max_length)
        verify_scores([sum(result.log_probs) for result in scored], translator, "CTranslate2")

    return publish(output, version, write)


def _pieces_of_probes(tokenizer: Tokenizer) -> list[list[str]]:
    return [tokenizer.pieces(token_ids) for token_ids in tokenizer.tokenize(PROBES).to_list()]


def _all_pieces(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.vocab_size))


def _model_spec(model: Transformer, tokenizers: TokenizerPair) -> specs.TransformerSpec:
    config = model.config
    key_dim = config.key_dim or config.d_model // config.num_heads
    require_exportable(
        config,
        "CTranslate2",
        activation=tuple(_ACTIVATIONS),
        # CTranslate2 does not support ALiBi in encoders, and all its layers share the T5 biases of
        # the first layer. It does not support `query_key_norm`, because its cross-attention
        # normalizes the queries of all heads as one vector.
        positions=("sinusoidal", "tensor2tensor", "learned", "rotary"),
        # CTranslate2 uses the same width for keys and values.
        value_dim=(None, key_dim),
        normalization=("layer", "rms"),
        gated=(False, True),
        num_key_value_heads=(config.num_key_value_heads,),
    )
    options = dict(
        num_heads=config.num_heads,
        head_dim=key_dim,
        pre_norm=config.norm_first,
        activation=_ACTIVATIONS[config.activation],
        rms_norm=config.normalization == "rms",
        ffn_glu=config.gated,
        num_heads_kv=config.num_key_value_heads,
        # Rotate all dimensions. Each dimension of the first half is paired with a dimension of the
        # second.
        rotary_dim=0 if config.positions == "rotary" else None,
        rotary_interleave=False,
    )
    encoder_layers, decoder_layers = config.depths
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(encoder_layers, **options),
        specs.TransformerDecoderSpec(decoder_layers, **options),
    )
    weights = {name: ops.convert_to_numpy(variable) for name, variable in named_weights(model)}
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.source_embedding, config)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.target_embedding, config)
    _set_stack(spec.encoder, weights, "encoder")
    _set_stack(spec.decoder, weights, "decoder")
    # Tied logits use the target embedding as their kernel.
    weights.setdefault("logits/kernel", weights["target_embedding"].T)
    _set_dense(spec.decoder.projection, weights, "logits")

    pieces = _all_pieces(tokenizers.target)
    spec.register_source_vocabulary(_all_pieces(tokenizers.source))
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[Tokenizer.unk_id]
    spec.config.bos_token = pieces[Tokenizer.start_id]
    spec.config.decoder_start_token = pieces[Tokenizer.start_id]
    spec.config.eos_token = pieces[Tokenizer.end_id]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.encoder.epsilon
    spec.validate()
    # Store tied weights only once.
    spec.optimize()
    return spec


def _set_embedding(
    stack: LayerSpec,
    spec: common_spec.EmbeddingsSpec,
    embedding: PositionalEmbedding,
    config: TransformerConfig,
) -> None:
    spec.weight = ops.convert_to_numpy(embedding.token_table)
    if config.positions == "rotary":
        return
    # Store the encodings, because CTranslate2 orders the dimensions of sinusoids differently.
    num_positions = embedding.max_length or max(config.max_length, _POSITIONS)
    encodings = embedding.encode_positions(ops.arange(num_positions))
    stack.position_encodings.encodings = ops.convert_to_numpy(encodings)


def _set_stack(
    spec: LayerSpec, weights: Mapping[str, np.ndarray], side: Literal["encoder", "decoder"]
) -> None:
    for i, layer in enumerate(spec.layer):
        # CTranslate2 joins projections of the same input into one matrix product.
        attentions = [
            ("self_attention", layer.self_attention, [["query", "key", "value"], ["output"]])
        ]
        if side == "decoder":
            attentions.append(
                ("cross_attention", layer.attention, [["query"], ["key", "value"], ["output"]])
            )
        for name, attention, products in attentions:
            for linear, parts in zip(attention.linear, products, strict=True):
                _set_dense(linear, weights, *(f"{side}/{i}/{name}/{part}" for part in parts))
            _set_norm(attention.layer_norm, weights, f"{side}/{i}/{name}/norm")
        feed_forward = f"{side}/{i}/feed_forward"
        if hasattr(layer.ffn, "linear_0_noact"):
            # CTranslate2 applies the activation to the gate.
            _set_dense(layer.ffn.linear_0, weights, f"{feed_forward}/gate")
            _set_dense(layer.ffn.linear_0_noact, weights, f"{feed_forward}/hidden")
        else:
            _set_dense(layer.ffn.linear_0, weights, f"{feed_forward}/hidden")
        _set_dense(layer.ffn.linear_1, weights, f"{feed_forward}/output")
        _set_norm(layer.ffn.layer_norm, weights, f"{feed_forward}/norm")
    if hasattr(spec, "layer_norm"):
        _set_norm(spec.layer_norm, weights, f"{side}/final_norm")


def _set_dense(
    spec: common_spec.LinearSpec, weights: Mapping[str, np.ndarray], *names: str
) -> None:
    """Sets the weights of a linear layer, which may join several of our layers."""
    kernels = [weights[f"{name}/kernel"].T for name in names]
    spec.weight = np.ascontiguousarray(np.concatenate(kernels))
    if f"{names[0]}/bias" in weights:
        spec.bias = np.concatenate([weights[f"{name}/bias"] for name in names])


def _set_norm(
    spec: common_spec.LayerNormSpec, weights: Mapping[str, np.ndarray], name: str
) -> None:
    if hasattr(spec, "beta"):
        spec.gamma = weights[f"{name}/gamma"]
        spec.beta = weights[f"{name}/beta"]
    else:
        spec.gamma = weights[f"{name}/scale"]


def _vocabulary_map(shortlist: Candidates, tokenizers: TokenizerPair) -> str:
    """Returns a shortlist as text, with a source token, a tab and its target tokens in each line.

    The target tokens of the empty source token "" are candidates for every source.
    """
    target_pieces = _all_pieces(tokenizers.target)
    by_source = shortlist.by_source.numpy()
    # CTranslate2 does not look up the end token, which ends every source, so its candidates always
    # apply.
    always = np.concatenate([shortlist.always.numpy(), by_source[Tokenizer.end_id]])

    def line(source_piece: str, token_ids: np.ndarray) -> str:
        pieces = [target_pieces[i] for i in np.unique(token_ids)]
        return f"{source_piece}\t{' '.join(piece for piece in pieces if _FIELD.fullmatch(piece))}\n"

    lines = [line("", always)]
    for piece, token_ids in zip(_all_pieces(tokenizers.source), by_source, strict=True):
        if _FIELD.fullmatch(piece):
            lines.append(line(piece, token_ids))
    return "".join(lines)
