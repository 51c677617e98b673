"""The text that is measured on: a directory's, or else the embedded corpus."""

import functools
import itertools
import pathlib

from keras_transformer.training.corpus import SentencePairs, read_pairs
from keras_transformer.training.embedded_corpus import generate

# Names of Multi30k's files.
FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
EMBEDDED_SIZES = {"train": 29_000, "valid": 1_000, "test": 1_000}


def add_data_option(parser):
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="where train, val and test_2016_flickr lie, each .en and .de; without it, the embedded corpus",
    )


def sentence_pairs(data: str | None, split: str, limit: int | None = None) -> SentencePairs:
    """English sentences and their German translations.

    Args:
        data: a directory, or None for the embedded corpus.
        split: "train", "valid" or "test".
        limit: how many of the first pairs; None for all.
    """
    if data is None:
        pairs = _embedded()[split]
    else:
        paths = [pathlib.Path(data, f"{FILES[split]}.{language}") for language in ("en", "de")]
        pairs = read_pairs(*paths)
    source, target = (list(itertools.islice(side, limit)) for side in (pairs.source, pairs.target))
    return SentencePairs(source, target, pairs.name)


def write_pairs(pairs: SentencePairs, stem):
    """Writes a parallel text as `stem`.en and `stem`.de.

    Returns:
        The two paths.
    """
    paths = [pathlib.Path(f"{stem}.{language}") for language in ("en", "de")]
    for path, lines in zip(paths, (pairs.source, pairs.target)):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


@functools.cache
def _embedded():
    pairs = iter(generate(sum(EMBEDDED_SIZES.values())))
    splits = {}
    for split, size in EMBEDDED_SIZES.items():
        source, target = zip(*itertools.islice(pairs, size))
        splits[split] = SentencePairs(list(source), list(target), f"embedded corpus, {split}")
    return splits
