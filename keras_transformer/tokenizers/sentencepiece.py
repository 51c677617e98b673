"""SentencePiece tokenizers inside the TensorFlow graph, for models of this and other packages.

Model files are checked before SentencePiece loads them. Its C++ code does not validate the offsets
in a file, and it terminates the process if a file contains anything that SentencePiece's own
trainer never writes.
"""

import collections
import hashlib
import math
import operator
import os
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

# SentencePiece documents this module, but not as a public API.
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

# FastSentencepieceTokenizer ignores byte fallback and returns wrong ids for BPE models.
from tensorflow_text import SentencepieceTokenizer

from ..checks import require, shown
from ..errors import ConfigError
from ..model_dir.files import read_limited
from ..runtime.standard_streams import silenced
from ..tensors import Tensor
from .normalization import NormalForm
from .tokenizer import MAX_FILE_BYTES, NUM_PLACEHOLDERS, Tokenizer

# SentencePiece writes a space as U+2581 and reads every U+2581 as a space. U+2581 in a text is
# therefore escaped with U+241B, and U+241B is escaped as well.
SPACE = "\u2581"
_ESCAPE = "\u241b"
_ESCAPED_SPACE = _ESCAPE + "_"
_ESCAPED_ESCAPE = _ESCAPE + "."
# Replacements in the order of application.
ESCAPES = {_ESCAPE: _ESCAPED_ESCAPE, SPACE: _ESCAPED_SPACE}
# Byte pieces, which spell unknown characters.
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# Target language at the start of a source.
_LANGUAGE = r"(?s)^(>>.*?<<)(.*)$"

SentencePiece = ModelProto.SentencePiece
_MODEL_TYPES = (TrainerSpec.UNIGRAM, TrainerSpec.BPE)
_CHARACTER_MAP = "the character map (precompiled_charsmap) of the SentencePiece model"
# These limits are far above the size of any trained model, and keep a file from allocating
# gigabytes.
_MAX_BYTES = 16 * 2**20
_MAX_PIECES = 1_000_000
_MAX_PIECE_BYTES = 1000
_MAX_CHARACTER_MAP_BYTES = 4 * 2**20
# SentencePiece has buffers for 32 matches at a position of a text, and for 64 matches of
# user-defined pieces.
_MAX_NESTED = 32
# Limit for the normalized form of a character. In Unicode, the longest has 33 bytes.
_MAX_NORMALIZED_BYTES = 1000
# Normalization can reduce four bytes to one, for example from a mathematical to a plain letter.
_BYTES_PER_NORMALIZED_BYTE = 4


def escape(part: str) -> str:
    """Returns a part of a text in the form that the SentencePiece model expects."""
    return part.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(SPACE, _ESCAPED_SPACE)


def prepare_line(line: str) -> str:
    """Returns an escaped text after a space, which is the form that the model expects."""
    return SentencePieceTokenizer.space_in_front + escape(line)


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece tokenizer with a BPE or unigram model.

    Tokenization is lossless for all normalized UTF-8 text, including leading spaces and unseen
    scripts, if the model was trained with `normalization_rule_name="identity"`,
    `byte_fallback=True`, `remove_extra_whitespaces=False`, `add_dummy_prefix=False`, `pad_id=0`,
    `unk_id=1`, `bos_id=2` and `eos_id=3`, as in
    `keras_transformer.training.batches.vocabulary.train_tokenizer`.

    The dummy prefix of SentencePiece would lose a leading space. Instead, `tokenize` adds a space
    in front of text that is not empty, and `detokenize` removes it. "▁" (U+2581) in text is escaped
    as "␛_", and "␛" (U+241B) as "␛.". Programs that use the model file without this class must do
    the same (see `prepare_line`).

    Args:
        model: content of a SentencePiece model file.
        normalization: "nfc", "nfkc" or "none". Unicode normalization of text before segmentation.
            Defaults to "none".

    Raises:
        ConfigError: If the content is not a SentencePiece model with the four special ids above.

    Example:
        >>> tokenizer = SentencePieceTokenizer.load("models/en-de/tokenizer.model")
        >>> tokenizer.detokenize(tokenizer.tokenize(["A dog runs."])).numpy()
        array([b'A dog runs.'], dtype=object)
    """

    filename = "tokenizer.model"
    space_in_front = " "
    placeholder_pieces = tuple(f"{{ph{number}}}" for number in range(1, NUM_PLACEHOLDERS + 1))
    term_pieces = ("{term}", "{translation}", "{/term}")

    def __init__(self, model: bytes, normalization: NormalForm = "none") -> None:
        proto = parse_model(model)
        reserved = [
            piece.piece if piece.type == SentencePiece.CONTROL else "" for piece in proto.pieces
        ]
        super().__init__(reserved, model, bytes_per_piece(proto), normalization)
        self._subwords = load_subwords(model, tf.int32)
        special = [piece.piece for piece in proto.pieces[:4]]
        expected = ["<pad>", "<unk>", "<s>", "</s>"]
        rule = f"{', '.join(expected)}, with the ids 0 to 3"
        require(special == expected, "special pieces", rule, special)

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        parts = tf.strings.regex_replace(parts, _ESCAPE, _ESCAPED_ESCAPE)
        return self._subwords.tokenize(tf.strings.regex_replace(parts, SPACE, _ESCAPED_SPACE))

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        parts = self._subwords.detokenize(token_ids)
        parts = tf.strings.regex_replace(parts, _ESCAPED_SPACE, SPACE)
        return tf.strings.regex_replace(parts, _ESCAPE + r"\.", _ESCAPE)

    def unknown_ids(self) -> list[int]:
        pieces = self.pieces(range(self.vocab_size))
        byte_ids = [token_id for token_id, piece in enumerate(pieces) if _BYTE.fullmatch(piece)]
        return [self.unk_id, *byte_ids]

    def id_to_piece(self, token_ids: Tensor) -> tf.Tensor:
        return self._subwords.id_to_string(token_ids)

    @classmethod
    def with_placeholders(
        cls, model: bytes, terms: bool = False, normalization: NormalForm = "none"
    ) -> "SentencePieceTokenizer":
        """Creates a tokenizer from a model file, and adds placeholders to the vocabulary.

        With `terms=True`, pieces for terms are added in front of the placeholders.
        """
        proto = parse_model(model)
        added = cls.placeholder_pieces
        if terms:
            added = cls.term_pieces + added
        for piece in added:
            proto.pieces.append(SentencePiece(piece=piece, score=0.0, type=SentencePiece.CONTROL))
        proto.trainer_spec.vocab_size = len(proto.pieces)
        return cls(proto.SerializeToString(), normalization)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], normalization: NormalForm = "none"
    ) -> "SentencePieceTokenizer":
        return cls(read_limited(path, MAX_FILE_BYTES), normalization)


class PretrainedSentencePieceTokenizer(Tokenizer):
    """Tokenizer for a SentencePiece model of another program, with its normalization and spacing.

    Ids come from a separate vocabulary. It may contain pieces that the SentencePiece model lacks.
    Pieces of the model that are not in the vocabulary are mapped to the unknown id. If the
    vocabulary contains languages, such as ">>fra<<", a text may start with a language.

    The tokenizer file is a SentencePiece model whose first `trainer_spec.vocab_size` pieces are the
    vocabulary.

    Raises:
        ConfigError: If the content is not such a file.
    """

    filename = "sentencepiece.model"
    special_pieces = ("<pad>", "<unk>", "<start>", "</s>")

    def __init__(self, model: bytes, normalization: NormalForm = "none") -> None:
        proto = parse_model(model)
        vocab_size = proto.trainer_spec.vocab_size
        num_pieces = len(proto.pieces)
        rule = f"1 to {num_pieces:,}, the pieces"
        require(0 < vocab_size <= num_pieces, "the vocabulary's size", rule, vocab_size)
        self.vocabulary = tuple(piece.piece for piece in proto.pieces[:vocab_size])
        special = self.vocabulary[:4]
        expected = f"{', '.join(self.special_pieces)}, in front"
        require(special == self.special_pieces, "special pieces", expected, special)
        languages = [piece if piece.startswith(">>") else "" for piece in self.vocabulary]
        super().__init__(languages, model, bytes_per_piece(proto), normalization)
        self._subwords = load_subwords(model, tf.string)
        # Exclude the special pieces, so that text such as "</s>" does not get a special id.
        pieces = tf.constant(self.vocabulary[len(special) :], tf.string)
        initializer = tf.lookup.KeyValueTensorInitializer(
            pieces, tf.range(len(special), vocab_size)
        )
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
    def load(
        cls, path: str | os.PathLike[str], normalization: NormalForm = "none"
    ) -> "PretrainedSentencePieceTokenizer":
        return cls(read_limited(path, MAX_FILE_BYTES), normalization)

    @classmethod
    def with_vocabulary(
        cls, model: bytes, vocabulary: Sequence[str]
    ) -> "PretrainedSentencePieceTokenizer":
        """Creates a tokenizer from a SentencePiece model and a vocabulary.

        Args:
            model: content of a SentencePiece model file.
            vocabulary: pieces in the order of their ids, from id 4 and without special pieces.

        Raises:
            ConfigError: If the content is not a SentencePiece model or uses byte fallback, or if a
                piece of the vocabulary occurs twice, is a special piece or cannot be stored.
        """
        proto = parse_model(model)
        known = {piece.piece: piece for piece in proto.pieces}
        spells_with_bytes = any(piece.type == SentencePiece.BYTE for piece in proto.pieces)
        name, rule = "the SentencePiece model", "without byte fallback"
        require(not spells_with_bytes, name, rule, "one with byte fallback")
        unknown = [piece.piece for piece in proto.pieces if piece.type == SentencePiece.UNKNOWN]
        ordered = [*cls.special_pieces, *vocabulary]
        for piece in vocabulary:
            check_piece(piece)
        are_different = len(set(ordered)) == len(ordered)
        rule = f"a list of unique pieces without {', '.join(cls.special_pieces)}"
        require(are_different, "the vocabulary", rule, "one with duplicates")
        rest = [piece for piece in known if piece not in {*ordered, *unknown}]
        del proto.pieces[:]
        for piece in [*ordered, *rest]:
            if piece in known and piece not in cls.special_pieces:
                proto.pieces.append(known[piece])
            else:
                # Text is never segmented into control pieces. A single character must be an unused
                # piece, because BPE fails if it finds a control piece.
                kind = SentencePiece.CONTROL if len(piece) > 1 else SentencePiece.UNUSED
                proto.pieces.append(SentencePiece(piece=piece, score=0.0, type=kind))
        proto.pieces[cls.unk_id].type = SentencePiece.UNKNOWN
        proto.trainer_spec.vocab_size = len(ordered)
        # SentencePiece would segment these texts when it loads the file, and expect the old pieces.
        proto.ClearField("self_test_data")
        return cls(proto.SerializeToString())

    def original_model(self) -> bytes:
        """Returns the SentencePiece model that was passed to `with_vocabulary`.

        Special pieces have the ids in the model's options. The other pieces are in SentencePiece's
        order, most probable first.
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
        symbols = [*spec.control_symbols, *spec.user_defined_symbols]
        defined = [piece for piece in symbols if piece not in special]
        types = dict.fromkeys([*special, *defined], SentencePiece.CONTROL)
        types |= dict.fromkeys(spec.user_defined_symbols, SentencePiece.USER_DEFINED)
        types[spec.unk_piece] = SentencePiece.UNKNOWN
        ordinary = []
        for piece in proto.pieces:
            # Pieces that were added for the vocabulary have other types or a score of 0.
            is_unused = piece.type == SentencePiece.UNUSED and piece.score != 0
            is_original = is_unused or piece.type == SentencePiece.NORMAL
            if is_original and piece.piece not in types:
                ordinary.append(piece)
        ordinary.sort(key=lambda piece: (-piece.score, piece.piece))
        pieces = [SentencePiece(piece=piece, score=0.0, type=types[piece]) for piece in defined]
        pieces += ordinary
        for piece, token_id in sorted(special.items(), key=operator.itemgetter(1)):
            pieces.insert(token_id, SentencePiece(piece=piece, score=0.0, type=types[piece]))
        del proto.pieces[:]
        proto.pieces.extend(pieces)
        spec.vocab_size = len(pieces)
        return proto.SerializeToString()


def parse_model(content: bytes) -> ModelProto:
    """Parses the content of a SentencePiece model file and checks that it is safe to use.

    Raises:
        ConfigError: If the content is not a SentencePiece model or is invalid.
    """
    size = len(content)
    rule = f"at most {_MAX_BYTES:,} bytes"
    require(size <= _MAX_BYTES, "the size of the SentencePiece model", rule, size)
    try:
        proto = ModelProto.FromString(content)
        num_pieces = len(proto.pieces)
        rule = f"at most {_MAX_PIECES:,}"
        require(num_pieces <= _MAX_PIECES, "the number of pieces", rule, num_pieces)
        pieces = [(piece.piece, piece.score, piece.type) for piece in proto.pieces]
    except DecodeError:
        pieces = []
    if not pieces:
        raise ConfigError(
            "model must be the content of a SentencePiece model file; "
            f"received {len(content):,} other bytes"
        )
    model_type = proto.trainer_spec.model_type
    rule = "unigram (1) or BPE (2)"
    is_known = model_type in _MODEL_TYPES
    require(is_known, "the type of the SentencePiece model", rule, model_type)
    _check_pieces(pieces)
    for spec in (proto.normalizer_spec, proto.denormalizer_spec):
        _check_character_map(spec.precompiled_charsmap)
    return proto


def load_subwords(content: bytes, out_type: tf.DType) -> SentencepieceTokenizer:
    """Loads a SentencePiece model into the TensorFlow graph. Check it with `parse_model` first.

    Args:
        out_type: tf.int32 for ids, or tf.string for pieces.

    Raises:
        ConfigError: If SentencePiece rejects the file.
    """
    try:
        # Hide SentencePiece's warning that text is not normalized, which is intended.
        with silenced():
            # In a SavedModel, tokenizers with the same name would all use the first model.
            name = f"SentencePiece_{hashlib.sha256(content).hexdigest()[:16]}"
            return SentencepieceTokenizer(content, out_type=out_type, name=name)
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0] if error.message else "no reason given"
        raise ConfigError(f"SentencePiece cannot load the model ({reason})") from None


def bytes_per_piece(proto: ModelProto) -> int:
    """Returns the maximum number of bytes of text per piece.

    If the model normalizes text, the maximum is larger, because normalization can drop characters
    and spaces, or replace a long sequence of characters by a single character.
    """
    longest = max(len(piece.piece.encode()) for piece in proto.pieces)
    spec = proto.normalizer_spec
    normalizes = bool(spec.precompiled_charsmap) or spec.remove_extra_whitespaces
    return longest * _BYTES_PER_NORMALIZED_BYTE if normalizes else longest


def check_piece(piece: str | bytes) -> None:
    """Checks whether SentencePiece can store a piece.

    A piece is bytes instead of a string if it is not valid UTF-8 in the file.

    Raises:
        ConfigError: If SentencePiece cannot store the piece.
    """
    try:
        size = len(piece.encode()) if isinstance(piece, str) else 0
    except UnicodeEncodeError:
        size = 0
    can_be_stored = 0 < size <= _MAX_PIECE_BYTES and "\0" not in str(piece)
    require(can_be_stored, "a piece", f"text of 1 to {_MAX_PIECE_BYTES:,} bytes without NUL", piece)


def _check_pieces(pieces: list[tuple[str, float, int]]) -> None:
    defined_by_users = {piece for piece, _, kind in pieces if kind == SentencePiece.USER_DEFINED}
    seen: set[str] = set()
    for piece, score, kind in pieces:
        check_piece(piece)
        # BPE starts with single characters and fails if it finds a control piece.
        can_be_control = kind != SentencePiece.CONTROL or len(piece) > 1
        require(can_be_control, "a control piece", "longer than a character", piece)
        require(piece not in seen, "the pieces", "different", piece)
        seen.add(piece)
        if not math.isfinite(score):
            raise ConfigError(
                f"the score of the piece {shown(piece)} must be finite; received {score}"
            )
    for piece in defined_by_users:
        num_nested = sum(piece[:end] in defined_by_users for end in range(1, len(piece) + 1))
        rule = f"the beginning of at most {_MAX_NESTED} others"
        require(num_nested <= _MAX_NESTED, "a piece", rule, piece)
    num_unknown = sum(kind == SentencePiece.UNKNOWN for *_, kind in pieces)
    require(num_unknown == 1, "the number of unknown pieces", "1", num_unknown)


def _check_character_map(content: bytes) -> None:
    """Checks a `precompiled_charsmap`, which consists of the size of a trie, the trie, and texts.

    The values of the trie are positions in the texts. The trie is a double array of darts-clone.
    Units with bit 31 set are values. All other units are nodes: the low byte is the byte that leads
    to the node from its parent, bit 8 indicates whether a key ends at the node, and the rest is an
    offset. The children of the unit at i are at `(i ^ offset) ^ byte`, and its value is at `i ^
    offset`.
    """
    if not content:
        return
    size = int.from_bytes(content[:4], "little")
    texts = content[4 + size :]
    is_whole = (
        size > 0
        and size % 4 == 0
        and texts.endswith(b"\0")
        and len(content) <= _MAX_CHARACTER_MAP_BYTES
    )
    try:
        texts.decode()
    except UnicodeDecodeError:
        is_whole = False
    if not is_whole or max(map(len, texts.split(b"\0"))) > _MAX_NORMALIZED_BYTES:
        raise ConfigError(f"{_CHARACTER_MAP} is damaged")
    units = np.frombuffer(content, "<u4", size // 4, offset=4)
    if not _is_safe_trie(units, texts):
        raise ConfigError(f"{_CHARACTER_MAP} has invalid offsets")


def _is_safe_trie(units: np.ndarray, texts: bytes) -> bool:
    """Returns whether every search in a trie is safe.

    A safe search stays inside the array, has at most `_MAX_NESTED` matches, and finds only
    positions inside the texts at which a character starts.
    """
    places = np.arange(len(units), dtype=np.int64)
    offsets = (units >> 10).astype(np.int64) << ((units & (1 << 9)) >> 6)
    # Positions of the children and the value of a unit are relative to its base.
    bases = places ^ offsets
    inner = np.flatnonzero(units >> 31 == 0)
    parent_bases = inner ^ (units[inner] & 0xFF)
    children = collections.defaultdict(list)
    for parent_base, place in zip(parent_bases.tolist(), inner.tolist(), strict=True):
        children[parent_base].append(place)
    base_of = bases.tolist()
    is_end = (units >> 8 & 1).tolist()
    # Maximum number of keys that end on the path to a base. Searches ignore bit 8 of the root.
    num_ends = {base_of[0]: 0}
    waiting = [base_of[0]]
    while waiting:
        base = waiting.pop()
        if base | 0xFF >= len(units):
            return False
        for place in children[base]:
            ends = num_ends[base] + is_end[place]
            if ends > _MAX_NESTED:
                return False
            if is_end[place]:
                if base_of[place] >= len(units):
                    return False
                start = int(units[base_of[place]]) & 0x7FFFFFFF
                # A continuation byte does not start a character.
                if start >= len(texts) or texts[start] & 0xC0 == 0x80:
                    return False
            if ends > num_ends.get(base_of[place], -1):
                num_ends[base_of[place]] = ends
                waiting.append(base_of[place])
    return True
