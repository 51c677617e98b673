"""The text that the benchmarks run on: files of a directory, or text of `examples.corpus`."""

import argparse
import functools
import itertools
import os
import pathlib
from typing import Literal

from examples.corpus import generate
from keras_transformer.checks import require
from keras_transformer.training.text.corpus import SentencePairs, read_pairs

Split = Literal["train", "valid", "test"]

GENERATED = "generated text"
# The names of Multi30k's files.
FILE_NAMES: dict[Split, str] = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
GENERATED_SIZES: dict[Split, int] = {"train": 29_000, "valid": 1_000, "test": 1_000}


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--data`, whose value is the `data` argument of the functions below."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="directory with train, val and test_2016_flickr, each as .en and .de "
        f"(default: {GENERATED})",
    )


def vocab_size_for(data: str | None) -> int:
    """Returns the vocabulary size for a text; generated text has too few words for a large one."""
    return 2000 if data is None else 8000


def sentence_pairs(
    data: str | os.PathLike[str] | None, split: Split, limit: int | None = None
) -> SentencePairs:
    """Returns the first `limit`, or all, sentence pairs of a split, from English into German.

    Raises:
        ConfigError: `limit` is not positive.
        Error: A file cannot be read, or the two files differ in their numbers of lines.
    """
    require(limit is None or limit > 0, "the number of sentence pairs", "positive", limit)
    if data is None:
        pairs = _generated()[split]
    else:
        stem = pathlib.Path(data, FILE_NAMES[split])
        pairs = read_pairs(f"{stem}.en", f"{stem}.de")
    source = list(itertools.islice(pairs.source, limit))
    target = list(itertools.islice(pairs.target, limit))
    return SentencePairs(source, target, pairs.name)


def write_pairs(
    pairs: SentencePairs, stem: str | os.PathLike[str]
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a parallel text to `stem` with ".en" and ".de", and returns the two paths."""
    paths = pathlib.Path(f"{stem}.en"), pathlib.Path(f"{stem}.de")
    for path, lines in zip(paths, (pairs.source, pairs.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def write_text(data: str | None, directory: pathlib.Path) -> dict[str, object]:
    """Writes the text to train and to validate on, and returns the options of `train` for it."""
    source, target = write_pairs(sentence_pairs(data, "train"), directory / "train")
    valid_source, valid_target = write_pairs(sentence_pairs(data, "valid"), directory / "valid")
    return {
        "--source": source,
        "--target": target,
        "--valid-source": valid_source,
        "--valid-target": valid_target,
    }


@functools.cache
def _generated() -> dict[Split, SentencePairs]:
    pairs = iter(generate(sum(GENERATED_SIZES.values())))
    splits: dict[Split, SentencePairs] = {}
    for split, size in GENERATED_SIZES.items():
        source, target = zip(*itertools.islice(pairs, size), strict=True)
        splits[split] = SentencePairs(list(source), list(target), f"{GENERATED}, {split}")
    return splits
