"""Scores of sentence pairs, a number on each line of a file, by which pairs are left out."""

import itertools
from typing import Annotated

import numpy as np

from keras_transformer.config.rules import shown
from keras_transformer.errors import InvalidFileError

from .text_files import read_texts


class Scores:
    """The scores of the pairs of a corpus, read in their order.

    Args:
        path: str. The path of a file with a number on each line, as `read_lines` reads it, or a pattern; its files
            belong to the corpus' shards in the order of their names.
        corpus: str. The corpus' name in messages.

    Raises:
        ConfigError: A pattern matches no file, or a pipe cannot be opened.
        InvalidFileError: A pipe holds something other than text.

    Example:
        >>> scores = Scores("web.scores", "web.en, web.de")
        >>> scores.take(2)
        array([0.81, 0.03])
    """

    def __init__(self, path: str, corpus: str) -> None:
        self._lines = iter(read_texts([path]))
        self._path, self._corpus = path, corpus
        self._number = 0

    def take(self, number: int) -> Annotated[np.ndarray, "float64 (number,)"]:
        """Returns the scores of the next pairs.

        Raises:
            ConfigError: The file cannot be opened.
            InvalidFileError: A line is not a number, or there are not so many lines.
        """
        lines = list(itertools.islice(self._lines, number))
        scores = np.fromiter(map(self._read, range(len(lines)), lines), np.float64, len(lines))
        self._number += len(lines)
        if len(lines) < number:
            self._refuse(f"it has {self._number:,}")
        return scores

    def finish(self) -> None:
        """Checks that there are no more lines.

        Raises:
            InvalidFileError: There are.
        """
        if next(self._lines, None) is not None:
            self._refuse(f"it has more than {self._number:,}")

    def _read(self, place: int, line: str) -> float:
        try:
            score = float(line)
        except ValueError:
            score = np.nan
        if np.isnan(score):
            raise InvalidFileError(
                f"{self._path}: line {self._number + place + 1} must be a number; received {shown(line)}"
            )
        return score

    def _refuse(self, what: str) -> None:
        raise InvalidFileError(f"{self._path}: there must be a line for each sentence pair of {self._corpus}; {what}")
