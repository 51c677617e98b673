"""WordPiece subwords, cased, inside the graph."""

import os
import pathlib

import tensorflow as tf
from tensorflow_text import FastBertTokenizer

from .tokenizer import Tokenizer


class WordPieceTokenizer(Tokenizer):
    """BERT's WordPiece, cased: words and punctuation marks, cut into the longest known pieces.

    It loses spacing: `detokenize` puts one space between words and marks ("Don ' t stop ."). A word
    that the vocabulary cannot spell is one unknown id, and gone on the way back.

    Args:
        vocabulary: the pieces in the order of their ids, "[PAD]", "[UNK]", "[START]", "[END]"
            first; a piece that continues a word begins with "##".

    Raises:
        ValueError: if `vocabulary` does not begin with the four special pieces.

    Example:
        tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "dog", "##s"])
        tokenizer.tokenize(["dogs dog"])  # [[4, 5, 4]]
    """

    filename = "vocab.txt"
    special_pieces = ("[PAD]", "[UNK]", "[START]", "[END]")

    def __init__(self, vocabulary: list[str]):
        special = tuple(vocabulary[:4])
        if special != self.special_pieces:
            raise ValueError(f"vocabulary must begin with {self.special_pieces}, got {special}")
        file_content = "".join(piece + "\n" for piece in vocabulary).encode()
        super().__init__(len(vocabulary), file_content)
        self.vocabulary = tuple(vocabulary)
        self._subwords = FastBertTokenizer(
            list(vocabulary), token_out_type=tf.int32, support_detokenization=True
        )

    def _tokenize(self, texts):
        return self._subwords.tokenize(texts)

    def _detokenize(self, token_ids):
        return self._subwords.detokenize(token_ids)

    def pieces(self, token_ids) -> list[str]:
        return [self.vocabulary[token_id] for token_id in token_ids]

    @classmethod
    def load(cls, path: str | os.PathLike) -> "WordPieceTokenizer":
        # Not splitlines(): a piece may hold a character that it takes for the end of a line.
        text = pathlib.Path(path).read_bytes().decode()
        return cls(text.removesuffix("\n").split("\n"))
