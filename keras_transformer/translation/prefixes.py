"""The beginnings that translations are given, as tokens."""

from typing import Annotated

import tensorflow as tf

from ..tensors import Tensor
from ..tokenizers import Tokenizer
from .sentences import SPACES


def shortened_prefixes(
    tokenizer: Tokenizer, prefixes: Annotated[Tensor, "string (batch,)"], max_length: int
) -> Annotated[Tensor, "string (batch,)"]:
    """Returns what translations begin with, of at least `max_length` tokens.

    White space at the end is left out: it belongs to the token that follows.
    """
    prefixes, _ = tokenizer.shorten(prefixes, max_length)
    return tf.strings.regex_replace(prefixes, rf"[{SPACES}]+$", "")


def left_padded(token_ids: tf.RaggedTensor) -> Annotated[tf.Tensor, "int32 (batch, length)"]:
    """Returns rows that end together, with -1 before the shorter ones."""
    padded = token_ids.to_tensor(-1)
    lengths, length = tf.cast(token_ids.row_lengths(), tf.int32), tf.shape(padded)[1]
    places = tf.range(length) - (length - lengths[:, None])
    return tf.where(places >= 0, tf.gather(padded, tf.maximum(places, 0), batch_dims=1), -1)
