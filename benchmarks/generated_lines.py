"""Text of any length, made of invented words whose frequencies follow Zipf's law."""

import gzip
import itertools
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import zstandard

NUM_WORDS = 50_000
SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiouäöü"]
MIN_WORDS, MAX_WORDS = 4, 20
_LINES_PER_CHUNK = 100_000


def write_shards(directory: pathlib.Path, name: str, num_lines: int, lines_per_shard: int, seed: int) -> str:
    """Writes random lines into compressed files, `.gz` and `.zst` in turns, and returns the pattern of the files.

    Their names end with `name`, such as "en", and the suffix. The seed determines the words as well as the lines.
    """
    rest = lines(num_lines, seed)
    for number in range(-(-num_lines // lines_per_shard)):
        suffix, open_compressed = (("gz", gzip.open), ("zst", zstandard.open))[number % 2]
        with open_compressed(directory / f"shard-{number:03d}.{name}.{suffix}", "wt", encoding="utf-8") as file:
            file.writelines(itertools.islice(rest, lines_per_shard))
    return str(directory / f"shard-*.{name}.*")


def lines(num_lines: int, seed: int) -> Iterator[str]:
    """Yields random lines with their ends, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    syllables = random.permutation(SYLLABLES).tolist()
    words = np.array([word(rank, syllables) for rank in range(NUM_WORDS)], dtype=object)
    cumulative_frequencies = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    for begin in range(0, num_lines, _LINES_PER_CHUNK):
        lengths = random.integers(MIN_WORDS, MAX_WORDS + 1, min(_LINES_PER_CHUNK, num_lines - begin))
        points = random.random(lengths.sum()) * cumulative_frequencies[-1]
        chosen = iter(words[np.searchsorted(cumulative_frequencies, points)].tolist())
        yield from (" ".join(itertools.islice(chosen, length)) + "\n" for length in lengths.tolist())


def word(rank: int, syllables: Sequence[str]) -> str:
    """Writes a number in the positional system whose digits are the syllables: different numbers, different words."""
    text = ""
    while rank >= len(syllables):
        rank, digit = divmod(rank, len(syllables))
        text += syllables[digit]
    return text + syllables[rank]
