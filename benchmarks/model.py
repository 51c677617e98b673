"""The model that is measured: its sizes, its vocabulary, and a model directory of it with random weights."""

import itertools

from keras_transformer.config import DecodingConfig, TokenizerConfig, TransformerConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.config import TrainingConfig
from keras_transformer.training.vocabulary import train_tokenizer

SIZES = dict(num_layers=3, d_model=256, d_ff=1024, num_heads=4, dropout=0.1)
VOCAB_SIZE = 8000


def learn_vocabulary(pairs, vocab_size=VOCAB_SIZE):
    """The vocabulary that both languages share, as `keras-transformer train` learns it."""
    return train_tokenizer(itertools.chain(pairs.source, pairs.target), "bpe", vocab_size)


def model_config(vocab_size=VOCAB_SIZE):
    return TransformerConfig(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **SIZES)


def write_random_model(path, pairs):
    """Writes a model directory that has learned a vocabulary and nothing else: it translates, but badly."""
    tokenizer = learn_vocabulary(pairs)
    config = model_config(tokenizer.vocab_size)
    model_dir = ModelDir(path)
    model_dir.path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(model_dir.path / tokenizer.filename)
    model_dir.write_config(
        config, TokenizerConfig("bpe", tokenizer.vocab_size), DecodingConfig(), TrainingConfig()
    )
    build_transformer(config, dtype="float32").save_weights(model_dir.best_path)
