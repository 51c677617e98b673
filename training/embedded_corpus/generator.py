"""The corpus: sentences of every kind at random, none of them twice, in three splits."""

import itertools
import pathlib
import random
import re

from keras_transformer.files import replacing

from .anaphora import it_after_all, it_is_but, it_is_done_too, it_is_given, it_is_why
from .descriptions import birth, comparison, existence, placement, profession, residence
from .quantities import counting, schedule, shopping
from .speech import question, question_word, quotation, request
from .statements import contrast, coordination, fronted, generality, passive, state, statement
from .subordination import intention, purpose, relative_clause, reported, subordinate

MIN_WORDS, MAX_WORDS = 4, 22
WEIGHTS = {
    statement: 14,
    fronted: 14,
    state: 2,
    subordinate: 18,
    reported: 8,
    relative_clause: 9,
    question: 6,
    question_word: 4,
    it_is_why: 4,
    it_after_all: 5,
    it_is_done_too: 2,
    it_is_given: 3,
    it_is_but: 1,
    purpose: 4,
    intention: 3,
    quotation: 5,
    shopping: 6,
    counting: 5,
    existence: 2,
    comparison: 2,
    passive: 4,
    placement: 4,
    schedule: 5,
    birth: 1,
    residence: 1,
    profession: 1,
    coordination: 6,
    contrast: 1,
    request: 2,
    generality: 2,
}
SENTENCES = [make for make, weight in WEIGHTS.items() for _ in range(weight)]


class Pick:
    """Random choices, the same on every Python: only `random()` is promised to be stable."""

    def __init__(self, seed):
        self._random = random.Random(seed).random

    def __call__(self, options):
        return options[int(self._random() * len(options))]

    def chance(self, probability):
        return self._random() < probability

    def number(self, low, high):
        return low + int(self._random() * (high - low + 1))


def generate(num_pairs: int, seed: int = 0) -> list[tuple[str, str]]:
    """Distinct English-German sentence pairs.

    No English sentence and no German sentence occurs twice, so that any division into training and
    test data keeps the test unseen. A longer list with the same seed begins with the shorter one.

    Args:
        num_pairs: how many.
        seed: an integer; the pairs depend on nothing else.

    Raises:
        ValueError: if num_pairs is negative.

    Example:
        >>> len(generate(3, seed=1))
        3
    """
    if num_pairs < 0:
        raise ValueError(f"num_pairs must not be negative, received {num_pairs}")
    pick = Pick(seed)
    pairs, seen_english, seen_german = [], set(), set()
    while len(pairs) < num_pairs:
        english, german = pick(SENTENCES)(pick)
        stutters = re.search(r"\b(\w{4,}) \1\b", german)  # dass die Frau Frau Weber anruft
        fits = MIN_WORDS <= len(english.split()) <= MAX_WORDS and not stutters
        if fits and english not in seen_english and german not in seen_german:
            seen_english.add(english)
            seen_german.add(german)
            pairs.append((english, german))
    return pairs


def write(
    directory,
    train_pairs: int = 30_000,
    valid_pairs: int = 500,
    test_pairs: int = 1_000,
    seed: int = 0,
) -> list[pathlib.Path]:
    """Writes train.en, train.de, valid.en, valid.de, test.en and test.de: a sentence a line, UTF-8.

    Returns:
        The paths of the files, in that order.
    """
    pairs = iter(generate(train_pairs + valid_pairs + test_pairs, seed))
    paths = []
    for split, size in ("train", train_pairs), ("valid", valid_pairs), ("test", test_pairs):
        part = list(itertools.islice(pairs, size))
        for column, language in enumerate(("en", "de")):
            path = pathlib.Path(directory, f"{split}.{language}")
            with replacing(path) as temporary:
                lines = (pair[column] + "\n" for pair in part)
                temporary.write_bytes("".join(lines).encode())
            paths.append(path)
    return paths
