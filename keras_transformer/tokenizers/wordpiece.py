"""WordPiece subwords, cased, inside the graph."""

import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf
from tensorflow_text import FastBertTokenizer

from ..errors import ConfigError
from ..rules import require
from ..tensors import Tensor
from .placeholders import NUM_PLACEHOLDERS
from .tokenizer import Tokenizer

# Longer words are always unknown; few words are that long.
_BYTES_PER_WORD = 100


class WordPieceTokenizer(Tokenizer):
    """BERT's WordPiece, cased: words and punctuation marks, segmented into the longest known pieces.

    It loses spacing: `detokenize` puts one space between words and marks ("Don ' t stop ."). A word that the vocabulary
    cannot spell becomes one unknown id, and is missing after `detokenize`.

    Args:
        vocabulary: the pieces in the order of their ids, "[PAD]", "[UNK]", "[START]", "[END]" first; a
            piece that continues a word begins with "##".

    Raises:
        ConfigError: The vocabulary does not begin with the four special pieces, or WordPiece cannot use it.

    Example:
        >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "dog", "##s"])
        >>> tokenizer.tokenize(["dogs dog"])
        <tf.RaggedTensor [[4, 5, 4]]>
    """

    filename = "vocab.txt"
    special_pieces = ("[PAD]", "[UNK]", "[START]", "[END]")
    # In brackets, like the special tokens, so that no word of a text is one: words end at punctuation marks.
    placeholder_pieces = tuple(f"[PH{number}]" for number in range(1, NUM_PLACEHOLDERS + 1))
    term_pieces = ("[TERM]", "[TRANSLATION]", "[/TERM]")
    space_in_front = space_behind = " "

    def __init__(self, vocabulary: Sequence[str]) -> None:
        special = tuple(vocabulary[:4])
        expected = ", ".join(self.special_pieces)
        require(special == self.special_pieces, "vocabulary", f"a list that begins with {expected}", special)
        file_content = "".join(piece + "\n" for piece in vocabulary).encode()
        longest = max(len(piece.encode()) for piece in vocabulary)
        # Pieces that texts are segmented into are unlike reserved ones: a text is split at brackets.
        super().__init__(vocabulary, file_content, max(longest, _BYTES_PER_WORD))
        self.vocabulary = tuple(vocabulary)
        try:
            self._subwords = FastBertTokenizer(list(vocabulary), token_out_type=tf.int32, support_detokenization=True)
        except RuntimeError as error:
            # For example, a piece occurs twice.
            raise ConfigError(f"WordPiece cannot use the vocabulary ({str(error).splitlines()[0]})") from None

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        return self._subwords.tokenize(parts)

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        # Also put one space between words and what stays as it is.
        parts = self._subwords.detokenize(token_ids)
        return tf.where(tf.equal(parts, ""), "", tf.strings.join([" ", parts, " "]))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "WordPieceTokenizer":
        # Not splitlines(), which also splits at characters that a piece may contain.
        text = pathlib.Path(path).read_bytes().decode()
        return cls(text.removesuffix("\n").split("\n"))
