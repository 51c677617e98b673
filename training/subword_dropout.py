"""BPE-dropout: a text cut into other subwords each time."""

import sentencepiece
import tensorflow as tf

from keras_transformer.tokenizers.sentencepiece import prepare_line


class SubwordDropout:
    """A tokenizer for training that leaves out merges at random (Provilkov et al. 2020, arXiv 1910.13267).

    Args:
        tokenizer: a `SentencePieceTokenizer` of kind "bpe".
        rate: probability with which a merge is left out each time it could be made.
        seed: of the random numbers.

    Example:
        SubwordDropout(tokenizer, rate=0.1, seed=1).tokenize(["A dog runs."])  # other ids at each call
    """

    def __init__(self, tokenizer, rate, seed):
        self.end_id = tokenizer.end_id
        self.vocab_size = tokenizer.vocab_size
        self.rate = rate
        self.seed = seed
        self._calls = 0
        self._model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.file_content)

    def tokenize(self, texts):
        """As `Tokenizer.tokenize`, for texts in valid UTF-8: int32 RaggedTensor (n, None)."""
        texts = [text.decode() for text in tf.convert_to_tensor(texts).numpy()]
        lines = [prepare_line(text) if text else "" for text in texts]
        # Every call runs in threads of its own, whose numbers begin with the seed.
        sentencepiece.set_random_generator_seed((self.seed * 1_000_003 + self._calls) % 2**32)
        self._calls += 1
        rows = self._model.encode(
            lines, out_type=int, enable_sampling=True, nbest_size=-1, alpha=self.rate, num_threads=1
        )
        return tf.RaggedTensor.from_row_lengths(
            tf.constant([token_id for row in rows for token_id in row], tf.int32),
            [len(row) for row in rows],
        )
