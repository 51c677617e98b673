"""A text of any length: made-up words, as frequent as Zipf's law has it."""

import itertools
import pathlib

import numpy as np

NUM_WORDS = 50_000
SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiouäöü"]
MIN_WORDS, MAX_WORDS = 4, 20
_LINES_AT_ONCE = 100_000


def write_lines(path, num_lines, seed):
    """Writes a text of random lines, the same for the same seed.

    Args:
        path: of the file.
        num_lines: how many.
        seed: of the words and of the lines.

    Returns:
        The path.
    """
    random = np.random.default_rng(seed)
    syllables = random.permutation(SYLLABLES).tolist()
    words = np.array([word(rank, syllables) for rank in range(NUM_WORDS)], dtype=object)
    frequencies = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    with open(path, "w", encoding="utf-8") as file:
        for begin in range(0, num_lines, _LINES_AT_ONCE):
            lengths = random.integers(MIN_WORDS, MAX_WORDS + 1, min(_LINES_AT_ONCE, num_lines - begin))
            ranks = np.searchsorted(frequencies, random.random(lengths.sum()) * frequencies[-1])
            drawn = iter(words[ranks].tolist())
            file.writelines(" ".join(itertools.islice(drawn, length)) + "\n" for length in lengths.tolist())
    return pathlib.Path(path)


def word(rank, syllables):
    """The word of a rank, whose digits are syllables: no two ranks have the same."""
    text = ""
    while rank >= len(syllables):
        rank, digit = divmod(rank, len(syllables))
        text += syllables[digit]
    return text + syllables[rank]
