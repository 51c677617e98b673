"""`pickle` and `copy.deepcopy` of layers by themselves, and of a Transformer."""

import copy
import pickle

import keras
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    PositionalEncoding,
    TiedProjection,
    TransformerConfig,
    build_transformer,
)

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
SOURCE = np.random.default_rng(1).normal(size=(2, 4, 6)).astype("float32")
TOKEN_IDS = np.array([[3, 8, 1, 2, 0], [5, 2, 0, 0, 0]])
BLOCK = dict(num_heads=2, d_ff=12)
LAYERS = {
    "MultiHeadAttention": (lambda: MultiHeadAttention(2, 4, query_key_norm=True, use_gate=True), (X, SOURCE)),
    "FeedForward": (lambda: FeedForward(12, "silu", gated=True), (X,)),
    "EncoderLayer": (lambda: EncoderLayer(**BLOCK, relative_positions="t5"), (X,)),
    "DecoderLayer": (lambda: DecoderLayer(**BLOCK, attention_bias=True), (X,)),
    "DecoderLayer with a source": (lambda: DecoderLayer(**BLOCK, norm_first=True), (X, SOURCE)),
    "Encoder": (lambda: Encoder(2, **BLOCK, normalization="rms"), (X,)),
    "Decoder": (lambda: Decoder(2, **BLOCK, norm_first=True), (X, SOURCE)),
    "PositionalEmbedding": (lambda: PositionalEmbedding(9, 8, "learned", max_length=5), (TOKEN_IDS,)),
    "PositionalEncoding": (lambda: PositionalEncoding("learned", max_length=5), (X,)),
}


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def pickled(layer):
    return pickle.loads(pickle.dumps(layer))


def assert_same_but_apart(copied, layer, *inputs):
    outputs = numpy(layer(*inputs))
    assert_array_equal(numpy(copied(*inputs)), outputs)
    assert len(copied.weights) == len(layer.weights) > 0
    for weight in copied.weights:
        weight.assign(numpy(weight) + 1)
    assert_array_equal(numpy(layer(*inputs)), outputs)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("make, inputs", LAYERS.values(), ids=LAYERS)
def test_a_copy_of_a_layer_is_the_same_and_apart(make, inputs, copied):
    layer = make()
    layer(*inputs)
    copied_layer = copied(layer)
    assert type(copied_layer) is type(layer) and copied_layer.get_config() == layer.get_config()
    assert_same_but_apart(copied_layer, layer, *inputs)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copied_transformer_is_still_tied_and_decodes(copied):
    config = TransformerConfig(9, 9, num_layers=1, d_model=8, d_ff=12, num_heads=2, max_length=8)
    model = build_transformer(config)
    copied_model = copied(model)
    inputs = {"source": TOKEN_IDS, "target": TOKEN_IDS}
    assert_array_equal(numpy(copied_model(inputs)), numpy(model(inputs)))
    assert len(copied_model.weights) == len(model.weights)
    log_probs = []
    for each in (model, copied_model):
        step, state = each.start_decoding(TOKEN_IDS, 1, 4)
        log_probs.append(numpy(step(np.full((2, 1), 3), np.zeros((2, 1), "int32"), 0, state)[0]))
    assert_array_equal(*log_probs)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_embedding_and_projection_of_a_copied_model_share_their_table(copied):
    embedding = PositionalEmbedding(9, 8)
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, TiedProjection(embedding)(embedding(inputs)))
    copied_model = copied(model)
    assert len(copied_model.weights) == 1
    assert_same_but_apart(copied_model, model, TOKEN_IDS)
