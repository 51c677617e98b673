"""A parallel text as token ids, in files."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.model_dir.files import naming_errors
from keras_transformer.runtime.progress import ProgressBar

from ..text.corpus import SentencePairs
from ..text.fingerprint import TextHash
from ..text.sampling import pairs_of_epoch, pairs_per_epoch

# Sentences tokenized at a time; bounds memory.
_SENTENCES_PER_CALL = 8192
# Batches are made of one block at a time, which is held in memory.
_PAIRS_PER_BLOCK = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """A parallel text as token ids; each sequence ends with the end token.

    The ids are kept in files, in blocks to which pairs were assigned at random, so that a long text needs no more
    memory than one block. A short text is one block, in its own order.

    Args:
        directory: path of the files.
        num_blocks: int.
        dtype: str. NumPy's name of the type of the ids in the files.
        length_counts: int64 (n, 4). How many pairs have which lengths; the columns are block, source length, target
            length and number of pairs.
        num_empty: int. Pairs left out because a side has no tokens.
        num_too_long: int. Pairs left out because a side is longer than allowed.
        fingerprint: dict, from `TextHash`. Defaults to none.
    """

    directory: pathlib.Path
    num_blocks: int
    dtype: str
    length_counts: np.ndarray
    num_empty: int
    num_too_long: int
    fingerprint: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.length_counts[:, 3].sum())

    @property
    def num_tokens(self) -> int:
        """The number of tokens on both sides together."""
        _, source_lengths, target_lengths, num_pairs = self.length_counts.T
        return int(((source_lengths + target_lengths) * num_pairs).sum())

    @property
    def num_target_tokens(self) -> int:
        """The number of tokens on the target side."""
        _, _, target_lengths, num_pairs = self.length_counts.T
        return int((target_lengths * num_pairs).sum())

    def share_of(self, token_ids: Sequence[int], side: str) -> float:
        """Returns how many of the tokens on a side are among some ids, as a share. One block stands for all.

        Args:
            token_ids: the ids.
            side: "source" or "target".
        """
        ids = np.fromfile(self.directory / f"0.{side}.ids", self.dtype)
        return float(np.isin(ids, token_ids).mean())

    def token_ids(self, side: str, block: Any) -> Any:
        """Reads the token ids of a block, all sequences end to end.

        Args:
            side: "source" or "target".
            block: int or int scalar tensor.

        Returns:
            Tensor (number of tokens,) of the dtype.
        """
        return tf.io.decode_raw(self._read(side, "ids", block), self.dtype)

    def lengths(self, side: str, block: Any) -> Any:
        """Reads the number of tokens in each sequence of a block: int32 (number of pairs,)."""
        return tf.io.decode_raw(self._read(side, "lengths", block), tf.int32)

    def _read(self, side: str, name: str, block: Any) -> Any:
        path = tf.strings.join([f"{self.directory}/", tf.strings.as_string(block), f".{side}.{name}"])
        return tf.io.read_file(path)


def count_lengths(lengths: np.ndarray) -> np.ndarray:
    """Counts equal rows.

    Args:
        lengths: int (n, 3), one row per pair: block, source length, target length.

    Returns:
        int64 (number of different rows, 4), in order.

    Example:
        >>> count_lengths(np.array([[0, 3, 4], [0, 2, 5], [0, 3, 4]]))
        array([[0, 2, 5, 1],
               [0, 3, 4, 2]])
    """
    different, counts = np.unique(np.asarray(lengths, np.int64), axis=0, return_counts=True)
    return np.column_stack([different, counts])


def encode(
    pairs: SentencePairs,
    tokenizer: Any,
    max_length: int,
    directory: str | os.PathLike[str],
    times: int = 1,
    target_tokenizer: Any = None,
) -> EncodedPairs:
    """Tokenizes a parallel text and leaves out pairs of which a side is empty or too long.

    Args:
        pairs: SentencePairs.
        tokenizer: has `end_id`, `vocab_size`, and `tokenize` from strings (n,) to ragged int32 (n, None).
        max_length: int. Tokens of the longest sequence to keep, including its end token.
        directory: str or path of a new directory for the token ids.
        times: int. How many epochs of the text to tokenize, for a tokenizer that segments it differently each time.
            Defaults to 1.
        target_tokenizer: the same for the target, if it has a vocabulary of its own. Defaults to `tokenizer`.

    Raises:
        ValueError: No pair is left.
    """
    tokenizers = {"source": tokenizer, "target": target_tokenizer or tokenizer}
    directory = pathlib.Path(directory)
    directory.mkdir()
    num_pairs = times * pairs_per_epoch(pairs)
    num_blocks = max(-(-num_pairs // _PAIRS_PER_BLOCK), 1)
    dtype = "uint16" if max(each.vocab_size for each in tokenizers.values()) <= 2**16 else "int32"
    random = np.random.default_rng(0)
    num_empty = num_too_long = 0
    text = TextHash()
    for epoch, sources, targets in _chunks(pairs, times, num_pairs):
        if epoch == 0:
            text.add(sources, targets)
        texts = {"source": sources, "target": targets}
        sides = {side: each.tokenize(tf.constant(texts[side])) for side, each in tokenizers.items()}
        lengths = np.stack([side.row_lengths().numpy() for side in sides.values()])  # (2, chunk)
        is_empty = lengths.min(axis=0) == 0
        is_too_long = ~is_empty & (lengths.max(axis=0) + 1 > max_length)
        kept = np.flatnonzero(~(is_empty | is_too_long))
        blocks = random.integers(num_blocks, size=len(kept))
        order = np.argsort(blocks, kind="stable")
        for side, ragged in sides.items():
            rows = _with_end(tf.gather(ragged, kept[order]), tokenizer.end_id)
            _append(directory, side, rows, np.bincount(blocks, minlength=num_blocks), dtype)
        num_empty += int(is_empty.sum())
        num_too_long += int(is_too_long.sum())
    length_counts = np.concatenate([_count_lengths_of_block(directory, block) for block in range(num_blocks)])
    if not len(length_counts):
        raise ValueError(
            f"{pairs.name}: none of the {num_pairs // times:,} sentence pairs can be used: {num_empty // times:,} are "
            f"empty on one side, {num_too_long // times:,} are longer than max_length={max_length} tokens"
        )
    return EncodedPairs(directory, num_blocks, dtype, length_counts, num_empty, num_too_long, text.fingerprint())


def _count_lengths_of_block(directory: pathlib.Path, block: int) -> np.ndarray:
    source, target = (np.fromfile(directory / f"{block}.{side}.lengths", "int32") for side in ("source", "target"))
    return count_lengths(np.column_stack([np.full(len(source), block), source, target]))


def _chunks(pairs: SentencePairs, times: int, num_pairs: int) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    with ProgressBar(f"tokenizing {pairs.name}", "sentence pairs", num_pairs) as bar:
        for epoch in range(times):
            sentences = pairs_of_epoch(pairs, epoch)
            while chunk := list(itertools.islice(sentences, _SENTENCES_PER_CALL)):
                sources, targets = zip(*chunk)
                yield epoch, sources, targets
                bar.advance(len(chunk))


def _with_end(ragged: Any, end_id: int) -> Any:
    return tf.concat([ragged, tf.fill([ragged.nrows(), 1], tf.cast(end_id, ragged.dtype))], axis=1)


def _append(directory: pathlib.Path, side: str, ragged: Any, rows_per_block: np.ndarray, dtype: str) -> None:
    """Appends rows, which are in the order of their blocks, to the files of the blocks."""
    ids = ragged.flat_values.numpy().astype(dtype)
    lengths = ragged.row_lengths().numpy().astype("int32")
    row_ends = np.cumsum(rows_per_block)
    id_ends = np.concatenate([[0], np.cumsum(lengths)])[row_ends]
    for name, values, ends in (("ids", ids, id_ends), ("lengths", lengths, row_ends)):
        for block, part in enumerate(np.split(values, ends[:-1])):
            path = directory / f"{block}.{side}.{name}"
            with naming_errors(path), open(path, "ab") as file:
                file.write(part.tobytes())
