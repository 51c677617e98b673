"""A parallel text as token ids."""

import dataclasses

import numpy as np
import tensorflow as tf

from .corpus import SentencePairs

_SENTENCES_PER_CALL = 8192  # of the tokenizer: bounds the memory that is needed at a time


@dataclasses.dataclass(frozen=True, eq=False)
class TokenRows:
    """Rows of token ids of any length, end to end in one flat array.

    Attributes:
        ids: token ids of all rows, in the smallest of uint16 and int32 that holds them.
        offsets: int64, `(rows + 1,)`: row `i` is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, `(rows,)`."""
        return np.diff(self.offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """A parallel text as token ids, each row with the end token as its last.

    Attributes:
        source: the source sentences.
        target: their translations, in the same order.
        num_empty: pairs left out because one side has no tokens.
        num_too_long: pairs left out because one side is longer than allowed.
    """

    source: TokenRows
    target: TokenRows
    num_empty: int
    num_too_long: int

    def __len__(self):
        return len(self.source.offsets) - 1


def encode(pairs: SentencePairs, tokenizer, max_length: int) -> EncodedPairs:
    """Tokenizes a parallel text, and leaves out pairs which are empty or too long on either side.

    Args:
        pairs: the text.
        tokenizer: has `end_id`, and `tokenize` from strings `(n,)` to ragged int32 `(n, None)`.
        max_length: longest row that is kept, in tokens, the end token included.

    Returns:
        The token ids.

    Raises:
        ValueError: no pair is left.
    """
    source, target = [], []
    num_empty = num_too_long = 0
    for start in range(0, len(pairs), _SENTENCES_PER_CALL):
        chunk = slice(start, start + _SENTENCES_PER_CALL)
        source_rows = tokenizer.tokenize(tf.constant(pairs.source[chunk]))
        target_rows = tokenizer.tokenize(tf.constant(pairs.target[chunk]))
        source_lengths = source_rows.row_lengths().numpy()
        target_lengths = target_rows.row_lengths().numpy()
        empty = np.minimum(source_lengths, target_lengths) == 0
        too_long = ~empty & (np.maximum(source_lengths, target_lengths) + 1 > max_length)
        num_empty += int(empty.sum())
        num_too_long += int(too_long.sum())
        kept = ~(empty | too_long)
        source.append(_with_end(source_rows, kept, tokenizer.end_id))
        target.append(_with_end(target_rows, kept, tokenizer.end_id))
    if num_empty + num_too_long == len(pairs):
        raise ValueError(
            f"no sentence pair is left of the {len(pairs)} in {pairs.name}: {num_empty} are empty "
            f"on one side, {num_too_long} longer than max_length={max_length} tokens"
        )
    return EncodedPairs(_end_to_end(source), _end_to_end(target), num_empty, num_too_long)


def joined(texts: list[EncodedPairs]) -> EncodedPairs:
    """Several parallel texts as one, in their order."""
    return EncodedPairs(
        _end_to_end([(text.source.ids, text.source.lengths) for text in texts]),
        _end_to_end([(text.target.ids, text.target.lengths) for text in texts]),
        sum(text.num_empty for text in texts),
        sum(text.num_too_long for text in texts),
    )


def _with_end(ragged, kept, end_id):
    ragged = tf.ragged.boolean_mask(ragged, kept)
    end = tf.fill([ragged.nrows(), 1], tf.cast(end_id, ragged.dtype))
    ragged = tf.concat([ragged, end], axis=1)
    ids = ragged.flat_values.numpy()
    dtype = np.uint16 if ids.max(initial=0) <= np.iinfo(np.uint16).max else np.int32
    return ids.astype(dtype), ragged.row_lengths().numpy()


def _end_to_end(chunks):
    ids, lengths = zip(*chunks)
    return TokenRows(np.concatenate(ids), np.cumsum(np.concatenate([[0], *lengths])))
