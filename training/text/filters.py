"""Filters sentence pairs before training, and holds out pairs for validation."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, NamedTuple

import numpy as np
import regex

from keras_transformer.checks import require, shown
from keras_transformer.config import DataConfig
from keras_transformer.config.sections import scripts_of
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.runtime.packages import missing_packages_named
from keras_transformer.text import read_texts

Pair = tuple[str, str]
# Accepts n pairs, their lengths (n, 2) in characters and their scores (n,), and returns which pairs
# to remove: bool (n,).
Matches = Callable[[list[Pair], np.ndarray, np.ndarray], np.ndarray]

# Correct translations rarely exceed this length or this ratio.
RECOMMENDED = DataConfig(
    max_characters=1000, max_length_ratio=9.0, remove_copies=True, remove_duplicates=True
)

# Remove a sentence if another language is this many times as likely. With 30, the filter keeps all
# short Tatoeba sentences in English, Chinese, Japanese, Arabic and Thai, and removes nearly all
# German captions if you ask for English.
_TIMES_AS_LIKELY = 30


class Filter(NamedTuple):
    """A rule that removes pairs."""

    name: str  # name of a field of DataConfig; "empty" removes pairs with a blank side
    value: int | float | str | bool | None
    matches: Matches

    def __str__(self) -> str:
        if self.value is None or self.value is True:
            return self.name
        return f"{self.name}={self.value}"


def judge(filters: list[Filter], pairs: list[Pair], scores: np.ndarray | None = None) -> np.ndarray:
    """Applies filters to the next pairs of a text, and returns a verdict per pair: uint8 (n,).

    The verdict is 0 for a pair that is kept. Otherwise, it is the number of the first filter that
    matches the pair, counted from 1. Pairs without scores pass `min_score`.
    """
    verdicts = np.zeros(len(pairs), np.uint8)
    if scores is None:
        scores = np.full(len(pairs), np.inf)
    kept = np.arange(len(pairs))
    lengths = np.column_stack(
        [np.fromiter(map(len, side), np.int64, len(pairs)) for side in zip(*pairs)]
    )
    for number, filter_ in enumerate(filters, start=1):
        is_left_out = filter_.matches([pairs[place] for place in kept], lengths[kept], scores[kept])
        verdicts[kept[is_left_out]] = number
        kept = kept[~is_left_out]
    return verdicts


def filters_of(data: DataConfig) -> list[Filter]:
    """Creates the filters that a configuration turns on, for a single pass over a text."""
    least, ratio = data.min_score, data.max_length_ratio
    seen = SeenPairs()
    matches: dict[str, Matches] = {
        "min_score": lambda pairs, lengths, scores: scores < least,
        "min_characters": lambda pairs, lengths, scores: lengths.min(axis=1) < data.min_characters,
        "max_characters": lambda pairs, lengths, scores: lengths.max(axis=1) > data.max_characters,
        "max_length_ratio": lambda pairs, lengths, scores: (
            lengths.max(axis=1) > ratio * lengths.min(axis=1)
        ),
    }
    if data.source_script is not None:
        script = data.source_script
        matches["source_script"] = _is_of_another_script(script, data.min_script_share, side=0)
    if data.target_script is not None:
        script = data.target_script
        matches["target_script"] = _is_of_another_script(script, data.min_script_share, side=1)
    if data.source_language is not None:
        matches["source_language"] = _is_in_another_language(
            "data.source_language", data.source_language, side=0
        )
    if data.target_language is not None:
        matches["target_language"] = _is_in_another_language(
            "data.target_language", data.target_language, side=1
        )
    matches["remove_copies"] = _each(lambda source, target: source.strip() == target.strip())
    # Find duplicates last, so pairs that other filters remove do not use memory.
    matches["remove_duplicates"] = lambda pairs, lengths, scores: seen.add(hash_pairs(pairs))

    filters = [Filter(name, getattr(data, name), rule) for name, rule in matches.items()]
    # None and False turn a filter off, but 0 is a valid value.
    filters = [
        filter_ for filter_ in filters if filter_.value is not None and filter_.value is not False
    ]
    if filters:
        has_blank_side = _each(lambda source, target: not (source.strip() and target.strip()))
        filters.insert(0, Filter("empty", None, has_blank_side))
    return filters


def _each(matches: Callable[..., bool]) -> Matches:
    """Converts a rule for a single pair to a rule for many pairs."""
    return lambda pairs, lengths, scores: np.fromiter(
        (matches(*pair) for pair in pairs), bool, len(pairs)
    )


def _is_of_another_script(script: str, min_share: float, side: int) -> Matches:
    marks = _LetterMarks(script)

    def is_of_another_script(*pair: str) -> bool:
        letters = pair[side].translate(marks)
        return letters.count("+") < min_share * len(letters)

    return _each(is_of_another_script)


def _is_in_another_language(name: str, language: str, side: int) -> Matches:
    with missing_packages_named():
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    rule = "the code of a language that py3langid knows, such as de, zh or yue"
    require(language in identifier.labels, name, rule, language)

    def is_in_another_language(*pair: str) -> bool:
        languages = identifier.rank(pair[side])
        _, highest = languages[0]
        return _TIMES_AS_LIKELY * dict(languages)[language] < highest

    return _each(is_in_another_language)


class _LetterMarks(dict[int, str]):
    """A table for `str.translate` that marks the letters of a script.

    Letters of the script become "+", other letters become "-", and other characters are removed.
    The table is filled with characters as they occur. Regular expressions would take several times
    as long.
    """

    def __init__(self, script: str) -> None:
        super().__init__()
        names = "".join(rf"\p{{scx={name}}}" for name in scripts_of(script))
        self._is_letter = regex.compile(r"\p{L}").match
        self._is_of_script = regex.compile(rf"[{names}]").match

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if not self._is_letter(character):
            mark = ""
        elif self._is_of_script(character):
            mark = "+"
        else:
            mark = "-"
        self[code] = mark
        return mark


class Scores:
    """The scores of the pairs of a corpus, from a file with one score per line.

    The path may be a pattern. In that case, the matching files, sorted by name, correspond to the
    shards of the corpus.

    Example:
        >>> scores = Scores("web.scores", "web.en, web.de")
        >>> scores.take(2)
        array([0.81, 0.03])
    """

    def __init__(self, path: str, corpus: str) -> None:
        self._scores = _read_scores(path)
        self._rule = f"{path}: there must be a line for each sentence pair of {corpus}"
        self._number = 0

    def take(self, number: int) -> Annotated[np.ndarray, "float64 (number,)"]:
        """Returns the scores of the next pairs.

        Raises:
            ConfigError: The file cannot be opened.
            InvalidFileError: A line is not a number, or there are fewer lines than pairs.
        """
        scores = np.fromiter(itertools.islice(self._scores, number), np.float64)
        self._number += len(scores)
        if len(scores) < number:
            raise InvalidFileError(f"{self._rule}; it has {self._number:,}")
        return scores

    def finish(self) -> None:
        """Raises an InvalidFileError if there are more lines than pairs."""
        if next(self._scores, None) is not None:
            raise InvalidFileError(f"{self._rule}; it has more than {self._number:,}")


def _read_scores(path: str) -> Iterator[float]:
    for number, line in enumerate(read_texts([path]), start=1):
        try:
            score = float(line)
        except ValueError:
            score = np.nan
        if np.isnan(score):
            raise InvalidFileError(
                f"{path}: line {number} must be a number; received {shown(line)}"
            )
        yield score


def hash_pairs(pairs: Iterable[Pair]) -> np.ndarray:
    """Returns a hash of each pair, the same in every process: uint64 (n,).

    The probability that any two of 100 million different pairs have the same hash is 3 in 10,000.
    """
    digests = []
    for source, target in pairs:
        # The length marks where the source ends.
        text = f"{len(source)} {source}{target}".encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(text, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), "<u8")


class SeenPairs:
    """Stores the hashes of all pairs so far in a few sorted arrays.

    An array is merged with the array before it as soon as it has half the size of that array. The
    number of arrays, and the number of times that a hash is moved, are about the logarithm of the
    number of pairs. The arrays take 8 bytes of memory per pair, and as much again while the largest
    arrays are merged.
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes, and returns which of them occurred before: bool (n,).

        A hash may have occurred before in this call or in an earlier call.
        """
        different, first_places = np.unique(hashes, return_index=True)
        is_new = np.ones(len(different), bool)
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, different), len(array) - 1)
            is_new &= array[places] != different
        came_before = np.ones(len(hashes), bool)
        came_before[first_places[is_new]] = False
        if is_new.any():
            self._arrays.append(different[is_new])
        while len(self._arrays) > 1 and len(self._arrays[-1]) >= len(self._arrays[-2]) // 2:
            merged = np.concatenate([self._arrays.pop(), self._arrays.pop()])
            # NumPy's stable sort merges the two sorted runs.
            merged.sort(kind="stable")
            self._arrays.append(merged)
        return came_before


class HeldOut:
    """Holds out the pairs with the lowest hashes for validation.

    You choose a fraction of the pairs, or the number of different pairs. The same pairs are held
    out regardless of the order of the text. All copies of a pair are held out with it: no copy is
    used for training, and only one is used for validation. Held-out pairs are kept in memory.
    """

    def __init__(self, fraction: float | None = None, size: int | None = None) -> None:
        self._size = size
        self._last_hash = 2**64 - 1 if fraction is None else int(fraction * 2**64) - 1
        # The pair with each hash, and its positions in the text.
        self._held: dict[int, tuple[Pair, list[int]]] = {}

    def add(self, pairs: list[Pair], places: np.ndarray) -> None:
        hashes = hash_pairs(pairs)
        for number in np.flatnonzero(hashes <= self._last_hash):
            source, target = pairs[number]
            # Pairs with a blank side cannot be used for validation.
            if source.strip() and target.strip():
                _, copies = self._held.setdefault(int(hashes[number]), ((source, target), []))
                copies.append(int(places[number]))
        if self._size is not None and len(self._held) > 2 * self._size:
            self._keep_lowest(self._size)

    def _keep_lowest(self, size: int) -> None:
        lowest = sorted(self._held)[:size]
        self._held = {hash_: self._held[hash_] for hash_ in lowest}
        if len(lowest) == size:
            self._last_hash = lowest[-1]

    def finish(self) -> tuple[list[Pair], list[list[int]]]:
        """Returns the held-out pairs, and the positions of all copies of each pair.

        Pairs are sorted by hash, and positions are ascending.

        Raises:
            ConfigError: The text does not have enough pairs.
        """
        if self._size is not None and len(self._held) < self._size:
            raise ConfigError(
                "--valid-size must be at most the number of different sentence pairs, "
                f"{len(self._held):,}; received --valid-size={self._size}"
            )
        if not self._held:
            raise ConfigError(
                "--valid-fraction must be larger for this text: not one sentence pair is held out"
            )
        self._keep_lowest(len(self._held) if self._size is None else self._size)
        pairs, places = zip(*self._held.values())
        return list(pairs), list(places)
