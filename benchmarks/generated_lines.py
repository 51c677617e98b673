"""A parallel text of any length: made-up words, as frequent as Zipf's law has it."""

import pathlib

import numpy as np

NUM_WORDS = 50_000
LONGEST_WORD = 5  # syllables
MIN_WORDS, MAX_WORDS = 4, 20
_LINES_AT_ONCE = 100_000


def write_lines(path, num_lines, seed):
    """Writes a text of random lines, the same for the same seed.

    Args:
        path: of the file.
        num_lines: how many.
        seed: of the words and of the lines.
    """
    random = np.random.default_rng(seed)
    words = make_words(random)
    frequencies = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    with open(path, "w", encoding="utf-8") as file:
        for begin in range(0, num_lines, _LINES_AT_ONCE):
            lengths = random.integers(MIN_WORDS, MAX_WORDS + 1, min(_LINES_AT_ONCE, num_lines - begin))
            places = np.searchsorted(frequencies, random.random(lengths.sum()) * frequencies[-1])
            drawn = iter(words[places])
            file.writelines(
                " ".join(next(drawn) for _ in range(length)) + "\n" for length in lengths.tolist()
            )
    return pathlib.Path(path)


def make_words(random):
    """Distinct words of one to five syllables, an array of strings."""
    consonants, vowels = list("bdfghjklmnprstvwz"), list("aeiouäöü")
    made = {}
    while len(made) < NUM_WORDS:
        size = random.integers(1, LONGEST_WORD + 1)
        word = "".join(c + v for c, v in zip(random.choice(consonants, size), random.choice(vowels, size)))
        made[word] = None
    return np.array(list(made), dtype=object)
