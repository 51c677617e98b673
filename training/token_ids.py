"""A parallel text as token ids, in files."""

import dataclasses
import itertools
import os
import pathlib

import numpy as np
import tensorflow as tf

from .corpus import SentencePairs

# Of the tokenizer: bounds the memory that is needed at a time.
_SENTENCES_PER_CALL = 8192
# Batches are made of one block at a time, which is held in memory.
_PAIRS_PER_BLOCK = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """A parallel text as token ids, each row with the end token as its last.

    It stands in files, in blocks to which its pairs fell at random, so that a long text takes no more memory than a
    block. A short text is one block, in its own order.

    Attributes:
        directory: of the files.
        num_blocks: how many there are.
        dtype: NumPy's name of the ids' type in the files.
        length_counts: which lengths its pairs have, see `length_counts`.
        num_empty: pairs left out because one side has no tokens.
        num_too_long: pairs left out because one side is longer than allowed.
    """

    directory: pathlib.Path
    num_blocks: int
    dtype: str
    length_counts: np.ndarray
    num_empty: int
    num_too_long: int

    def __len__(self):
        return int(self.length_counts[:, 2].sum())

    @property
    def num_tokens(self):
        """Tokens of both sides."""
        source_lengths, target_lengths, num_pairs = self.length_counts.T
        return int(((source_lengths + target_lengths) * num_pairs).sum())

    def ids(self, side, number):
        """The token ids of one block's rows, end to end.

        Args:
            side: "source" or "target".
            number: of the block; a tensor in a graph, or an int.
        """
        return tf.io.decode_raw(self._content(side, "ids", number), self.dtype)

    def lengths(self, side, number):
        """The tokens of each of one block's rows, int32 (rows,)."""
        return tf.io.decode_raw(self._content(side, "lengths", number), tf.int32)

    def _content(self, side, name, number):
        number = tf.strings.as_string(number)
        return tf.io.read_file(tf.strings.join([f"{self.directory}/", number, f".{side}.{name}"]))


def length_counts(source_lengths, target_lengths, num_pairs=None):
    """How many pairs have which lengths.

    Args:
        source_lengths, target_lengths: int (n,), in tokens.
        num_pairs: int (n,), how many pairs have them; 1 each if None.

    Returns:
        int64 (different lengths, 3): source length, target length, pairs.

    Example:
        >>> length_counts([3, 2, 3], [4, 5, 4])
        array([[2, 5, 1],
               [3, 4, 2]])
    """
    lengths = np.stack([source_lengths, target_lengths], axis=1).astype(np.int64)
    lengths, places = np.unique(lengths, axis=0, return_inverse=True)
    counts = np.zeros(len(lengths), np.int64)
    np.add.at(counts, places.ravel(), 1 if num_pairs is None else num_pairs)
    return np.column_stack([lengths, counts])


def encode(
    pairs: SentencePairs, tokenizer, max_length: int, directory: str | os.PathLike, times: int = 1
) -> EncodedPairs:
    """Tokenizes a parallel text, and leaves out pairs which are empty or too long on either side.

    Args:
        pairs: the text.
        tokenizer: has `end_id`, `vocab_size`, and `tokenize` from strings `(n,)` to ragged int32 `(n, None)`.
        max_length: longest row that is kept, in tokens, the end token included.
        directory: an empty folder, for the token ids.
        times: how often the text is gone through, for a tokenizer that cuts it differently each time.

    Returns:
        The token ids.

    Raises:
        ValueError: no pair is left.
    """
    num_blocks = -(-times * len(pairs) // _PAIRS_PER_BLOCK)
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
    encoded = EncodedPairs(pathlib.Path(directory), num_blocks, dtype, np.zeros((0, 3), np.int64), 0, 0)
    random = np.random.default_rng(0)
    for _ in range(times):
        for sources, targets in _chunks(pairs):
            sides = [tokenizer.tokenize(tf.constant(sentences)) for sentences in (sources, targets)]
            lengths = np.stack([side.row_lengths().numpy() for side in sides])
            empty = lengths.min(axis=0) == 0
            too_long = ~empty & (lengths.max(axis=0) + 1 > max_length)
            kept = np.flatnonzero(~(empty | too_long))
            blocks = random.integers(num_blocks, size=len(kept))
            order = np.argsort(blocks, kind="stable")
            for name, side in zip(("source", "target"), sides):
                rows = _with_end(tf.gather(side, kept[order]), tokenizer.end_id)
                _append(encoded, name, rows, np.bincount(blocks, minlength=num_blocks))
            counts = np.concatenate([encoded.length_counts, length_counts(*lengths[:, kept] + 1)])
            encoded = dataclasses.replace(
                encoded,
                length_counts=length_counts(*counts.T),
                num_empty=encoded.num_empty + int(empty.sum()),
                num_too_long=encoded.num_too_long + int(too_long.sum()),
            )
    if not len(encoded):
        raise ValueError(
            f"no sentence pair is left of the {len(pairs)} in {pairs.name}: {encoded.num_empty // times} are empty "
            f"on one side, {encoded.num_too_long // times} longer than max_length={max_length} tokens"
        )
    return encoded


def _chunks(pairs):
    sentences = zip(pairs.source, pairs.target)
    while chunk := list(itertools.islice(sentences, _SENTENCES_PER_CALL)):
        yield zip(*chunk)


def _with_end(ragged, end_id):
    return tf.concat([ragged, tf.fill([ragged.nrows(), 1], tf.cast(end_id, ragged.dtype))], axis=1)


def _append(encoded, side, ragged, rows_per_block):
    """Appends rows, sorted by block, to the blocks' files."""
    ids = ragged.flat_values.numpy().astype(encoded.dtype)
    lengths = ragged.row_lengths().numpy().astype("int32")
    row_ends = np.cumsum(rows_per_block)
    id_ends = np.concatenate([[0], np.cumsum(lengths)])[row_ends]
    for name, values, ends in (("ids", ids, id_ends), ("lengths", lengths, row_ends)):
        for number, part in enumerate(np.split(values, ends[:-1])):
            with open(encoded.directory / f"{number}.{side}.{name}", "ab") as file:
                file.write(part.tobytes())
