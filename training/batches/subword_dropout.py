"""BPE-dropout: a text is segmented into different subwords each time."""

from typing import Annotated

import sentencepiece
import tensorflow as tf

from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.tokenizers.sentencepiece import escape, prepare_line


class SubwordDropout:
    """A tokenizer for training that skips merges at random (Provilkov et al. 2020, arXiv 1910.13267).

    Args:
        tokenizer: SentencePieceTokenizer of kind "bpe".
        rate: float. Probability with which a possible merge is skipped.
        seed: int. Seed of the random numbers.

    Example:
        >>> sampler = SubwordDropout(tokenizer, rate=0.5, seed=1)
        >>> first, second = (sampler.tokenize(["A dog runs through the park."]).to_list() for _ in range(2))
        >>> first != second
        True
    """

    def __init__(self, tokenizer: SentencePieceTokenizer, rate: float, seed: int) -> None:
        self.end_id = tokenizer.end_id
        self.vocab_size = tokenizer.vocab_size
        self.tags = tokenizer.tags
        self.placeholder_ids = tokenizer.placeholder_ids
        self.term_ids = tokenizer.term_ids
        self.space_in_front = tokenizer.space_in_front
        self.rate = rate
        self.seed = seed
        self._calls = 0
        self._model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.file_content)

    def tokenize(self, texts: Annotated[Tensor, "string (n,)"] | list[str]) -> tf.RaggedTensor:
        """Segments texts in valid UTF-8, as `Tokenizer.tokenize` does: int32 (n, None)."""
        decoded = [text.decode() for text in tf.convert_to_tensor(texts).numpy()]
        return self._sample([prepare_line(text) if text else "" for text in decoded])

    def segment(self, parts: Annotated[Tensor, "string (n,)"]) -> tf.RaggedTensor:
        """Segments parts of texts, as `Tokenizer.segment` does: int32 (n, None)."""
        return self._sample([escape(part.decode()) for part in tf.convert_to_tensor(parts).numpy()])

    def _sample(self, lines: list[str]) -> tf.RaggedTensor:
        # SentencePiece's random numbers start from the seed in a new thread, and it starts one for two lines or more.
        sentencepiece.set_random_generator_seed((self.seed * 1_000_003 + self._calls) % 2**32)
        self._calls += 1
        *rows, _ = self._model.encode(
            [*lines, ""], out_type=int, enable_sampling=True, nbest_size=-1, alpha=self.rate, num_threads=1
        )
        return tf.RaggedTensor.from_row_lengths(
            tf.constant([token_id for row in rows for token_id in row], tf.int32),
            [len(row) for row in rows],
        )
