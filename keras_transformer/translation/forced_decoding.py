"""What a model makes of given translations, in the TensorFlow graph: log probabilities, and attention to the source.

The decoder is forced to the tokens of the translation, all of them at once. Sources and labels, the tokens of
translations, are int32 (batch, None), with end tokens.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated

import tensorflow as tf

from ..losses import token_crossentropy
from ..models import Transformer
from ..tensors import Dimension, Tensor
from ..tokenizers import Tokenizer
from .search import POSITIONS_PER_BATCH, map_in_length_batches


def token_log_probs(
    model: Transformer, source: tf.RaggedTensor, labels: tf.RaggedTensor
) -> Annotated[Tensor, "float32 (batch, target length)"]:
    """Computes the log probability of every token of given translations; 0 after the end token."""
    lengths, width = _lengths(source, labels), _width(labels)

    def score_batch(rows: Tensor) -> Tensor:
        batch_labels = tf.gather(labels, rows).to_tensor()
        logits = model(
            {"source": tf.gather(source, rows).to_tensor(), "target": _shifted(batch_labels)}, training=False
        )
        log_probs = tf.where(
            tf.not_equal(batch_labels, Tokenizer.pad_id), -token_crossentropy(batch_labels, logits), 0.0
        )
        return tf.pad(log_probs, [[0, 0], [0, width - tf.shape(log_probs)[1]]])

    return _map_rows(score_batch, lengths, [tf.size(lengths), width])


def source_attention(
    model: Transformer, source: tf.RaggedTensor, labels: tf.RaggedTensor, layer: int, head: int | None = None
) -> Annotated[Tensor, "float32 (batch, target length, source length)"]:
    """Computes what a layer of the decoder attends to when it predicts each token.

    Args:
        layer: an index of `model.decoder.layers`.
        head: Defaults to None: the mean of all heads.

    Returns:
        Rows that sum to 1; 0 after the end tokens.
    """
    lengths, source_width, target_width = _lengths(source, labels), _width(source), _width(labels)

    def attend_batch(rows: Tensor) -> Tensor:
        batch_labels = tf.gather(labels, rows).to_tensor()
        encoded, source_mask = model.encode(tf.gather(source, rows).to_tensor())
        by_layer = attention_to_source(model, model.target_embedding(_shifted(batch_labels)), encoded, source_mask)
        scores = next(itertools.islice(by_layer, range(model.config.depths[1])[layer], None))
        scores = tf.cast(scores, tf.float32)
        scores = tf.reduce_mean(scores, axis=1) if head is None else scores[:, head]
        scores = tf.where(tf.not_equal(batch_labels, Tokenizer.pad_id)[:, :, None], scores, 0.0)
        size = tf.shape(scores)
        return tf.pad(scores, [[0, 0], [0, target_width - size[1]], [0, source_width - size[2]]])

    return _map_rows(attend_batch, lengths, [tf.size(lengths), target_width, source_width])


def mean_encoding(model: Transformer, source: tf.RaggedTensor) -> Annotated[Tensor, "float32 (batch, d_model)"]:
    """Computes the mean of the encoder's outputs over the tokens of each source."""
    lengths = tf.cast(source.row_lengths(), tf.int32)

    def encode_batch(rows: Tensor) -> Tensor:
        encoded, mask = model.encode(tf.gather(source, rows).to_tensor())
        weights = tf.cast(mask, tf.float32)[:, :, None]
        return tf.reduce_sum(tf.cast(encoded, tf.float32) * weights, axis=1) / tf.reduce_sum(weights, axis=1)

    return _map_rows(encode_batch, lengths, [tf.size(lengths), model.config.d_model])


def attention_to_source(
    model: Transformer,
    hidden: Annotated[Tensor, "(batch, target length, d_model)"],
    encoded: Annotated[Tensor, "(batch, source length, d_model)"],
    source_mask: Annotated[Tensor, "bool (batch, source length)"],
) -> Iterator[Annotated[Tensor, "(batch, num_heads, target length, source length)"]]:
    """Computes, layer by layer, what the decoder attends to when it predicts each token.

    Args:
        hidden: the embeddings of the translations, which begin with start tokens.

    Yields:
        Row `t` of a head is what token `t` is predicted from.
    """
    for layer in model.decoder.layers:
        hidden, _, scores = layer(hidden, encoded, source_mask=source_mask, return_attention_scores=True)
        yield scores


def _map_rows(function: Callable[[Tensor], Tensor], lengths: Tensor, shape: list[Dimension]) -> Tensor:
    """Computes the results, of a shape, of a function of row numbers, in batches of rows of similar lengths."""
    sizes = dict(positions_per_batch=POSITIONS_PER_BATCH, max_rows=POSITIONS_PER_BATCH)
    return map_in_length_batches(function, lengths, lengths, tf.zeros(shape), **sizes)


def _shifted(labels: Tensor) -> Tensor:
    """What the decoder reads to predict the labels: they begin with the start token."""
    starts = tf.fill([tf.shape(labels)[0], 1], Tokenizer.start_id)
    return tf.concat([starts, labels[:, :-1]], axis=1)


def _lengths(source: tf.RaggedTensor, labels: tf.RaggedTensor) -> Tensor:
    return tf.cast(tf.maximum(source.row_lengths(), labels.row_lengths()), tf.int32)


def _width(rows: tf.RaggedTensor) -> Tensor:
    return tf.cast(rows.bounding_shape()[1], tf.int32)
