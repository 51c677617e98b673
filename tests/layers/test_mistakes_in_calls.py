"""Mistakes in calls: a message names the argument of the layer that was called, and the shapes."""

import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
    NewPositions,
)
from keras_transformer.errors import ConfigError
from keras_transformer.layers import Decoder, Encoder, Residual

QUERY, VALUE = np.ones((2, 5, 8), "float32"), np.ones((2, 7, 8), "float32")
DECODERS = pytest.mark.parametrize(
    "decoder", [lambda: DecoderLayer(2, 8), lambda: Decoder(1, 2, 8)]
)


def mask(*shape):
    return np.ones(shape, "bool")


def floats(*shape):
    return np.ones(shape, "float32")


def refused(message, layer, *inputs, **arguments):
    with pytest.raises(ConfigError, match=re.escape(message)):
        layer(*inputs, **arguments)


@DECODERS
@pytest.mark.parametrize(
    "shape", [(2, 5, 5), (7,), (7, 5), (2, 3, 5, 7), (3, 5, 7), (1, 2, 2, 5, 7)]
)
def test_a_wrong_mask_or_bias_of_cross_attention_is_named(decoder, shape):
    shapes = "(2, 2, 5, 7), for target and source of shapes (2, 5, 8) and (2, 7, 8)"
    for name, value in (
        ("source_attention_mask", mask(*shape)),
        ("cross_score_bias", floats(*shape)),
    ):
        message = f"{name} must broadcast to {shapes}; received {name} of shape {shape}"
        refused(message, decoder(), QUERY, VALUE, **{name: value})


@DECODERS
@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 5, 7), (1, 2, 5, 7), (2, 1, 1, 7)])
def test_every_shape_that_broadcasts_to_the_scores_is_taken(decoder, shape):
    layer = decoder()
    expected = ops.convert_to_numpy(layer(QUERY, VALUE))
    given = {"source_attention_mask": mask(*shape), "cross_score_bias": 0 * floats(*shape)}
    actual = ops.convert_to_numpy(layer(QUERY, VALUE, **given))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@DECODERS
def test_what_is_about_the_source_needs_a_source(decoder):
    for name, value in (
        ("source_mask", mask(2, 7)),
        ("source_attention_mask", mask(5, 7)),
        ("cross_score_bias", floats(5, 7)),
    ):
        refused(
            f"{name} requires a source; received source=None", decoder(), QUERY, **{name: value}
        )


@pytest.mark.parametrize("name", ["attention_mask", "score_bias"])
@pytest.mark.parametrize("shape", [(), (5,), (1, 2, 2, 5, 7)])
def test_a_mask_of_a_wrong_rank_is_refused_with_its_shape(name, shape):
    message = (
        f"{name} must be a tensor of rank 2 to 4, and broadcast to (2, 2, 5, 7); received {name} "
        f"of shape {shape}"
    )
    refused(message, MultiHeadAttention(2, 4), QUERY, VALUE, **{name: floats(*shape)})


NO_NUMBERS = ["causal", {}, object()]
# On PyTorch, Keras itself refuses arrays of text.
if keras.backend.backend() != "torch":
    NO_NUMBERS.append(np.array(["a"]))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=type)
def test_a_mask_or_bias_that_is_no_array_of_numbers_is_named(value):
    rule = "boolean, True = attend, or hold only 0 and 1; received"
    layer = EncoderLayer(2, 8)
    refused(f"mask must be {rule}", layer, QUERY, mask=value)
    refused(f"attention_mask must be {rule}", layer, QUERY, attention_mask=value)
    refused("score_bias must be an array of floats; received", layer, QUERY, score_bias=value)


def test_rows_of_different_lengths_are_named():
    rule = "boolean, True = attend, or hold only 0 and 1, in rows of equal length; received"
    refused(f"mask must be {rule}", EncoderLayer(2, 8), QUERY, mask=[[True], [True, False]])


def test_inputs_that_do_not_fit_the_built_attention_are_named():
    attention = MultiHeadAttention(2, 4)
    attention(QUERY, VALUE)
    features = "must have 8 features, as the layer was built for; received"
    refused(f"value {features} value of shape (2, 7, 9)", attention, QUERY, floats(2, 7, 9))
    refused(f"key {features} key of shape (2, 7, 9)", attention, QUERY, VALUE, floats(2, 7, 9))
    refused("value must have the same rank as query", attention, QUERY, floats(2, 2, 7, 8))
    message = (
        "key must have the same shape as value, except for the last axis; received key of shape"
    )
    refused(f"{message} (2, 6, 8)", attention, QUERY, VALUE, floats(2, 6, 8))
    refused(f"{message} (2, 8)", attention, QUERY, VALUE, floats(2, 8))


@pytest.mark.parametrize("norm", [3, "layer", keras.layers.LayerNormalization], ids=str)
def test_a_residual_connection_needs_a_layer(norm):
    with pytest.raises(ConfigError, match="norm must be a keras.layers.Layer or None; received"):
        Residual(norm)


@pytest.mark.parametrize("shape", [(2, 6, 8), (2, 5, 9), (3, 5, 8)])
def test_a_sublayer_must_keep_the_shape(shape):
    message = (
        "sublayer_output must have the same shape as inputs, (2, 5, 8); received sublayer_output of "
        f"shape {shape}"
    )
    refused(message, Residual(None), QUERY, floats(*shape))


def test_mistakes_in_steps_are_named():
    layer = EncoderLayer(2, 8)
    layer(QUERY)
    cache = layer.init_cache(2, 4)
    for message, hidden, given in (
        ("hidden must be of shape (batch, length, width)", floats(2, 8), cache),
        ("hidden must have the same batch size as the cache, 2", floats(3, 1, 8), cache),
        ("cache must be from init_cache or the previous step", floats(2, 1, 8), None),
    ):
        refused(message, layer.step, hidden, given, NewPositions(0))
    refused("positions must be a NewPositions", layer.step, floats(2, 1, 8), cache, 0)
    message = "mask must broadcast to (2, 1, 4); received mask of shape (2, 1, 9)"
    refused(message, layer.step, floats(2, 1, 8), cache, NewPositions(0, mask(2, 1, 9)))
    refused("batch_size must be at least 0; received batch_size=-1", layer.init_cache, -1)
    stack = Encoder(2, 2, 8)
    stack(QUERY)
    message = "caches must be a list of 2 values, one per layer; received 1"
    refused(message, stack.step, floats(2, 1, 8), [cache], NewPositions(0))
