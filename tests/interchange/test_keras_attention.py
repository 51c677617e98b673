"""Attention of Keras itself compared with what is made of it, and back."""

import inspect

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy
from numpy.testing import assert_allclose, assert_array_equal

from keras_transformer import MultiHeadAttention
from keras_transformer.errors import ConfigError
from keras_transformer.interchange import from_keras, to_keras

TOLERANCE = dict(rtol=0, atol=2e-6)
REGULARIZED = dict(
    kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=4),
    bias_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=5),
    kernel_regularizer="l2",
    bias_regularizer=keras.regularizers.L1(0.1),
    activity_regularizer="l2",
    kernel_constraint="non_neg",
    bias_constraint=keras.constraints.MaxNorm(1.5),
    seed=3,
)
STOCK = {
    "plain": dict(num_heads=2, key_dim=4),
    "every initializer, regularizer and constraint": dict(
        num_heads=2, key_dim=4, dropout=0.2, **REGULARIZED
    ),
    "other widths": dict(num_heads=3, key_dim=5, value_dim=7, output_shape=9),
    "two output axes": dict(num_heads=2, key_dim=4, output_shape=(3, 2)),
    "without biases": dict(num_heads=2, key_dim=4, use_bias=False),
    "gate": dict(num_heads=2, key_dim=4, value_dim=3, use_gate=True),
    "sliding window": dict(num_heads=2, key_dim=4, sliding_window=2),
}
GROUPED = {
    "grouped": dict(head_dim=4, num_query_heads=4, num_key_value_heads=2),
    "one for all": dict(
        head_dim=4, num_query_heads=4, num_key_value_heads=1, use_bias=False, sliding_window=3
    ),
    "gated": dict(
        head_dim=4,
        num_query_heads=4,
        num_key_value_heads=2,
        use_gate=True,
        dropout=0.1,
        **REGULARIZED,
    ),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomize(layer, seed=1):
    """Random biases too, which begin with zeros."""
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=weight.shape) * 0.4 for weight in layer.get_weights()])
    return layer


# Gates come with Keras 3.14, sliding windows with 3.15.
KNOWN = set(inspect.signature(keras.layers.MultiHeadAttention).parameters)
LAYERS = [
    pytest.param(cls, settings, id=name)
    for cls, cases in (
        (keras.layers.MultiHeadAttention, STOCK),
        (keras.layers.GroupQueryAttention, GROUPED),
    )
    for name, settings in cases.items()
    if settings.keys() & {"use_gate", "sliding_window"} <= KNOWN
]


def outputs_of(stock, *inputs, **masks):
    # With scores: Keras' fused attention fails on JAX if values are not as wide as keys.
    return numpy(stock(*inputs, **masks, return_attention_scores=True)[0])


def built(cls, settings, query_width=8, value_width=8, key_width=8):
    layer = cls(**settings)
    layer.build((None, None, query_width), (None, None, value_width), (None, None, key_width))
    return randomize(layer)


@pytest.mark.parametrize("cls, settings", LAYERS)
def test_outputs_equal_those_of_the_stock_layer_with_padding_and_causal_masks(cls, settings):
    stock = built(cls, settings)
    attention = from_keras(stock)
    x, real = normal(2, 6, 8), np.array([[True] * 6, [True] * 4 + [False] * 2])
    pairs = np.random.default_rng(2).random((2, 6, 6)) < 0.7
    pairs |= np.eye(6, dtype=bool)
    for masks in (
        dict(),
        dict(value_mask=real),
        dict(attention_mask=pairs),
        dict(value_mask=real, use_causal_mask=True),
    ):
        # Stock attention averages all values where nothing may be attended to, as at padding with a
        # sliding window.
        assert_allclose(
            numpy(attention(x, x, **masks))[real],
            outputs_of(stock, x, x, **masks)[real],
            **TOLERANCE,
        )


@pytest.mark.parametrize("cls, settings", LAYERS)
def test_outputs_equal_for_query_value_and_key_of_different_widths(cls, settings):
    stock = built(cls, settings, query_width=8, value_width=5, key_width=6)
    inputs = normal(2, 4, 8), normal(2, 4, 5, seed=1), normal(2, 4, 6, seed=2)
    assert_allclose(numpy(from_keras(stock)(*inputs)), outputs_of(stock, *inputs), **TOLERANCE)


@pytest.mark.parametrize("cls, settings", LAYERS)
def test_back_again_every_setting_and_every_bit_is_the_same(cls, settings):
    stock = built(cls, settings)
    attention = from_keras(stock)
    back = to_keras(attention)
    assert type(back) is cls and back.get_config() == stock.get_config()
    for weight, expected in zip(back.get_weights(), stock.get_weights(), strict=True):
        assert_array_equal(weight, expected)
    again = from_keras(back)
    assert again.get_config() == attention.get_config()
    for weight, expected in zip(again.get_weights(), attention.get_weights(), strict=True):
        assert_array_equal(weight, expected)


def test_attention_over_the_axes_of_an_image():
    stock = keras.layers.MultiHeadAttention(2, 4, attention_axes=(2,))
    x = normal(2, 3, 4, 8)
    stock(x, x)
    randomize(stock)
    attention = from_keras(stock)
    assert attention.attention_axes == (2,)
    assert_allclose(numpy(attention(x, x)), numpy(stock(x, x)), **TOLERANCE)
    assert_allclose(numpy(to_keras(attention)(x, x)), numpy(stock(x, x)), **TOLERANCE)


def test_a_sliding_window_is_converted():
    attention = built(MultiHeadAttention, dict(num_heads=2, key_dim=4, sliding_window=3))
    if "sliding_window" not in KNOWN:
        with pytest.raises(
            ConfigError,
            match="^sliding_window must be None to become a keras.layers.MultiHeadAttention",
        ):
            to_keras(attention)
        return
    x = normal(2, 11, 8)
    for causal in (False, True):
        expected = attention(x, x, use_causal_mask=causal)
        assert_allclose(
            numpy(to_keras(attention)(x, x, use_causal_mask=causal)), numpy(expected), **TOLERANCE
        )


def test_name_and_policy_are_kept():
    stock = keras.layers.MultiHeadAttention(2, 4, dtype="mixed_bfloat16", name="looks_around")
    stock.build((None, None, 8), (None, None, 8))
    attention = from_keras(stock)
    assert (attention.name, attention.dtype_policy.name) == ("looks_around", "mixed_bfloat16")
    stock = keras.layers.MultiHeadAttention(2, 4, dtype="bfloat16")
    stock.build((None, None, 8), (None, None, 8))
    for weight, expected in zip(to_keras(from_keras(stock)).weights, stock.weights, strict=True):
        assert weight.dtype == "bfloat16"
        assert_array_equal(numpy(weight).astype("float32"), numpy(expected).astype("float32"))


def test_adapters_of_low_rank_are_added_to_the_kernels():
    stock = built(keras.layers.MultiHeadAttention, STOCK["plain"])
    stock.query_dense.enable_lora(2)
    randomize(stock)
    x = normal(2, 6, 8)
    assert_allclose(numpy(from_keras(stock)(x, x)), numpy(stock(x, x)), **TOLERANCE)


class Subclass(keras.layers.MultiHeadAttention):
    pass


def test_what_cannot_be_converted_is_one_line():
    with pytest.raises(
        ConfigError, match="^layer must be one of MultiHeadAttention, .*; received Dense$"
    ):
        from_keras(keras.layers.Dense(3))
    with pytest.raises(ConfigError, match="received Subclass$"):
        from_keras(built(Subclass, STOCK["plain"]))
    with pytest.raises(
        ConfigError, match="^attend must be built before it is converted; call it or its build"
    ):
        from_keras(keras.layers.MultiHeadAttention(2, 4, name="attend"))
    quantized = built(keras.layers.MultiHeadAttention, STOCK["plain"])
    quantized.query_dense.quantize("int8")
    with pytest.raises(
        ConfigError, match="^quantization_mode must be None .*; received quantization_mode='int8'$"
    ):
        from_keras(quantized)


@pytest.mark.parametrize(
    "settings, name",
    [
        (dict(query_key_norm=True), "query_key_norm"),
        (dict(relative_positions="rotary"), "relative_positions"),
        (dict(num_key_value_heads=1, value_dim=6), "value_dim"),
        (dict(num_key_value_heads=1, output_shape=6), "output_shape"),
    ],
)
def test_what_keras_has_not_is_one_line(settings, name):
    attention = built(MultiHeadAttention, dict(num_heads=2, key_dim=4, **settings))
    with pytest.raises(
        ConfigError,
        match=f"^{name} must be .* to become a keras.layers.\\w* .Keras .*.; received {name}=",
    ):
        to_keras(attention)
