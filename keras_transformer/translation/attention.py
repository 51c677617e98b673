"""What every layer and head attends to while a text is translated."""

from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from ..config.attention_view import AttentionKind
from ..config.rules import Sentence, check
from ..masks import padding_mask
from ..models import Transformer
from ..tensors import Tensor
from .forced_decoding import attention_to_source
from .translator import Translator


class Attention(NamedTuple):
    """The attention weights of a stack of layers, for one sentence.

    Attributes:
        weights: float32 (num_layers, num_heads, number of queries, number of keys). Each row adds up to 1.
        queries: list of str, the tokens that attend. In the decoder, a row is what its token was chosen from.
        keys: list of str, the tokens that are attended to. In the decoder's self-attention they begin with the start
            token, and lack the last query.
    """

    weights: np.ndarray
    queries: list[str]
    keys: list[str]


class TranslationAttention(NamedTuple):
    """A translation, and what was attended to.

    Attributes:
        text: str, the source.
        translation: str.
        by_kind: dict of Attention: "cross", "encoder" and "decoder". A model whose self-attention is restricted to
            a neighborhood has "cross" alone.
    """

    text: str
    translation: str
    by_kind: dict[AttentionKind, Attention]


def translate_with_attention(translator: Translator, text: Sentence) -> TranslationAttention:
    """Translates a text and returns what every layer and head attended to.

    Args:
        translator: Translator, of a Transformer.
        text: str, not blank.

    Raises:
        ConfigError: The text is blank.
    """
    check("text", text, Sentence)
    model, tokenizers = cast(Transformer, translator.model), translator.tokenizers
    found = translator.search(tf.constant([text]))
    chosen = np.asarray(found.token_ids)[0, 0]
    labels = chosen[chosen != tokenizers.target.pad_id]
    target = np.concatenate([[tokenizers.target.start_id], labels[:-1]])[None, :]
    source = translator.token_ids([text])
    source_pieces = tokenizers.source.pieces(source[0])
    written, before = tokenizers.target.pieces(labels), tokenizers.target.pieces(target[0])

    encoded, source_mask = model.encode(source)
    hidden = model.target_embedding(target)
    cross_weights = _stacked([*attention_to_source(model, hidden, encoded, source_mask)])
    by_kind: dict[AttentionKind, Attention] = {"cross": Attention(cross_weights, written, source_pieces)}
    if model.config.neighborhood is None:
        embedded = model.source_embedding(source)
        _, encoder_weights = model.encoder(embedded, mask=padding_mask(source), return_attention_scores=True)
        _, decoder_weights, _ = model.decoder(hidden, encoded, source_mask=source_mask, return_attention_scores=True)
        by_kind["encoder"] = Attention(_stacked(encoder_weights), source_pieces, source_pieces)
        by_kind["decoder"] = Attention(_stacked(decoder_weights), written, before)
    return TranslationAttention(text, np.asarray(found.texts)[0, 0].decode(), by_kind)


def _stacked(weights: list[Tensor]) -> np.ndarray:
    # of each layer: (1, num_heads, number of queries, number of keys)
    return np.stack([np.asarray(layer_weights, "float32")[0] for layer_weights in weights])
