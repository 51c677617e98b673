"""Tokenizes parallel text, and stores the token ids in files."""

import collections
import concurrent.futures
import dataclasses
import operator
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformer.config.values import listed
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir.files import naming_errors
from keras_transformer.runtime.device import num_cores
from keras_transformer.runtime.progress import ProgressBar, counted
from keras_transformer.tensors import Dimension, Tensor
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.tokenizers.text_codec import TextCodec

from ..alignment.model_1 import Counts, Sentences, best_links, in_blocks, learn_probabilities
from ..text.corpus import (
    SentencePairs,
    TextFingerprint,
    TextHash,
    in_chunks,
    pairs_of_epoch,
    pairs_per_epoch,
)
from .augmentation import Augmentation, TermAnnotation

Item = TypeVar("Item")
Result = TypeVar("Result")

# Tokenize this many sentences at a time, to limit memory use.
_SENTENCES_PER_CALL = 8192
# Batches are made from one block of pairs at a time. The block is held in memory.
_PAIRS_PER_BLOCK = 2**18
# Word alignments are learned from at most this many pairs.
_MAX_ALIGNED_PAIRS = 200_000
_SIDES = ("source", "target")
# The number of pairs in a block with the same source length and target length.
LENGTH_COUNT = np.dtype(
    [(name, np.int64) for name in ("block", "source_length", "target_length", "num_pairs")]
)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """Parallel text as token ids. Each sequence ends with the end token.

    The ids are stored in files. Pairs are assigned to blocks at random, so that a long text needs
    only the memory of one block. A short text forms a single block in its original order.
    """

    directory: pathlib.Path
    num_blocks: int
    dtype: str  # NumPy dtype of the ids in the files
    # LENGTH_COUNT (n,): the number of pairs in each block with the same two lengths
    length_counts: np.ndarray
    num_empty: int  # pairs left out because a side has no tokens
    num_too_long: int  # pairs left out because a side is longer than allowed
    fingerprint: TextFingerprint
    # whether there are files of word alignments
    has_links: bool = False

    def __len__(self) -> int:
        return int(self.length_counts["num_pairs"].sum())

    @property
    def num_tokens(self) -> int:
        """The number of tokens on both sides together."""
        counts = self.length_counts
        lengths = counts["source_length"] + counts["target_length"]
        return int((lengths * counts["num_pairs"]).sum())

    @property
    def num_target_tokens(self) -> int:
        """The number of tokens on the target side."""
        return int((self.length_counts["target_length"] * self.length_counts["num_pairs"]).sum())

    def token_ids(
        self, side: str, block: Dimension
    ) -> Annotated[Tensor, "uint16 or int32 (num_tokens,)"]:
        """Reads the token ids of a block. Its sequences are concatenated."""
        return tf.io.decode_raw(self._read(side, "ids", block), self.dtype)

    def lengths(self, side: str, block: Dimension) -> Annotated[Tensor, "int32 (num_pairs,)"]:
        """Reads the number of tokens in each sequence of a block."""
        return tf.io.decode_raw(self._read(side, "lengths", block), tf.int32)

    def links(self, block: Dimension) -> Annotated[Tensor, "uint16 or int32 (num_tokens,)"]:
        """Reads the position of the source token that each target token of a block is aligned with.

        Positions in the sentence are counted from 1. The position is 0 for tokens without a source
        token.
        """
        return tf.io.decode_raw(self._read("target", "links", block), self.dtype)

    def _read(self, side: str, name: str, block: Dimension) -> Tensor:
        number = tf.strings.as_string(block)
        # Use bytes, because the path may not be UTF-8.
        parts = [bytes(self.directory), "/", number, f".{side}.{name}"]
        return tf.io.read_file(tf.strings.join(parts))


def count_lengths(block: int, source_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Counts the pairs of a block with the same two lengths: LENGTH_COUNT (n,), ascending.

    The lengths of each side are int (n,) and less than 2**31.

    Example:
        >>> count_lengths(0, np.array([3, 2, 3]), np.array([4, 5, 4])).tolist()
        [(0, 2, 5, 1), (0, 3, 4, 2)]
    """
    # Sorting single numbers is several times as fast as sorting rows of two numbers.
    both_lengths = (source_lengths.astype(np.int64) << 32) + target_lengths
    both_lengths, num_pairs = np.unique(both_lengths, return_counts=True)
    counts = np.empty(len(both_lengths), LENGTH_COUNT)
    counts["block"] = block
    counts["source_length"] = both_lengths >> 32
    counts["target_length"] = both_lengths & (2**32 - 1)
    counts["num_pairs"] = num_pairs
    return counts


def read_length_counts(directory: pathlib.Path, num_blocks: int) -> np.ndarray:
    """Counts the pairs with the same two lengths in the files of all blocks: LENGTH_COUNT (n,)."""
    length_counts = []
    for block in range(num_blocks):
        source_lengths = np.fromfile(directory / f"{block}.source.lengths", "int32")
        target_lengths = np.fromfile(directory / f"{block}.target.lengths", "int32")
        length_counts.append(count_lengths(block, source_lengths, target_lengths))
    return np.concatenate(length_counts)


# A chunk of tags, sources and targets.
Chunk = tuple[Sequence[str], Sequence[str], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Epochs:
    """Parallel text for several epochs. Each epoch may change the text differently."""

    pairs: SentencePairs
    number: int = 1  # more than 1 if the epochs have different random changes
    augmentation: Augmentation | None = None
    terms: TermAnnotation | None = None

    def __len__(self) -> int:
        return self.number * pairs_per_epoch(self.pairs)

    def chunks(self, text: TextHash) -> Iterator[Chunk]:
        """Yields tags, sources and targets of all epochs, and adds the unchanged text to a hash."""
        with ProgressBar(f"tokenizing {self.pairs.name}", "sentence pairs", len(self)) as bar:
            for epoch in range(self.number):
                first = 0
                for chunk in in_chunks(pairs_of_epoch(self.pairs, epoch), _SENTENCES_PER_CALL):
                    sources: Sequence[str]
                    sources, targets, tags = zip(*chunk)
                    if epoch == 0:
                        text.add(map(operator.add, tags, sources), targets)
                    if self.augmentation is not None:
                        pairs = list(zip(sources, targets, strict=True))
                        sources, targets = zip(*self.augmentation.augment(pairs, epoch, first))
                    if self.terms is not None:
                        sources = self.terms.annotate(sources, targets)
                    yield tags, sources, targets
                    first += len(chunk)
                    bar.advance(len(chunk))


def encode(epochs: Epochs, codec: TextCodec, directory: pathlib.Path) -> EncodedPairs:
    """Converts parallel text to token ids, with tags in front of the sources.

    Pairs are left out if a side is empty or too long.

    Args:
        directory: A new directory for the token ids.

    Raises:
        ConfigError: No pair is left, or the vocabulary lacks a tag.
    """
    tokenizer = codec.tokenizers.source
    missing = {tag for _, tag in epochs.pairs.tags if tag and tag not in tokenizer.tags}
    if missing:
        rule = "left out"
        if tokenizer.tags:
            rule = f"among {listed(tokenizer.tags)}, which the vocabulary has"
        raise ConfigError(f"data.tags must be {rule}; received {listed(sorted(missing))}")
    directory.mkdir()
    num_blocks = max(-(-len(epochs) // _PAIRS_PER_BLOCK), 1)
    vocab_size = max(tokenizer.vocab_size for tokenizer in codec.tokenizers)
    dtype = "uint16" if vocab_size <= 2**16 else "int32"
    random = np.random.default_rng(0)
    num_kept = num_empty = num_too_long = 0
    text = TextHash()

    def tokenize(chunk: Chunk) -> tuple[Sequence[str], tuple[Any, Any]]:
        tags, sources, targets = chunk
        tag_ids = _tag_ids(tags, tokenizer)
        return tags, codec.encode_whole_pairs(tf.constant(sources), tf.constant(targets), tag_ids)

    # Random tokenization depends on the order of the calls, so it must not run in several threads.
    is_random = any(tokenizer.is_random for tokenizer in codec.tokenizers)
    num_threads = 1 if is_random else num_cores()
    for tags, sides in _map_in_threads(tokenize, epochs.chunks(text), num_threads):
        lengths = np.stack([np.asarray(side.lengths) for side in sides])  # (2, chunk)
        is_empty = (lengths == [[1 + (tag != "") for tag in tags], [1] * len(tags)]).any(axis=0)
        is_too_long = ~is_empty & (lengths.max(axis=0) > codec.max_length)
        kept = np.flatnonzero(~(is_empty | is_too_long))
        blocks = random.integers(num_blocks, size=len(kept))
        order = np.argsort(blocks, kind="stable")
        for name, side in zip(_SIDES, sides, strict=True):
            rows = tf.gather(side.token_ids, kept[order])
            _append(directory, name, rows, np.bincount(blocks, minlength=num_blocks), dtype)
        num_kept += len(kept)
        num_empty += int(is_empty.sum())
        num_too_long += int(is_too_long.sum())
    if not num_kept:
        raise _nothing_left(epochs, num_empty, num_too_long, codec.max_length)
    return EncodedPairs(
        directory,
        num_blocks,
        dtype,
        read_length_counts(directory, num_blocks),
        num_empty,
        num_too_long,
        text.fingerprint(),
    )


def align_encoded(pairs: EncodedPairs) -> EncodedPairs:
    """Adds word alignments to the pairs, for guided alignment.

    See Garg et al. 2019, arXiv 1909.02074. IBM Model 1 is trained on at most 200,000 of the pairs.
    The alignments on which both directions agree are written next to the token ids.
    """
    num_pairs = min(len(pairs), _MAX_ALIGNED_PAIRS)
    probabilities = learn_probabilities(
        lambda: _first_pairs(pairs, num_pairs), num_pairs, "aligning tokens"
    )
    with ProgressBar("linking tokens", "sentence pairs", len(pairs)) as bar:
        for block in range(pairs.num_blocks):
            path = pairs.directory / f"{block}.target.links"
            with naming_errors(path), open(path, "wb") as file:
                for source, target in in_blocks(*_block_sentences(pairs, block)):
                    places = _source_places(source, target, probabilities)
                    file.write(places.astype(pairs.dtype).tobytes())
                    bar.advance(len(source.lengths))
    return dataclasses.replace(pairs, has_links=True)


def _map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], num_threads: int
) -> Iterator[Result]:
    """Yields the results of a function for items, in the order of the items.

    Threads help because TensorFlow releases the GIL while it computes. At most `num_threads` items
    are read ahead.
    """
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        futures: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
        for item in items:
            futures.append(pool.submit(function, item))
            if len(futures) > num_threads:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()


def _nothing_left(
    epochs: Epochs, num_empty: int, num_too_long: int, max_length: int
) -> ConfigError:
    pairs = epochs.pairs
    num_empty //= epochs.number
    num_too_long //= epochs.number
    if not num_empty + num_too_long:
        weights = ", ".join(f"{weight:g}" for _, weight in pairs.weights)
        return ConfigError(
            f"{pairs.name}: data.weights must be large enough that an epoch has a sentence pair; "
            f"received data.weights=[{weights}] for {counted(len(pairs), 'pair')} in total"
        )
    return ConfigError(
        f"{pairs.name}: none of the {num_empty + num_too_long:,} sentence pairs can be used: "
        f"{num_empty:,} are empty on one side, "
        f"{num_too_long:,} are longer than max_length={max_length} tokens"
    )


def _tag_ids(tags: Sequence[str], tokenizer: Tokenizer) -> tf.RaggedTensor | None:
    """Returns the tag token in front of each source, int32 (batch, None), or None without tags.

    Rows without a tag are empty.
    """
    if not any(tags):
        return None
    token_ids = tf.constant([tokenizer.tags[tag] for tag in tags if tag], tf.int32)
    return tf.RaggedTensor.from_row_lengths(token_ids, [int(tag != "") for tag in tags])


def _append(
    directory: pathlib.Path,
    side: str,
    ragged: tf.RaggedTensor,
    rows_per_block: np.ndarray,
    dtype: str,
) -> None:
    """Appends rows, which are sorted by block, to the files of the blocks."""
    ids = ragged.flat_values.numpy().astype(dtype)
    lengths = ragged.row_lengths().numpy().astype("int32")
    row_ends = np.cumsum(rows_per_block)
    id_ends = np.concatenate([[0], np.cumsum(lengths)])[row_ends]
    for name, values, ends in (("ids", ids, id_ends), ("lengths", lengths, row_ends)):
        for block, part in enumerate(np.split(values, ends[:-1])):
            path = directory / f"{block}.{side}.{name}"
            with naming_errors(path), open(path, "ab") as file:
                file.write(part.tobytes())


def _block_sentences(pairs: EncodedPairs, block: int) -> tuple[Sentences, Sentences]:
    return _sentences("source", pairs, block), _sentences("target", pairs, block)


def _sentences(side: str, pairs: EncodedPairs, block: int) -> Sentences:
    token_ids = np.asarray(pairs.token_ids(side, block))
    return Sentences(token_ids, np.asarray(pairs.lengths(side, block)))


def _source_places(source: Sentences, target: Sentences, probabilities: Counts) -> np.ndarray:
    """Returns the position of each target token's source token, from 1, or 0 if there is none."""
    places = np.zeros(len(target.token_ids), "int64")
    begins = np.cumsum(target.lengths) - target.lengths
    for begin, links in zip(begins, best_links(source, target, probabilities), strict=True):
        for source_place, target_place in links:
            places[begin + target_place] = source_place + 1
    return places


def _first_pairs(pairs: EncodedPairs, number: int) -> Iterator[tuple[Sentences, Sentences]]:
    """Yields the first `number` pairs, which are a random sample if there are several blocks."""
    for block in range(pairs.num_blocks):
        source, target = _block_sentences(pairs, block)
        num_of_block = min(number, len(source.lengths))
        yield source.part(0, num_of_block), target.part(0, num_of_block)
        number -= num_of_block
        if number <= 0:
            return
