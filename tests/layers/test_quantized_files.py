"""Quantized layers and models: their files load with the same weights and outputs."""

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    PositionalEmbedding,
    TiedProjection,
    TransformerConfig,
    build_transformer,
)

TOKEN_IDS = np.array([[3, 1, 4, 2, 0], [5, 2, 6, 0, 0]])


def language_model():
    token_ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(9, 16)
    hidden = Decoder(2, num_heads=2, d_ff=32)(embedding(token_ids))
    hidden = DecoderLayer(num_heads=2, d_ff=32)(hidden)
    return keras.Model(token_ids, TiedProjection(embedding)(hidden))


def sequential_model():
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            PositionalEmbedding(9, 16),
            Encoder(1, num_heads=2, d_ff=32, norm_first=True),
            EncoderLayer(num_heads=2, d_ff=32, gated=True),
            FeedForward(d_ff=32),
        ]
    )


def num_integer_kernels(model):
    return sum(variable.dtype == "int8" for variable in model.variables)


# Kernels: a stack of two decoder layers and one more have 6 each, the encoder layers 6 and 7, and
# the feed-forward network 2.
@pytest.mark.parametrize(
    ("make", "num_kernels"),
    [
        pytest.param(language_model, 3 * 6, marks=pytest.mark.slow),
        (sequential_model, 6 + 7 + 2),
    ],
)
def test_a_quantized_file_loads_with_the_same_outputs(make, num_kernels, tmp_path):
    model = make()
    floats = numpy(model(TOKEN_IDS))
    table = numpy(model.layers[-1].kernel) if make is language_model else None
    model.quantize("int8")
    quantized = numpy(model(TOKEN_IDS))
    assert num_integer_kernels(model) == num_kernels
    assert 0 < np.abs(quantized - floats).max() < 0.5
    if table is not None:
        # Embeddings and the projection that is tied to them stay as they are.
        np.testing.assert_array_equal(numpy(model.layers[-1].kernel), table)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert num_integer_kernels(loaded) == num_kernels
    np.testing.assert_array_equal(numpy(loaded(TOKEN_IDS)), quantized)


@pytest.mark.parametrize("tie_embeddings", [pytest.param("none", marks=pytest.mark.slow), "all"])
def test_a_quantized_transformer_is_saved_and_loads(tie_embeddings, tmp_path):
    config = TransformerConfig(
        source_vocab_size=9,
        target_vocab_size=9,
        num_layers=1,
        d_model=16,
        d_ff=32,
        num_heads=2,
        tie_embeddings=tie_embeddings,
    )
    model = build_transformer(config)
    model.quantize("int8")
    inputs = {"source": TOKEN_IDS, "target": TOKEN_IDS}
    expected = numpy(model(inputs))
    # Four projections, two of the feed-forward network, four of cross-attention.
    assert num_integer_kernels(model) == 6 + 10 + (tie_embeddings == "none")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(inputs)), expected)
