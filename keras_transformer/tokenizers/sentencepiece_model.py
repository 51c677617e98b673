"""SentencePiece model files, checked before a library that trusts them reads them.

The C++ code of SentencePiece follows the offsets in a file without looking where they lead, and ends the process where
it meets what its own trainer never writes.
"""

import collections
import hashlib
import math

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

# SentencePiece documents this module, but not as an interface.
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

# Not FastSentencepieceTokenizer: it ignores byte fallback, and its ids for BPE models are wrong.
from tensorflow_text import SentencepieceTokenizer

from ..errors import ConfigError
from ..rules import require, shown
from ..runtime.standard_streams import silenced

SentencePiece = ModelProto.SentencePiece
_MODEL_TYPES = (TrainerSpec.UNIGRAM, TrainerSpec.BPE)
# Far above what any program trains, so that a file cannot ask for gigabytes.
_MAX_BYTES = 16 * 2**20
_MAX_PIECES = 1_000_000
_MAX_PIECE_BYTES = 1000
_MAX_CHARACTER_MAP_BYTES = 4 * 2**20
# SentencePiece has room for 32 matches at one place of a text, and for 64 of pieces that users define.
_MAX_NESTED = 32
# No character becomes a longer text; the longest of Unicode's own becomes 33 bytes.
_MAX_NORMALIZED_BYTES = 1000
# Normalization can make one byte of four, such as a plain letter of a mathematical one.
_BYTES_PER_NORMALIZED_BYTE = 4


def parse_model(content: bytes) -> ModelProto:
    """Parses the content of a SentencePiece model file, which SentencePiece can then load and use on any text.

    Raises:
        ConfigError: It is not such a file, or breaks a rule of the format.
    """
    try:
        if len(content) > _MAX_BYTES:
            raise ConfigError(
                f"a SentencePiece model must have at most {_MAX_BYTES:,} bytes; received {len(content):,} bytes"
            )
        proto = ModelProto.FromString(content)
        num_pieces = len(proto.pieces)
        require(num_pieces <= _MAX_PIECES, "the number of pieces", f"at most {_MAX_PIECES:,}", num_pieces)
        pieces = [(piece.piece, piece.score, piece.type) for piece in proto.pieces]
    except DecodeError:
        pieces = []
    if not pieces:
        raise ConfigError(
            f"model must be the content of a SentencePiece model file; received {len(content):,} other bytes"
        )
    model_type = proto.trainer_spec.model_type
    require(model_type in _MODEL_TYPES, "the type of the SentencePiece model", "unigram (1) or BPE (2)", model_type)
    _check_pieces(pieces)
    for spec in (proto.normalizer_spec, proto.denormalizer_spec):
        _check_character_map(spec.precompiled_charsmap)
    return proto


def load_subwords(content: bytes, out_type: tf.DType) -> SentencepieceTokenizer:
    """Loads a SentencePiece model, which `parse_model` has checked, into the TensorFlow graph.

    Args:
        out_type: what texts become: tf.int32, ids, or tf.string, pieces.

    Raises:
        ConfigError: SentencePiece refuses the file.
    """
    try:
        # SentencePiece warns that the text is not normalized, which is intended.
        with silenced():
            # Loaded from a SavedModel, two tokenizers of one name would both use the model of the first.
            name = f"SentencePiece_{hashlib.sha256(content).hexdigest()[:16]}"
            return SentencepieceTokenizer(content, out_type=out_type, name=name)
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0] if error.message else "no reason given"
        raise ConfigError(f"SentencePiece cannot load the model ({reason})") from None


def bytes_per_piece(proto: ModelProto) -> int:
    """Returns the most bytes of a text that a piece stands for.

    With a model that normalizes, a text may have more: characters and spaces that normalization drops, or sequences
    of many characters for one.
    """
    longest = max(len(piece.piece.encode()) for piece in proto.pieces)
    spec = proto.normalizer_spec
    normalizes = bool(spec.precompiled_charsmap) or spec.remove_extra_whitespaces
    return longest * _BYTES_PER_NORMALIZED_BYTE if normalizes else longest


def check_piece(piece: str | bytes) -> None:
    """Checks the text of a piece, which is bytes where a file has no UTF-8.

    Raises:
        ConfigError: SentencePiece cannot store it.
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
        # BPE begins with characters, and where it finds such a piece, it stops with an error.
        require(kind != SentencePiece.CONTROL or len(piece) > 1, "a control piece", "longer than a character", piece)
        require(piece not in seen, "the pieces", "different", piece)
        seen.add(piece)
        if not math.isfinite(score):
            raise ConfigError(f"the score of the piece {shown(piece)} must be finite; received {score}")
    for piece in defined_by_users:
        num_nested = sum(piece[:end] in defined_by_users for end in range(1, len(piece) + 1))
        require(num_nested <= _MAX_NESTED, "a piece", f"the beginning of at most {_MAX_NESTED} others", piece)
    num_unknown = sum(kind == SentencePiece.UNKNOWN for *_, kind in pieces)
    require(num_unknown == 1, "the number of unknown pieces", "1", num_unknown)


def _check_character_map(content: bytes) -> None:
    """Checks a `precompiled_charsmap`: the size of a trie, the trie, and the texts that its values point into.

    The trie is a double array of darts-clone. A unit with bit 31 is a value. Another one is a place in a text: its low
    byte is the byte that leads to it from its parent, bit 8 says whether a text ends here, and the rest is an offset.
    The children of the unit at i are at `(i ^ offset) ^ byte`, and its value is at `i ^ offset`.
    """
    if not content:
        return
    size = int.from_bytes(content[:4], "little")
    texts = content[4 + size :]
    is_whole = size > 0 and size % 4 == 0 and texts.endswith(b"\0") and len(content) <= _MAX_CHARACTER_MAP_BYTES
    try:
        texts.decode()
    except UnicodeDecodeError:
        is_whole = False
    if not is_whole or max(map(len, texts.split(b"\0"))) > _MAX_NORMALIZED_BYTES:
        raise ConfigError("the map of characters of the SentencePiece model is damaged")
    units = np.frombuffer(content, "<u4", size // 4, offset=4)
    if not _is_safe_trie(units, texts):
        raise ConfigError("the map of characters of the SentencePiece model leads outside of itself")


def _is_safe_trie(units: np.ndarray, texts: bytes) -> bool:
    """Whether every search stays in the array, matches at most `_MAX_NESTED` times, and finds the start of a text."""
    places = np.arange(len(units), dtype=np.int64)
    offsets = (units >> 10).astype(np.int64) << ((units & (1 << 9)) >> 6)
    # What a unit's children, and its value, are counted from.
    bases = places ^ offsets
    inner = np.flatnonzero(units >> 31 == 0)
    children = collections.defaultdict(list)
    for parent_base, place in zip((inner ^ (units[inner] & 0xFF)).tolist(), inner.tolist(), strict=True):
        children[parent_base].append(place)
    base_of, is_end = bases.tolist(), (units >> 8 & 1).tolist()
    # How many texts at most end on the way to a base. The root's own mark of an end is never looked at.
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
                # A continuation byte is inside a character.
                if start >= len(texts) or texts[start] & 0xC0 == 0x80:
                    return False
            if ends > num_ends.get(base_of[place], -1):
                num_ends[base_of[place]] = ends
                waiting.append(base_of[place])
    return True
