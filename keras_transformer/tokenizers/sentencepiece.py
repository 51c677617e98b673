"""SentencePiece subwords, BPE or unigram, inside the graph."""

import os
import pathlib
import re

import tensorflow as tf

from ..config.rules import require
from ..config.values import is_tag
from ..tensors import Tensor
from .placeholders import NUM_PLACEHOLDERS
from .sentencepiece_model import SentencePiece, bytes_per_piece, load_subwords, parse_model
from .tokenizer import Tokenizer

# SentencePiece writes a space as U+2581 and reads every U+2581 as a space. A text's own U+2581 is therefore escaped,
# with a character that is escaped in turn.
SPACE, _ESCAPE = "\u2581", "\u241b"
_ESCAPED_SPACE, _ESCAPED_ESCAPE = _ESCAPE + "_", _ESCAPE + "."
# What is written for what, in this order.
ESCAPES = {_ESCAPE: _ESCAPED_ESCAPE, SPACE: _ESCAPED_SPACE}
# The piece of a byte, by which unseen characters are spelled.
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def escape(part: str) -> str:
    """Returns a part of a text as the SentencePiece model sees it."""
    return part.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(SPACE, _ESCAPED_SPACE)


def prepare_line(line: str) -> str:
    """Returns a text as the SentencePiece model sees it: with a space in front, and escaped."""
    return SentencePieceTokenizer.space_in_front + escape(line)


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model, BPE or unigram, inside the graph.

    Every valid UTF-8 text is restored exactly, including leading spaces and unseen scripts, by a model that was trained
    with `normalization_rule_name="identity"`, `byte_fallback=True`, `remove_extra_whitespaces=False`,
    `add_dummy_prefix=False`, `pad_id=0`, `unk_id=1`, `bos_id=2` and `eos_id=3`, as
    `keras_transformer.training.vocabulary.train_tokenizer` does.

    SentencePiece's own dummy prefix would lose a leading space. Instead, a text that is not empty gets one space in
    front, and `detokenize` removes one. A "▁" (U+2581) in a text is written as "␛_", and a "␛" (U+241B) as "␛.". A
    program that uses the model file by itself has to do the same (`prepare_line`).

    Args:
        model: bytes. Content of a SentencePiece model file.

    Raises:
        ConfigError: It is not a SentencePiece model with the four special ids above.

    Example:
        >>> tokenizer = SentencePieceTokenizer.load("models/en-de/tokenizer.model")
        >>> tokenizer.detokenize(tokenizer.tokenize(["A dog runs."])).numpy()
        array([b'A dog runs.'], dtype=object)
    """

    filename = "tokenizer.model"
    space_in_front = " "
    placeholder_pieces = tuple(f"{{ph{number}}}" for number in range(1, NUM_PLACEHOLDERS + 1))
    term_pieces = ("{term}", "{translation}", "{/term}")

    def __init__(self, model: bytes) -> None:
        proto = parse_model(model)
        subwords = load_subwords(model, tf.int32)
        tags = {
            each.piece: token_id
            for token_id, each in enumerate(proto.pieces)
            if each.type == SentencePiece.CONTROL and is_tag(each.piece)
        }
        super().__init__(int(subwords.vocab_size()), model, bytes_per_piece(proto), tags)
        self._subwords = subwords
        special = self.pieces(range(min(4, self.vocab_size)))
        require(
            special == ["<pad>", "<unk>", "<s>", "</s>"],
            "special pieces",
            "<pad>, <unk>, <s>, </s>, with the ids 0 to 3",
            special,
        )
        self._find_reserved([each.piece if each.type == SentencePiece.CONTROL else "" for each in proto.pieces])

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        return self.segment(tf.where(texts == "", texts, self.space_in_front + texts))

    def _detokenize(self, token_ids: Tensor) -> tf.Tensor:
        return tf.strings.regex_replace(self.join(token_ids), "^ ", "", replace_global=False)

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        parts = tf.strings.regex_replace(parts, _ESCAPE, _ESCAPED_ESCAPE)
        return self._subwords.tokenize(tf.strings.regex_replace(parts, SPACE, _ESCAPED_SPACE))

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        parts = tf.strings.regex_replace(self._subwords.detokenize(token_ids), _ESCAPED_SPACE, SPACE)
        return tf.strings.regex_replace(parts, _ESCAPE + r"\.", _ESCAPE)

    def unknown_ids(self) -> list[int]:
        pieces = self.pieces(range(self.vocab_size))
        return [self.unk_id, *(token_id for token_id, piece in enumerate(pieces) if _BYTE.fullmatch(piece))]

    def id_to_piece(self, token_ids: Tensor) -> tf.Tensor:
        return self._subwords.id_to_string(token_ids)

    @classmethod
    def with_placeholders(cls, model: bytes, terms: bool = False) -> "SentencePieceTokenizer":
        """Makes a tokenizer of a SentencePiece model file and of placeholders, which become its last ids.

        Args:
            model: bytes. Content of the file.
            terms: bool. Whether the pieces of terms come before them. Defaults to False.
        """
        proto = parse_model(model)
        for piece in (*(cls.term_pieces if terms else ()), *cls.placeholder_pieces):
            proto.pieces.append(SentencePiece(piece=piece, score=0.0, type=SentencePiece.CONTROL))
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return cls(proto.SerializeToString())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SentencePieceTokenizer":
        return cls(pathlib.Path(path).read_bytes())
