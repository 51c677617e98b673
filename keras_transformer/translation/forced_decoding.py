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
from .search import map_in_length_batches


def token_log_probs(
    model: Transformer, source: tf.RaggedTensor, labels: tf.RaggedTensor
) -> Annotated[Tensor, "float32 (batch, target length)"]:
    """Computes the log probability of every token of given translations; 0 after the end token."""

    def score(source: Tensor, labels: Tensor) -> Tensor:
        logits = model({"source": source, "target": _shifted(labels)}, training=False)
        return tf.where(tf.not_equal(labels, Tokenizer.pad_id), -token_crossentropy(labels, logits), 0.0)

    return _in_batches(score, [source, labels], [_width(labels)])


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

    def attend(source: Tensor, labels: Tensor) -> Tensor:
        encoded, source_mask = model.encode(source)
        by_layer = attention_to_source(model, model.target_embedding(_shifted(labels)), encoded, source_mask)
        scores = next(itertools.islice(by_layer, range(model.config.depths[1])[layer], None))
        scores = tf.cast(scores, tf.float32)
        scores = tf.reduce_mean(scores, axis=1) if head is None else scores[:, head]
        return tf.where(tf.not_equal(labels, Tokenizer.pad_id)[:, :, None], scores, 0.0)

    return _in_batches(attend, [source, labels], [_width(labels), _width(source)])


def mean_encoding(model: Transformer, source: tf.RaggedTensor) -> Annotated[Tensor, "float32 (batch, d_model)"]:
    """Computes the mean of the encoder's outputs over the tokens of each source."""

    def encode(source: Tensor) -> Tensor:
        encoded, mask = model.encode(source)
        weights = tf.cast(mask, tf.float32)[:, :, None]
        return tf.reduce_sum(tf.cast(encoded, tf.float32) * weights, axis=1) / tf.reduce_sum(weights, axis=1)

    return _in_batches(encode, [source], [model.config.d_model])


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


def _in_batches(function: Callable[..., Tensor], sides: list[tf.RaggedTensor], shape: list[Dimension]) -> Tensor:
    """Applies a function to the sides of pairs, in batches of similar lengths, and pads its results to a shape."""

    def compute(rows: Tensor) -> Tensor:
        results = function(*(tf.gather(side, rows).to_tensor() for side in sides))
        return tf.pad(results, [[0, 0], *([0, size - tf.shape(results)[i]] for i, size in enumerate(shape, start=1))])

    lengths = tf.reduce_max([tf.cast(side.row_lengths(), tf.int32) for side in sides], axis=0)
    return map_in_length_batches(compute, lengths, lengths, tf.zeros([tf.size(lengths), *shape]))


def _shifted(labels: Tensor) -> Tensor:
    """What the decoder reads to predict the labels: they begin with the start token."""
    starts = tf.fill([tf.shape(labels)[0], 1], Tokenizer.start_id)
    return tf.concat([starts, labels[:, :-1]], axis=1)


def _width(rows: tf.RaggedTensor) -> Tensor:
    return tf.cast(rows.bounding_shape()[1], tf.int32)
