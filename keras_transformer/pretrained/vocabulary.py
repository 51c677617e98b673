"""The vocabularies of other programs, in the order that ours have: padding, unknown, start, end, then the others."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..config import TokenizerConfig
from ..config.rules import require
from ..config.sections import TokenizerKind
from ..errors import ConfigError
from ..tokenizers import PretrainedSentencePieceTokenizer, SentencePieceTokenizer, TokenizerPair
from ..tokenizers.sentencepiece_model import check_piece, parse_model
from .foreign_files import read_sentencepiece, reading

_END, _UNKNOWN, _PADDING = "</s>", "<unk>", "<pad>"
# Only this package's tokenizers have it.
_START = "<start>"


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
            InvalidFileError: The ids are not those from 0 to `num_rows - 1`, or a special piece is missing, or a piece
                cannot be one of a tokenizer's.
        """
        with reading(path):
            size = len(ids)
            require(size == num_rows, "the number of pieces", f"the model's {num_rows}", size)
            if sorted(ids.values()) != list(range(size)):
                raise ConfigError(f"the ids must be those from 0 to {size - 1}, each once")
            require(start_id is None or 0 <= start_id < size, "the start id", f"0 to {size - 1}", start_id)
            for piece in ids:
                check_piece(piece)
            for piece in (_END, _UNKNOWN):
                if piece not in ids:
                    raise ConfigError(f"the vocabulary has no {piece}")
            if _START in ids:
                raise ConfigError(f"the vocabulary must not have {_START}, which is a special piece here")
        others = sorted(ids.keys() - {_END, _UNKNOWN, _PADDING}, key=ids.__getitem__)
        special = [ids.get(_PADDING), ids[_UNKNOWN], start_id, ids[_END]]
        return cls(others, [*special, *(ids[piece] for piece in others)])


def tokenizers_of(source: tuple[pathlib.Path, Vocabulary], target: tuple[pathlib.Path, Vocabulary]) -> TokenizerPair:
    """Makes tokenizers of each language's SentencePiece model and vocabulary; one, if they are the same.

    Raises:
        InvalidFileError: A file is missing, or is not a SentencePiece model that can be used.
    """
    tokenizers = []
    for path, vocabulary in (source, target):
        content = read_sentencepiece(path)
        with reading(path):
            tokenizers.append(PretrainedSentencePieceTokenizer.with_vocabulary(content, vocabulary.pieces))
    first, second = tokenizers
    return TokenizerPair.of(first) if first.file_content == second.file_content else TokenizerPair(first, second)


def own_tokenizer(path: pathlib.Path, sizes: tuple[int, int]) -> tuple[TokenizerConfig, SentencePieceTokenizer]:
    """Reads a tokenizer that was trained by this package, for both languages.

    Args:
        path: path of the SentencePiece model.
        sizes: how many ids the model has for the source, and for the target.

    Raises:
        InvalidFileError: It is another file, or has another number of pieces.
    """
    content = read_sentencepiece(path)
    with reading(path):
        proto = parse_model(content)
        spec = proto.normalizer_spec
        if spec.precompiled_charsmap or spec.add_dummy_prefix or spec.remove_extra_whitespaces:
            raise ConfigError(
                "only a SentencePiece model without normalization, as this package trains it, is supported"
            )
        tokenizer = SentencePieceTokenizer(content)
        for size in sizes:
            require(tokenizer.vocab_size == size, "the number of pieces", f"the model's {size}", tokenizer.vocab_size)
        kind: TokenizerKind = "bpe" if proto.trainer_spec.model_type == proto.trainer_spec.BPE else "unigram"
        return TokenizerConfig(kind, tokenizer.vocab_size), tokenizer
