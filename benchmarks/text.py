"""The text that the benchmarks run on: the files of a directory, or text that `examples.corpus`
generates."""

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
        help=f"directory with train, val and test_2016_flickr, each as .en and .de (default: "
        f"{GENERATED})",
    )


def vocab_size_for(data: str | None) -> int:
    """Returns the vocabulary size for a text; the generated text has too few different words for a
    large one."""
    return 2000 if data is None else 8000


def sentence_pairs(
    data: str | os.PathLike[str] | None, split: Split, limit: int | None = None
) -> SentencePairs:
    """Returns the first `limit`, or all, English sentences of a split and their German
    translations.

    Raises:
        ConfigError: `limit` is not positive.
        Error: A file cannot be read, or the two files differ in their numbers of lines.
    """
    require(limit is None or limit > 0, "the number of sentence pairs", "positive", limit)
    if data is None:
        pairs = _generated()[split]
    else:
        pairs = read_pairs(
            *(pathlib.Path(data, f"{FILE_NAMES[split]}.{language}") for language in ("en", "de"))
        )
    source, target = (list(itertools.islice(side, limit)) for side in (pairs.source, pairs.target))
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
    """Writes the text to train on and to validate on, and returns the options of `keras-transformer
    train` for it."""
    train, valid = (
        write_pairs(sentence_pairs(data, split), directory / split) for split in ("train", "valid")
    )
    return {
        "--source": train[0],
        "--target": train[1],
        "--valid-source": valid[0],
        "--valid-target": valid[1],
    }


@functools.cache
def _generated() -> dict[Split, SentencePairs]:
    pairs = iter(generate(sum(GENERATED_SIZES.values())))
    splits: dict[Split, SentencePairs] = {}
    for split, size in GENERATED_SIZES.items():
        source, target = zip(*itertools.islice(pairs, size), strict=True)
        splits[split] = SentencePairs(list(source), list(target), f"{GENERATED}, {split}")
    return splits
