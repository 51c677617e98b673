"""The model that the benchmarks measure: its sizes, its vocabulary, and a model directory with random weights."""

import itertools
import os
from typing import Any

from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs

from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.tokenizers import Tokenizer

SIZES: dict[str, Any] = dict(num_layers=3, d_model=256, d_ff=1024, num_heads=4, dropout=0.1)
VOCAB_SIZE = 8000
# The generated text has too few different words for a larger vocabulary.
GENERATED_VOCAB_SIZE = 2000


def vocab_size_for(data: str | None) -> int:
    """Returns the vocabulary size for a text.

    Args:
        data: str or None. Directory of the text. None: generated text.
    """
    return GENERATED_VOCAB_SIZE if data is None else VOCAB_SIZE


def learn_tokenizer(pairs: SentencePairs, vocab_size: int) -> Tokenizer:
    """Learns the vocabulary that both languages share, as `keras-transformer train` does.

    Args:
        pairs: SentencePairs to learn from.
        vocab_size: int.

    Raises:
        ConfigError: The text is too small for the vocabulary.
    """
    return train_tokenizer(itertools.chain(pairs.source, pairs.target), "bpe", vocab_size)


def write_random_model(path: str | os.PathLike[str], pairs: SentencePairs, vocab_size: int) -> None:
    """Writes a model directory with a learned tokenizer and random weights.

    Args:
        path: str or path of the directory, which is made if it does not exist.
        pairs: SentencePairs to learn the tokenizer from.
        vocab_size: int.

    Raises:
        ConfigError: The text is too small for the vocabulary.
    """
    tokenizer = learn_tokenizer(pairs, vocab_size)
    vocab_size = tokenizer.vocab_size
    model = TransformerConfig(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **SIZES)
    model_dir = ModelDir(path)
    model_dir.path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(model_dir.path / tokenizer.filename)
    model_dir.write_config(Config(model, TokenizerConfig("bpe", vocab_size)))
    build_transformer(model, dtype="float32").save_weights(model_dir.best_path)
