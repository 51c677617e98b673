"""The vocabularies of other programs, in the order that ours have: padding, unknown, start, end, then the others."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..config.rules import require
from ..errors import ConfigError
from ..tokenizers import PretrainedSentencePieceTokenizer, TokenizerPair

_END, _UNKNOWN, _PADDING = "</s>", "<unk>", "<pad>"


class Vocabulary(NamedTuple):
    """A vocabulary of another program.

    Attributes:
        pieces: list of str. The pieces in our order, without special ones.
        rows: list of int or None. The other program's id of each of our ids, with special ones; None if it has none.
    """

    pieces: Sequence[str]
    rows: Sequence[int | None]

    @classmethod
    def of(cls, ids: Mapping[str, int], path: pathlib.Path, num_rows: int, start_id: int | None = None) -> "Vocabulary":
        """Orders a vocabulary.

        Args:
            ids: the id of every piece.
            path: path of its file, for messages.
            num_rows: int. How many ids the model has.
            start_id: int or None. The id that translations begin with. Defaults to None: none, but zeros.

        Raises:
            ConfigError: The ids are not those from 0 to `num_rows - 1`, or a special piece is missing.
        """
        size = len(ids)
        require(all(type(each) is int for each in ids.values()), f"{path}: the ids", "whole numbers", "others")
        require(sorted(ids.values()) == list(range(size)), f"{path}: the ids", f"those from 0 to {size - 1}", "others")
        require(size == num_rows, f"{path}: the number of pieces", f"the model's {num_rows}", size)
        for piece in (_END, _UNKNOWN):
            if piece not in ids:
                raise ConfigError(f"{path}: the vocabulary has no {piece}")
        others = sorted(ids.keys() - {_END, _UNKNOWN, _PADDING}, key=ids.__getitem__)
        special = [ids.get(_PADDING), ids[_UNKNOWN], start_id, ids[_END]]
        return cls(others, [*special, *(ids[piece] for piece in others)])


def tokenizers_of(source: tuple[pathlib.Path, Vocabulary], target: tuple[pathlib.Path, Vocabulary]) -> TokenizerPair:
    """Makes tokenizers of each language's SentencePiece model and vocabulary; one, if they are the same.

    Raises:
        ConfigError: A file is missing, or is not a SentencePiece model that can be used.
    """
    tokenizers = []
    for path, vocabulary in (source, target):
        try:
            tokenizers.append(PretrainedSentencePieceTokenizer.with_vocabulary(read_bytes(path), vocabulary.pieces))
        except ConfigError as error:
            raise error if str(error).startswith(str(path)) else ConfigError(f"{path}: {error}") from None
    first, second = tokenizers
    return TokenizerPair.of(first) if first.file_content == second.file_content else TokenizerPair(first, second)


def read_bytes(path: pathlib.Path) -> bytes:
    """Reads a file.

    Raises:
        ConfigError: It is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
