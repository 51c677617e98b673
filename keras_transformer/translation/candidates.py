"""The target pieces among which translations are searched, in the TensorFlow graph."""

from typing import Annotated, NamedTuple

import numpy as np
import tensorflow as tf

from ..model_dir.shortlist_file import Shortlist
from ..tensors import Tensor
from ..tokenizers import Tokenizer


class CandidateTable(tf.Module):
    """A shortlist as variables, which a SavedModel stores once for all its signatures.

    Args:
        shortlist: Shortlist.
        vocab_size: int. The number of target pieces.
        also: ids of pieces that may be anywhere, too. Defaults to none.
    """

    def __init__(self, shortlist: Shortlist, vocab_size: int, also: range = range(0)) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.by_source = tf.Variable(shortlist.by_source, trainable=False, name="by_source")
        self.always = tf.Variable(np.union1d(shortlist.always, [*also]).astype("int32"), trainable=False, name="always")

    def read(self) -> "Candidates":
        """Returns the values of the variables: TensorFlow does not run a loop that reads variables beside another."""
        return Candidates(tf.identity(self.by_source), tf.identity(self.always), self.vocab_size)


class Candidates(NamedTuple):
    """A shortlist as tensors.

    Attributes:
        by_source: see `Shortlist`.
        always: see `Shortlist`.
        vocab_size: the number of target pieces.
    """

    by_source: Annotated[Tensor, "int32 (source_vocab_size, n)"]
    always: Annotated[Tensor, "int32 (m,)"]
    vocab_size: int

    def of(
        self,
        source: Annotated[Tensor, "int32 (batch, source length)"],
        prefix: Annotated[Tensor, "int32 (batch, prefix length)"] | None,
    ) -> Annotated[Tensor, "int32 (number of candidates,)"]:
        """Returns the pieces that the translations of a batch may have, ascending, with those of their prefixes."""
        parts = [self.always, tf.reshape(tf.gather(self.by_source, source), [-1])]
        if prefix is not None:
            parts.append(tf.maximum(tf.reshape(prefix, [-1]), Tokenizer.pad_id))
        token_ids = tf.concat(parts, 0)
        # Faster than to sort them.
        counts = tf.scatter_nd(token_ids[:, None], tf.ones_like(token_ids), [self.vocab_size])
        return tf.cast(tf.where(counts > 0)[:, 0], tf.int32)
