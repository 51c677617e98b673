"""SentencePiece models that other programs trained, with a vocabulary beside them, inside the graph."""

import operator
import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from ..config.rules import require
from ..tensors import Tensor
from .sentencepiece_model import SentencePiece, bytes_per_piece, check_piece, load_subwords, parse_model
from .tokenizer import Tokenizer

_SPECIAL_PIECES = ("<pad>", "<unk>", "<start>", "</s>")
# The language of the translation, in front of a source.
_LANGUAGE = r"(?s)^(>>.*?<<)(.*)$"


class PretrainedSentencePieceTokenizer(Tokenizer):
    """A SentencePiece model as other programs use it, with its own normalization and spacing.

    Ids are those of a vocabulary, which may have pieces that the SentencePiece model lacks, and lack some that it has;
    the latter are unknown. If the vocabulary has languages, such as ">>fra<<", a text may begin with one.

    Its file is a SentencePiece model, whose first `trainer_spec.vocab_size` pieces are the vocabulary.

    Args:
        model: bytes. Content of the file, from `with_vocabulary`.

    Raises:
        ConfigError: It is not such a file.
    """

    filename = "sentencepiece.model"

    def __init__(self, model: bytes) -> None:
        proto = parse_model(model)
        vocab_size, num_pieces = proto.trainer_spec.vocab_size, len(proto.pieces)
        require(0 < vocab_size <= num_pieces, "the vocabulary's size", f"1 to {num_pieces:,}, the pieces", vocab_size)
        self.vocabulary = tuple(piece.piece for piece in proto.pieces[:vocab_size])
        special = self.vocabulary[:4]
        require(special == _SPECIAL_PIECES, "special pieces", f"{', '.join(_SPECIAL_PIECES)}, in front", special)
        tags = {
            piece: token_id
            for token_id, piece in enumerate(self.vocabulary)
            if piece.startswith(">>") and piece.endswith("<<")
        }
        super().__init__(vocab_size, model, bytes_per_piece(proto), tags)
        self._segment = load_subwords(model, tf.string)
        # Not the special ones, which a text may spell in characters that are unknown.
        pieces = tf.constant(self.vocabulary[len(special) :], tf.string)
        initializer = tf.lookup.KeyValueTensorInitializer(pieces, tf.range(len(special), vocab_size))
        self._ids = tf.lookup.StaticHashTable(initializer, self.unk_id)

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        if not self.tags:
            return self._lookup(self._segment.tokenize(texts))
        has_language = tf.strings.regex_full_match(texts, _LANGUAGE)
        languages = tf.strings.regex_replace(tf.boolean_mask(texts, has_language), _LANGUAGE, r"\1")
        languages = tf.RaggedTensor.from_row_lengths(languages, tf.cast(has_language, tf.int64))
        texts = tf.where(has_language, tf.strings.regex_replace(texts, _LANGUAGE, r"\2"), texts)
        return self._lookup(tf.concat([languages, self._segment.tokenize(texts)], axis=1))

    def _lookup(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))

    def _detokenize(self, token_ids: Tensor) -> tf.Tensor:
        pieces = tf.gather(tf.constant(self.vocabulary), token_ids)
        texts = tf.strings.regex_replace(tf.strings.reduce_join(pieces, axis=-1), "\u2581", " ")
        return tf.strings.regex_replace(texts, "^ ", "", replace_global=False)

    def id_to_piece(self, token_ids: Tensor) -> tf.Tensor:
        return tf.gather(tf.constant(self.vocabulary), token_ids)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PretrainedSentencePieceTokenizer":
        return cls(pathlib.Path(path).read_bytes())

    @classmethod
    def with_vocabulary(cls, model: bytes, vocabulary: Sequence[str]) -> "PretrainedSentencePieceTokenizer":
        """Makes a tokenizer of a SentencePiece model and a vocabulary.

        Args:
            model: bytes. Content of a SentencePiece model file.
            vocabulary: list of str. The pieces in the order of the ids from 4 on, without special ones.

        Raises:
            ConfigError: It is not a SentencePiece model, it spells with bytes, or a piece of the vocabulary occurs
                twice, is a special one or cannot be stored.
        """
        proto = parse_model(model)
        known = {piece.piece: piece for piece in proto.pieces}
        spells_with_bytes = any(piece.type == SentencePiece.BYTE for piece in proto.pieces)
        require(not spells_with_bytes, "the SentencePiece model", "without byte fallback", "one with byte fallback")
        unknown = [piece.piece for piece in proto.pieces if piece.type == SentencePiece.UNKNOWN]
        ordered = [*_SPECIAL_PIECES, *vocabulary]
        for piece in vocabulary:
            check_piece(piece)
        require(
            len(set(ordered)) == len(ordered),
            "the vocabulary",
            f"of different pieces, and without {', '.join(_SPECIAL_PIECES)}",
            "one with repetitions",
        )
        rest = [piece for piece in known if piece not in {*ordered, *unknown}]
        del proto.pieces[:]
        for piece in (*ordered, *rest):
            # No text is segmented into control pieces. BPE looks up single characters and may find unused pieces only.
            kind = SentencePiece.CONTROL if len(piece) > 1 else SentencePiece.UNUSED
            default = SentencePiece(piece=piece, score=0.0, type=kind)
            proto.pieces.append(default if piece in _SPECIAL_PIECES else known.get(piece, default))
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
            piece: token_id
            for piece, token_id in (
                (spec.unk_piece, spec.unk_id),
                (spec.bos_piece, spec.bos_id),
                (spec.eos_piece, spec.eos_id),
                (spec.pad_piece, spec.pad_id),
            )
            if token_id >= 0
        }
        defined = [piece for piece in (*spec.control_symbols, *spec.user_defined_symbols) if piece not in special]
        kept = {*special, *defined}
        # Pieces that were added for the vocabulary are of other types, or unused and without a score.
        ordinary = [
            piece
            for piece in proto.pieces
            if piece.piece not in kept
            and (piece.type == SentencePiece.NORMAL or (piece.type == SentencePiece.UNUSED and piece.score != 0))
        ]
        ordinary.sort(key=lambda piece: (-piece.score, piece.piece))
        types = dict.fromkeys(kept, SentencePiece.CONTROL)
        types |= dict.fromkeys(spec.user_defined_symbols, SentencePiece.USER_DEFINED)
        types[spec.unk_piece] = SentencePiece.UNKNOWN
        pieces = [SentencePiece(piece=piece, score=0.0, type=types[piece]) for piece in defined] + ordinary
        for piece, token_id in sorted(special.items(), key=operator.itemgetter(1)):
            pieces.insert(token_id, SentencePiece(piece=piece, score=0.0, type=types[piece]))
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        spec.vocab_size = len(pieces)
        return proto.SerializeToString()


def pieces_of(model: bytes) -> list[str]:
    """Returns the pieces of a SentencePiece model, in the order of its own ids.

    Raises:
        ConfigError: It is not a SentencePiece model.
    """
    return [piece.piece for piece in parse_model(model).pieces]
