"""SentencePiece subwords, BPE or unigram, inside the graph."""

import os
import pathlib

import tensorflow as tf
# Not FastSentencepieceTokenizer: it ignores byte fallback and gives other ids on BPE models.
from tensorflow_text import SentencepieceTokenizer

from .tokenizer import Tokenizer

# SentencePiece writes a space as U+2581 and reads every U+2581 as a space. A text's own U+2581 is
# therefore escaped, by a character that is escaped in turn.
_SPACE, _ESCAPE = "\u2581", "\u241b"
_ESCAPED_SPACE, _ESCAPED_ESCAPE = _ESCAPE + "_", _ESCAPE + "."


def prepare_line(line: str) -> str:
    """Returns a text as the SentencePiece model sees it, for training one."""
    return " " + line.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_SPACE, _ESCAPED_SPACE)


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model, BPE or unigram, inside the graph.

    Every valid UTF-8 text comes back exactly, leading spaces and unseen scripts included, from a
    model trained as `keras_transformer.training.vocabulary.train_tokenizer` does: with
    `normalization_rule_name="identity"`, `byte_fallback=True`, `remove_extra_whitespaces=False`,
    `add_dummy_prefix=False`, `pad_id=0`, `unk_id=1`, `bos_id=2`, `eos_id=3`.

    SentencePiece's own dummy prefix would lose a leading space on the way back. So the prefix is
    put here: a text that is not empty gets one space before it, and `detokenize` takes one away. A
    "▁" (U+2581) in a text is written as "␛_", and a "␛" (U+241B) as "␛.". A program that uses the
    model file by itself has to do the same (`prepare_line`).

    Args:
        model: content of a SentencePiece model file.

    Raises:
        ValueError: if `model` is not a SentencePiece model with the four special ids above.

    Example:
        tokenizer = SentencePieceTokenizer.load("models/en-de/tokenizer.model")
        tokenizer.detokenize(tokenizer.tokenize(["A dog runs."]))  # [b"A dog runs."]
    """

    filename = "tokenizer.model"

    def __init__(self, model: bytes):
        try:
            subwords = SentencepieceTokenizer(model, out_type=tf.int32)
        except tf.errors.OpError:
            raise ValueError(
                f"model must be a SentencePiece model file's content, got {len(model)} other bytes"
            ) from None
        super().__init__(int(subwords.vocab_size()), model)
        self._subwords = subwords
        special = self.pieces(range(min(4, self.vocab_size)))
        if special != ["<pad>", "<unk>", "<s>", "</s>"]:
            raise ValueError(
                "model must have the special ids <pad>=0, <unk>=1, <s>=2, </s>=3,"
                f" got the pieces {special}"
            )

    def _tokenize(self, texts):
        texts = tf.strings.regex_replace(texts, _ESCAPE, _ESCAPED_ESCAPE)
        texts = tf.strings.regex_replace(texts, _SPACE, _ESCAPED_SPACE)
        return self._subwords.tokenize(tf.where(texts == "", texts, " " + texts))

    def _detokenize(self, token_ids):
        texts = self._subwords.detokenize(token_ids)
        texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        texts = tf.strings.regex_replace(texts, _ESCAPED_SPACE, _SPACE)
        return tf.strings.regex_replace(texts, _ESCAPE + r"\.", _ESCAPE)

    def pieces(self, token_ids) -> list[str]:
        token_ids = tf.constant(list(token_ids), tf.int32)
        return [piece.decode() for piece in self._subwords.id_to_string(token_ids).numpy()]

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SentencePieceTokenizer":
        return cls(pathlib.Path(path).read_bytes())
