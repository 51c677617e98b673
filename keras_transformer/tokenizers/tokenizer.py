"""What the tokenizers share: ids, clean UTF-8 in, no special tokens out, one file."""

import os

import tensorflow as tf

from ..files import replacing


class Tokenizer(tf.Module):
    """Text to subword ids and back, inside the TensorFlow graph.

    A subclass supplies `_tokenize` and `_detokenize` on clean input, `pieces` and `load`. As a
    `tf.Module` it can be an attribute of what is passed to `tf.saved_model.save`, which then
    carries the vocabulary along.

    Attributes:
        pad_id, unk_id, start_id, end_id: 0, 1, 2, 3 in every tokenizer.
        vocab_size: number of ids, the four special ones included.
        filename: name of the tokenizer's file in a model directory.
    """

    pad_id, unk_id, start_id, end_id = 0, 1, 2, 3
    filename: str

    def __init__(self, vocab_size: int, file_content: bytes):
        super().__init__()
        self.vocab_size = vocab_size
        self.file_content = file_content

    def tokenize(self, texts) -> tf.RaggedTensor:
        """Splits texts into subword ids, without start and end ids.

        Args:
            texts: string tensor of shape (n,). Bytes that are not UTF-8 are read as U+FFFD.

        Returns:
            int32 RaggedTensor of shape (n, None). An empty text has no ids.
        """
        return self._tokenize(
            tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        )

    def detokenize(self, token_ids) -> tf.Tensor:
        """Joins subword ids into texts.

        Args:
            token_ids: int32 RaggedTensor of shape (n, None). Special ids, and ids that a model has
                beyond the vocabulary, produce nothing.

        Returns:
            string tensor of shape (n,), always valid UTF-8.
        """
        in_vocabulary = (token_ids > self.end_id) & (token_ids < self.vocab_size)
        return self._detokenize(tf.ragged.boolean_mask(token_ids, in_vocabulary))

    def pieces(self, token_ids) -> list[str]:
        """Returns the subwords of one sentence's ids, as strings to show to a person."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike) -> None:
        """Writes the tokenizer to the file `path`, whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.file_content)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        """Reads the file that `save` wrote."""
        raise NotImplementedError
