"""SentencePiece subwords, of models that this package trains and of those of other programs, inside the graph."""

import operator
import os
import pathlib
import re
from collections.abc import Sequence

import tensorflow as tf

from ..rules import require
from ..tensors import Tensor
from .sentencepiece_model import SentencePiece, bytes_per_piece, check_piece, load_subwords, parse_model
from .tokenizer import NUM_PLACEHOLDERS, Tokenizer

# SentencePiece writes a space as U+2581 and reads every U+2581 as a space. A text's own U+2581 is therefore escaped,
# with a character that is escaped in turn.
SPACE, _ESCAPE = "\u2581", "\u241b"
_ESCAPED_SPACE, _ESCAPED_ESCAPE = _ESCAPE + "_", _ESCAPE + "."
# The replacements, in the order in which they are applied.
ESCAPES = {_ESCAPE: _ESCAPED_ESCAPE, SPACE: _ESCAPED_SPACE}
# The pieces of bytes, which spell unknown characters.
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# The language of the translation, in front of a source.
_LANGUAGE = r"(?s)^(>>.*?<<)(.*)$"


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
    `keras_transformer.training.batches.vocabulary.train_tokenizer` does.

    SentencePiece's own dummy prefix would lose a leading space. Instead, a text that is not empty gets one space in
    front, and `detokenize` removes one. A "▁" (U+2581) in a text is written as "␛_", and a "␛" (U+241B) as "␛.". A
    program that uses the model file by itself has to do the same (`prepare_line`).

    Args:
        model: content of a SentencePiece model file.

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
        reserved = [piece.piece if piece.type == SentencePiece.CONTROL else "" for piece in proto.pieces]
        super().__init__(reserved, model, bytes_per_piece(proto))
        self._subwords = load_subwords(model, tf.int32)
        special = [piece.piece for piece in proto.pieces[:4]]
        expected = ["<pad>", "<unk>", "<s>", "</s>"]
        require(special == expected, "special pieces", f"{', '.join(expected)}, with the ids 0 to 3", special)

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
        """Makes a tokenizer of a SentencePiece model file, of pieces for terms, and of placeholders, its last ids."""
        proto = parse_model(model)
        for piece in (*(cls.term_pieces if terms else ()), *cls.placeholder_pieces):
            proto.pieces.append(SentencePiece(piece=piece, score=0.0, type=SentencePiece.CONTROL))
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return cls(proto.SerializeToString())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SentencePieceTokenizer":
        return cls(pathlib.Path(path).read_bytes())


class PretrainedSentencePieceTokenizer(Tokenizer):
    """A SentencePiece model as other programs use it, with its own normalization and spacing.

    Ids are those of a vocabulary, which may have pieces that the SentencePiece model lacks, and lack some that it has;
    the latter are unknown. If the vocabulary has languages, such as ">>fra<<", a text may begin with one.

    Its file is a SentencePiece model, whose first `trainer_spec.vocab_size` pieces are the vocabulary.

    Raises:
        ConfigError: It is not such a file.
    """

    filename = "sentencepiece.model"
    special_pieces = ("<pad>", "<unk>", "<start>", "</s>")

    def __init__(self, model: bytes) -> None:
        proto = parse_model(model)
        vocab_size, num_pieces = proto.trainer_spec.vocab_size, len(proto.pieces)
        require(0 < vocab_size <= num_pieces, "the vocabulary's size", f"1 to {num_pieces:,}, the pieces", vocab_size)
        self.vocabulary = tuple(piece.piece for piece in proto.pieces[:vocab_size])
        special = self.vocabulary[:4]
        expected = f"{', '.join(self.special_pieces)}, in front"
        require(special == self.special_pieces, "special pieces", expected, special)
        languages = [piece if piece.startswith(">>") else "" for piece in self.vocabulary]
        super().__init__(languages, model, bytes_per_piece(proto))
        self._subwords = load_subwords(model, tf.string)
        # Without the special pieces: a text that spells one out must not get its id.
        pieces = tf.constant(self.vocabulary[len(special) :], tf.string)
        initializer = tf.lookup.KeyValueTensorInitializer(pieces, tf.range(len(special), vocab_size))
        self._ids = tf.lookup.StaticHashTable(initializer, self.unk_id)

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        if not self.tags:
            return self._lookup(self._subwords.tokenize(parts))
        has_language = tf.strings.regex_full_match(parts, _LANGUAGE)
        languages = tf.strings.regex_replace(tf.boolean_mask(parts, has_language), _LANGUAGE, r"\1")
        languages = tf.RaggedTensor.from_row_lengths(languages, tf.cast(has_language, tf.int64))
        parts = tf.where(has_language, tf.strings.regex_replace(parts, _LANGUAGE, r"\2"), parts)
        return self._lookup(tf.concat([languages, self._subwords.tokenize(parts)], axis=1))

    def _lookup(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.gather(tf.constant(self.vocabulary), token_ids)
        texts = tf.strings.regex_replace(tf.strings.reduce_join(pieces, axis=-1), SPACE, " ")
        return tf.strings.regex_replace(texts, "^ ", "", replace_global=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PretrainedSentencePieceTokenizer":
        return cls(pathlib.Path(path).read_bytes())

    @classmethod
    def with_vocabulary(cls, model: bytes, vocabulary: Sequence[str]) -> "PretrainedSentencePieceTokenizer":
        """Makes a tokenizer of a SentencePiece model and a vocabulary.

        Args:
            model: content of a SentencePiece model file.
            vocabulary: the pieces in the order of the ids from 4 on, without special ones.

        Raises:
            ConfigError: It is not a SentencePiece model, it spells with bytes, or a piece of the vocabulary occurs
                twice, is a special one or cannot be stored.
        """
        proto = parse_model(model)
        known = {piece.piece: piece for piece in proto.pieces}
        spells_with_bytes = any(piece.type == SentencePiece.BYTE for piece in proto.pieces)
        require(not spells_with_bytes, "the SentencePiece model", "without byte fallback", "one with byte fallback")
        unknown = [piece.piece for piece in proto.pieces if piece.type == SentencePiece.UNKNOWN]
        ordered = [*cls.special_pieces, *vocabulary]
        for piece in vocabulary:
            check_piece(piece)
        expected = f"of different pieces, and without {', '.join(cls.special_pieces)}"
        require(len(set(ordered)) == len(ordered), "the vocabulary", expected, "one with repetitions")
        rest = [piece for piece in known if piece not in {*ordered, *unknown}]
        del proto.pieces[:]
        for piece in (*ordered, *rest):
            # No text is segmented into control pieces. BPE looks up single characters and may find unused pieces only.
            kind = SentencePiece.CONTROL if len(piece) > 1 else SentencePiece.UNUSED
            default = SentencePiece(piece=piece, score=0.0, type=kind)
            proto.pieces.append(default if piece in cls.special_pieces else known.get(piece, default))
        proto.pieces[cls.unk_id].type = SentencePiece.UNKNOWN
        proto.trainer_spec.vocab_size = len(ordered)
        # Texts that SentencePiece would segment whenever it loads the file, with the pieces that it had.
        proto.ClearField("self_test_data")
        return cls(proto.SerializeToString())

    def original_model(self) -> bytes:
        """Returns the SentencePiece model that `with_vocabulary` was given.

        Special pieces are where its options say; the others follow in SentencePiece's order, the most probable first.
        """
        proto = parse_model(self.file_content)
        spec = proto.trainer_spec
        special = {
            spec.unk_piece: spec.unk_id,
            spec.bos_piece: spec.bos_id,
            spec.eos_piece: spec.eos_id,
            spec.pad_piece: spec.pad_id,
        }
        special = {piece: token_id for piece, token_id in special.items() if token_id >= 0}
        defined = [piece for piece in (*spec.control_symbols, *spec.user_defined_symbols) if piece not in special]
        types = dict.fromkeys((*special, *defined), SentencePiece.CONTROL)
        types |= dict.fromkeys(spec.user_defined_symbols, SentencePiece.USER_DEFINED)
        types[spec.unk_piece] = SentencePiece.UNKNOWN
        # Pieces that were added for the vocabulary are of other types, or unused and without a score.
        ordinary = [
            piece
            for piece in proto.pieces
            if piece.piece not in types
            and (piece.type == SentencePiece.NORMAL or (piece.type == SentencePiece.UNUSED and piece.score != 0))
        ]
        ordinary.sort(key=lambda piece: (-piece.score, piece.piece))
        pieces = [SentencePiece(piece=piece, score=0.0, type=types[piece]) for piece in defined] + ordinary
        for piece, token_id in sorted(special.items(), key=operator.itemgetter(1)):
            pieces.insert(token_id, SentencePiece(piece=piece, score=0.0, type=types[piece]))
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        spec.vocab_size = len(pieces)
        return proto.SerializeToString()
