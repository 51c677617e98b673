"""Learns a shortlist from parallel text: the target tokens that may translate each source token."""

import hashlib
import itertools
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Annotated

import numpy as np
import tensorflow as tf

from keras_transformer.errors import ConfigError, DamagedFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import (
    locked,
    reading_archive,
    remove_with_checksum,
    replacing,
    replacing_with_checksum,
)
from keras_transformer.model_dir.shortlist_file import Shortlist, write_shortlist
from keras_transformer.runtime.progress import ProgressBar, counted
from keras_transformer.tokenizers import Tokenizer, TokenizerPair, load_tokenizers
from keras_transformer.translation import Translator

from ..text.corpus import SentencePairs, fingerprint_of, in_chunks
from .model_1 import PASSES, Counts, Sentences, best_links, count_links, in_blocks

# The number of candidates for each source token, and the number of frequent target tokens that are
# always candidates.
CANDIDATES_PER_PIECE = 50
FREQUENT_PIECES = 500
# Align this many sentences at a time, to limit memory use.
_SENTENCES_PER_ALIGNMENT = 1024

_log = logging.getLogger(__name__)


def build_shortlist(
    model_dir: ModelDir, pairs: SentencePairs, links_path: str | None = None
) -> None:
    """Learns a shortlist from parallel text and writes it to a model directory.

    If a call is interrupted, the next call resumes after the last completed pass. Tokens beyond the
    model's maximum length are ignored.

    Args:
        links_path: File to write the word alignments of each pair to. See `write_links`. Defaults
            to None, which does not write them.

    Raises:
        ConfigError: No pair has text on both sides.
        LockedError: Another process is making a shortlist in the directory.
    """
    config = model_dir.read_config()
    tokenizers = load_tokenizers(model_dir.path, config.tokenizer, config.data.normalization)
    max_length = config.model.max_length
    with locked(model_dir.path / ".align.lock", "another process is making the shortlist"):
        counts = _learn_counts(model_dir.alignment_path, pairs, tokenizers, max_length)
        if links_path is not None:
            probabilities = counts.probabilities()
            links = (
                best_links(source, target, probabilities)
                for sentences in _tokenized(pairs, tokenizers, max_length)
                for source, target in in_blocks(*sentences)
            )
            write_links(links_path, len(pairs), itertools.chain.from_iterable(links))
        shortlist = shortlist_of(counts, tokenizers)
        files = [tokenizer.file_content for tokenizer in tokenizers.files().values()]
        write_shortlist(model_dir.shortlist_path, shortlist, files)
        remove_with_checksum(model_dir.alignment_path)
    per_token = np.count_nonzero(shortlist.by_source, axis=1).mean()
    _log.info(
        f"{model_dir.shortlist_path}: {len(shortlist.always):,} target tokens always, "
        f"and {per_token:.1f} for each source token"
    )


def shortlist_of(counts: Counts, tokenizers: TokenizerPair) -> Shortlist:
    """Chooses the most probable target tokens for each source token.

    If a source token is also in the target vocabulary, it is a candidate for its own translation.
    """
    frequencies = np.bincount(counts.target_ids, counts.forward, tokenizers.target.vocab_size)
    special = range(Tokenizer.end_id + 1)
    frequent = np.argsort(-frequencies, kind="stable")[:FREQUENT_PIECES]
    always = np.union1d(special, frequent[frequencies[frequent] > 0]).astype("int32")
    by_source = np.zeros((tokenizers.source.vocab_size, 1 + CANDIDATES_PER_PIECE), "int32")
    by_source[:, 0] = _same_pieces(tokenizers)
    order = np.lexsort((-counts.forward, counts.source_ids))
    source_ids = counts.source_ids[order]
    ranks = np.arange(len(order)) - np.searchsorted(source_ids, source_ids)
    best = ranks < CANDIDATES_PER_PIECE
    by_source[source_ids[best], 1 + ranks[best]] = counts.target_ids[order][best]
    return Shortlist(by_source, always)


def attention_links(
    translator: Translator, pairs: SentencePairs
) -> Iterator[list[tuple[int, int]]]:
    """Yields the word alignments of each pair, found by a model with guided alignment.

    End tokens are not aligned.
    """
    for chunk in in_chunks(zip(pairs.source, pairs.target), _SENTENCES_PER_ALIGNMENT):
        sources, targets = zip(*chunk)
        for alignment in translator.align(sources, targets):
            end = len(alignment.source) - 1
            yield [
                (source, target)
                for target, source in enumerate(alignment.positions[:-1])
                if source != end
            ]


def write_links(
    path: str | os.PathLike[str], number: int, links_of_pairs: Iterable[list[tuple[int, int]]]
) -> None:
    """Writes a line for each pair with the positions of aligned tokens, such as "0-0 1-2"."""
    with (
        replacing(path) as temporary,
        open(temporary, "w") as file,
        ProgressBar("linking", "sentence pairs", number) as bar,
    ):
        for links in bar.count(links_of_pairs):
            file.write(" ".join(f"{source}-{target}" for source, target in links) + "\n")


def _same_pieces(tokenizers: TokenizerPair) -> Annotated[np.ndarray, "int32 (source_vocab_size,)"]:
    """Returns the target token with the same text as each source token, or 0 if there is none."""
    places = {piece: place for place, piece in enumerate(_pieces(tokenizers.target))}
    same = [places.get(piece, Tokenizer.pad_id) for piece in _pieces(tokenizers.source)]
    return np.array(same, "int32")


def _pieces(tokenizer: Tokenizer) -> list[bytes]:
    return tokenizer.id_to_piece(tf.range(tokenizer.vocab_size)).numpy().tolist()


def _learn_counts(
    path: pathlib.Path, pairs: SentencePairs, tokenizers: TokenizerPair, max_length: int
) -> Counts:
    # The name identifies everything that the counts depend on.
    text = fingerprint_of(zip(pairs.source, pairs.target))
    contents = [hashlib.sha256(tokenizer.file_content).hexdigest() for tokenizer in tokenizers]
    name = " ".join(map(str, [*text.values(), max_length, *contents]))
    done, counts = _read_state(path, name)
    if done:
        _log.info(f"resuming after pass {done} of {PASSES}")
    num_steps, num_done = PASSES * len(pairs), done * len(pairs)
    with ProgressBar("aligning", "sentence pairs", num_steps, done=num_done) as bar:
        for number in range(done + 1, PASSES + 1):
            bar.details = f"pass {number} of {PASSES}"
            probabilities = None if counts is None else counts.probabilities()
            counts = count_links(_tokenized(pairs, tokenizers, max_length), probabilities, bar)
            with replacing_with_checksum(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, name=np.array(name), passes=np.array(number), **counts._asdict())
    assert counts is not None  # There is at least one pass.
    if not len(counts.keys):
        raise ConfigError(
            f"{pairs.name}: none of the {counted(len(pairs), 'sentence pair')} "
            "has text on both sides"
        )
    return counts


def _tokenized(
    pairs: SentencePairs, tokenizers: TokenizerPair, max_length: int
) -> Iterator[tuple[Sentences, Sentences]]:
    for chunk in in_chunks(zip(pairs.source, pairs.target)):
        sources, targets = zip(*chunk)
        source = tokenizers.source.tokenize(tf.constant(sources))[:, : max_length - 1]
        target = tokenizers.target.tokenize(tf.constant(targets))[:, : max_length - 1]
        # A pair with an empty side has no links, not even between end tokens.
        is_whole = (source.row_lengths().numpy() > 0) & (target.row_lengths().numpy() > 0)
        yield _sentences(source, is_whole), _sentences(target, is_whole)


def _sentences(token_ids: tf.RaggedTensor, is_whole: np.ndarray) -> Sentences:
    """Adds end tokens to sentences, and empties the sentences of pairs with an empty side."""
    ends = tf.fill([token_ids.nrows(), 1], Tokenizer.end_id)
    with_ends = tf.concat([token_ids, ends], axis=1)
    lengths = with_ends.row_lengths().numpy()
    kept = np.repeat(is_whole, lengths)
    return Sentences(with_ends.flat_values.numpy()[kept], lengths * is_whole)


def _read_state(path: pathlib.Path, name: str) -> tuple[int, Counts | None]:
    """Returns the number of completed passes over the same text, and the latest counts."""
    if not path.is_file():
        return 0, None
    try:
        with reading_archive(path, "the state of an earlier run") as arrays:
            if str(arrays["name"]) == name and 1 <= arrays["passes"] <= PASSES:
                return int(arrays["passes"]), Counts(*(arrays[field] for field in Counts._fields))
        _log.info(f"{path} was made from another text; starting again")
    except DamagedFileError as error:
        _log.warning(f"{error}; starting again")
    return 0, None
