"""Tokenizers as files for Hugging Face's `transformers`, and the ids that they have there."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_transformer.errors import ConfigError
from keras_transformer.rules import require
from keras_transformer.tokenizers import (
    PretrainedSentencePieceTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.tokenizers.sentencepiece import ESCAPES, SPACE, ModelProto, SentencePiece, parse_model

# Splits texts within what looks like a special piece or a byte, which Unigram of `tokenizers` would find there.
_DIVIDED = "<(?=/s>|s>|pad>|unk>|0x[0-9A-F]{2}>)"


class HuggingFaceTokenizers(NamedTuple):
    """The tokenizers of a translator for Hugging Face."""

    files: dict[str, bytes]  # the content of each file by its name
    source_ids: Sequence[int]  # our id of each of their source ids
    target_ids: Sequence[int]  # the same for the target
    special_ids: dict[str, int]  # their ids by our names: "pad", "unk", "start" and "end"

    @property
    def pads_with_start(self) -> bool:
        """Whether padding and the start of a translation are one token, as in Marian's models."""
        return self.special_ids["pad"] == self.special_ids["start"]


def convert_tokenizers(tokenizers: TokenizerPair, max_length: int) -> HuggingFaceTokenizers:
    """Writes tokenizers as Hugging Face reads them.

    A SentencePiece model that was trained here becomes a tokenizer.json, which needs no SentencePiece; those of an
    imported model become the files that they were imported from. The end token counts for `max_length`.

    Raises:
        ConfigError: Hugging Face has no such tokenizers.
    """
    source, target = tokenizers
    if isinstance(source, PretrainedSentencePieceTokenizer) and isinstance(target, PretrainedSentencePieceTokenizer):
        return _marian_tokenizers(source, target, max_length)
    if not isinstance(target, SentencePieceTokenizer):
        raise ConfigError("tokenizer.kind must be bpe or unigram for Hugging Face; received tokenizer.kind='wordpiece'")
    require(tokenizers.is_shared, "tokenizer.shared", "true for Hugging Face, unless the model was imported", False)
    config = _tokenizer_config("PreTrainedTokenizerFast", max_length) | {
        "bos_token": "<s>",
        "model_input_names": ["input_ids", "attention_mask"],
    }
    ids = range(target.vocab_size)
    return HuggingFaceTokenizers(
        {
            "tokenizer.json": to_json(_tokenizer_json(parse_model(target.file_content))),
            "tokenizer.model": target.file_content,
            "tokenizer_config.json": to_json(config),
        },
        *(ids, ids),
        {"pad": Tokenizer.pad_id, "unk": Tokenizer.unk_id, "start": Tokenizer.start_id, "end": Tokenizer.end_id},
    )


def to_json(values: object) -> bytes:
    """Returns the content of a JSON file as `transformers` writes it."""
    return json.dumps(values, indent=2).encode()


def _tokenizer_config(name: str, max_length: int) -> dict[str, Any]:
    return {
        "tokenizer_class": name,
        "model_max_length": max_length,
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
        # Read "</s>" in a text as text.
        "split_special_tokens": True,
    }


def _marian_tokenizers(
    source: PretrainedSentencePieceTokenizer, target: PretrainedSentencePieceTokenizer, max_length: int
) -> HuggingFaceTokenizers:
    is_shared = source.vocabulary == target.vocabulary
    # Padding has the same id on both sides.
    rule = f"source_vocab_size={source.vocab_size} for Hugging Face"
    require(source.vocab_size == target.vocab_size, "model.target_vocab_size", rule, target.vocab_size)
    files = {
        "source.spm": source.original_model(),
        "target.spm": target.original_model(),
        "vocab.json": _vocabulary(source),
        **({} if is_shared else {"target_vocab.json": _vocabulary(target)}),
        "tokenizer_config.json": to_json(
            _tokenizer_config("MarianTokenizer", max_length) | {"separate_vocabs": not is_shared}
        ),
    }
    special_ids = {"pad": target.vocab_size - 2, "unk": 1, "start": target.vocab_size - 2, "end": 0}
    return HuggingFaceTokenizers(files, _marian_ids(source), _marian_ids(target), special_ids)


def _marian_ids(tokenizer: PretrainedSentencePieceTokenizer) -> list[int]:
    """End and unknown token in front, and at the end the token that is both padding and start there."""
    return [Tokenizer.end_id, Tokenizer.unk_id, *range(4, tokenizer.vocab_size), Tokenizer.start_id]


def _vocabulary(tokenizer: PretrainedSentencePieceTokenizer) -> bytes:
    pieces = ["</s>", "<unk>", *tokenizer.vocabulary[4:], "<pad>"]
    return to_json({piece: token_id for token_id, piece in enumerate(pieces)})


def _tokenizer_json(proto: ModelProto) -> dict[str, Any]:
    """A pipeline of the package `tokenizers` that gives the ids, and the texts, of a SentencePieceTokenizer."""
    special = [proto.pieces[token_id].piece for token_id in range(4)]
    # Tags and placeholders.
    controls = [entry.piece for entry in proto.pieces[4:] if entry.type == SentencePiece.CONTROL]
    divided = "|".join([_DIVIDED, *(f"{re.escape(piece[0])}(?={re.escape(piece[1:])})" for piece in controls)])
    is_bpe = proto.trainer_spec.model_type == proto.trainer_spec.BPE
    end = proto.pieces[Tokenizer.end_id].piece
    text, appended = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": end, "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            dict(id=i, content=piece, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
            for i, piece in enumerate(special)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *(_replace(character, escape) for character, escape in ESCAPES.items()),
                {"type": "Prepend", "prepend": " "},
                _replace(" ", SPACE),
            ],
        },
        "pre_tokenizer": None
        if is_bpe
        else {"type": "Split", "pattern": {"Regex": divided}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [text, appended],
            "pair": [text, second, appended],
            "special_tokens": {end: {"id": end, "ids": [Tokenizer.end_id], "tokens": [end]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                _replace(SPACE, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                *(_replace(escape, character) for character, escape in reversed(ESCAPES.items())),
            ],
        },
        "model": _bpe(proto) if is_bpe else _unigram(proto),
    }


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _bpe(proto: ModelProto) -> dict[str, Any]:
    """The merges join any two pieces that make a third, the most frequent first, as SentencePiece does."""
    ids = {entry.piece: token_id for token_id, entry in enumerate(proto.pieces)}
    scores = {entry.piece: entry.score for entry in proto.pieces if entry.type == SentencePiece.NORMAL}
    merges = [
        (-score, ids[piece[:end]], [piece[:end], piece[end:]])
        for piece, score in scores.items()
        for end in range(1, len(piece))
        if piece[:end] in scores and piece[end:] in scores
    ]
    return {
        "type": "BPE",
        "unk_token": proto.pieces[Tokenizer.unk_id].piece,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": ids,
        "merges": [pair for *_, pair in sorted(merges)],
    }


def _unigram(proto: ModelProto) -> dict[str, Any]:
    lowest = min(entry.score for entry in proto.pieces)
    scores = [entry.score if entry.type == SentencePiece.NORMAL else lowest for entry in proto.pieces]
    return {
        "type": "Unigram",
        "unk_id": Tokenizer.unk_id,
        "byte_fallback": True,
        "vocab": [[entry.piece, score] for entry, score in zip(proto.pieces, scores, strict=True)],
    }
