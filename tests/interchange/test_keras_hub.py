"""KerasHub's layers compared with what is made of them, and back."""

import keras
import keras_hub
import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy
from numpy.testing import assert_allclose, assert_array_equal

from keras_transformer import (
    DecoderLayer,
    EncoderLayer,
    PositionalEmbedding,
    PositionalEncoding,
    RotaryPositions,
)
from keras_transformer.errors import ConfigError
from keras_transformer.interchange import from_keras_hub, to_keras_hub

TOLERANCE = dict(rtol=0, atol=2e-6)
REAL = np.array([[True] * 6, [True] * 4 + [False] * 2])
SOURCE_REAL = np.array([[True] * 5, [True] * 2 + [False] * 3])
SETTINGS = {
    "post-norm": dict(num_heads=2),
    "pre-norm": dict(num_heads=2, normalize_first=True, activation="gelu", dropout=0.2),
    "every setting": dict(
        num_heads=4,
        dropout=0.1,
        activation=keras.activations.silu,
        layer_norm_epsilon=1e-3,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3),
        bias_initializer="ones",
        name="named",
    ),
    "heads that do not divide the width": dict(num_heads=3),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(cls, settings, *widths):
    layer = cls(intermediate_dim=12, **settings)
    layer.build(*((None, None, width) for width in widths))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=weight.shape) * 0.4 for weight in layer.get_weights()])
    return layer


def assert_same(layer, expected):
    assert type(layer) is type(expected) and layer.get_config() == expected.get_config()
    for weight, other in zip(layer.weights, expected.weights, strict=True):
        assert_array_equal(numpy(weight), numpy(other))


each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@each_setting
def test_an_encoder_layer(settings):
    hub = built(keras_hub.layers.TransformerEncoder, settings, 8)
    layer = from_keras_hub(hub)
    x = normal(2, 6, 8)
    assert_allclose(numpy(layer(x)), numpy(hub(x)), **TOLERANCE)
    assert_allclose(numpy(layer(x, mask=REAL)), numpy(hub(x, padding_mask=REAL)), **TOLERANCE)
    pairs = np.broadcast_to(np.tri(6, dtype=bool), (2, 6, 6))
    expected = hub(x, padding_mask=REAL, attention_mask=pairs)
    assert_allclose(numpy(layer(x, mask=REAL, attention_mask=pairs)), numpy(expected), **TOLERANCE)
    assert_same(to_keras_hub(layer), hub)
    assert_same(from_keras_hub(to_keras_hub(layer)), layer)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_with_more_axes(norm_first):
    # The axes between batch and features are one sequence.
    hub = keras_hub.layers.TransformerEncoder(12, num_heads=2, normalize_first=norm_first)
    hub.build((None, None, None, 8))
    rng = np.random.default_rng(1)
    hub.set_weights([rng.normal(size=weight.shape) * 0.4 for weight in hub.get_weights()])
    layer = from_keras_hub(hub)
    x = normal(2, 3, 4, 8)
    expected = numpy(hub(x))
    assert_allclose(numpy(layer(x)), expected, **TOLERANCE)
    assert_allclose(numpy(to_keras_hub(layer)(x)), expected, **TOLERANCE)
    one_axis = EncoderLayer.from_config(layer.get_config())
    one_axis.build((None, None, 8))
    one_axis.set_weights(layer.get_weights())
    assert_allclose(numpy(one_axis(x.reshape(2, 12, 8))).reshape(x.shape), expected, **TOLERANCE)


@pytest.mark.slow
@each_setting
def test_a_decoder_layer_without_a_source(settings):
    hub = built(keras_hub.layers.TransformerDecoder, settings, 8)
    layer = from_keras_hub(hub)
    x = normal(2, 6, 8)
    assert_allclose(numpy(layer(x)), numpy(hub(x)), **TOLERANCE)
    assert_allclose(
        numpy(layer(x, target_mask=REAL)), numpy(hub(x, decoder_padding_mask=REAL)), **TOLERANCE
    )
    assert_same(to_keras_hub(layer), hub)
    assert_same(from_keras_hub(to_keras_hub(layer)), layer)


@each_setting
@pytest.mark.parametrize("source_width", [8, pytest.param(5, marks=pytest.mark.slow)])
def test_a_decoder_layer_with_a_source(settings, source_width):
    hub = built(keras_hub.layers.TransformerDecoder, settings, 8, source_width)
    layer = from_keras_hub(hub)
    x, source = normal(2, 6, 8), normal(2, 5, source_width, seed=2)
    assert_allclose(numpy(layer(x, source)), numpy(hub(x, source)), **TOLERANCE)
    expected = hub(x, source, decoder_padding_mask=REAL, encoder_padding_mask=SOURCE_REAL)
    outputs = layer(x, source, target_mask=REAL, source_mask=SOURCE_REAL)
    assert_allclose(numpy(outputs), numpy(expected), **TOLERANCE)
    assert_same(to_keras_hub(layer), hub)
    assert_same(from_keras_hub(to_keras_hub(layer)), layer)


@pytest.mark.parametrize("mask_zero", [False, True])
def test_an_embedding_of_tokens_and_positions(mask_zero):
    hub = keras_hub.layers.TokenAndPositionEmbedding(9, 6, 8, mask_zero=mask_zero, name="embedding")
    token_ids = np.array([[3, 8, 1, 0], [5, 2, 0, 0]])
    expected = hub(token_ids)
    embedding = from_keras_hub(hub)
    outputs = embedding(token_ids)
    assert_allclose(numpy(outputs), numpy(expected), **TOLERANCE)
    assert_allclose(
        numpy(embedding(token_ids, start_index=2)),
        numpy(hub(token_ids, start_index=2)),
        **TOLERANCE,
    )
    mask = embedding.compute_mask(token_ids)
    assert (mask is None) == (not mask_zero)
    if mask_zero:
        assert_array_equal(numpy(mask), token_ids != 0)
    assert_same(to_keras_hub(embedding), hub)
    assert_same(from_keras_hub(to_keras_hub(embedding)), embedding)


def test_a_model_is_cloned_with_converted_layers():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedding = keras_hub.layers.TokenAndPositionEmbedding(9, 6, 8, mask_zero=True)
    encoder = keras_hub.layers.TransformerEncoder(12, num_heads=2)
    decoder = keras_hub.layers.TransformerDecoder(12, num_heads=2)
    hidden = decoder(embedding(target), encoder(embedding(source)))
    old = keras.Model([source, target], keras.layers.Dense(9, name="projection")(hidden))

    def convert(layer):
        return from_keras_hub(layer) if type(layer) in map(type, hub_layers) else layer

    hub_layers = (embedding, encoder, decoder)
    new = keras.models.clone_model(old, clone_function=convert)
    assert new.get_layer("projection") is old.get_layer("projection")
    assert not any(type(layer) in map(type, hub_layers) for layer in new.layers)
    token_ids = [np.array([[3, 8, 1, 0], [5, 2, 0, 0]]), np.array([[1, 4, 7], [1, 6, 0]])]
    # The rounding of several layers adds up.
    assert_allclose(numpy(new(token_ids)), numpy(old(token_ids)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        dict(scale_embedding=True),
        dict(positions="sinusoidal"),
        dict(padding_id=3),
        dict(dropout=0.1),
    ],
    ids=str,
)
def test_an_embedding_that_keras_hub_has_not_is_one_line(settings):
    plain = dict(positions="learned", max_length=6, scale_embedding=False)
    embedding = PositionalEmbedding(9, 8, **plain | settings)
    embedding.build((None, None))
    (name,) = settings
    with pytest.raises(
        ConfigError,
        match=f"^{name} must be .* to become a keras_hub.layers.Tok.*; received {name}=",
    ):
        to_keras_hub(embedding)


def test_an_embedding_with_a_projection_of_its_own_is_one_line():
    hub = keras_hub.layers.TokenAndPositionEmbedding(9, 6, 8, tie_weights=False)
    hub.build((None, None))
    with pytest.raises(
        ConfigError, match="^tie_weights must be True .*; received tie_weights=False$"
    ):
        from_keras_hub(hub)


class Subclass(keras_hub.layers.TransformerEncoder):
    pass


def test_what_cannot_be_converted_is_one_line():
    with pytest.raises(
        ConfigError, match="^layer must be one of TransformerEncoder, .*; received Dense$"
    ):
        from_keras_hub(keras.layers.Dense(3))
    with pytest.raises(ConfigError, match="received Subclass$"):
        from_keras_hub(built(Subclass, SETTINGS["post-norm"], 8))
    with pytest.raises(ConfigError, match="^one must be built before it is converted"):
        from_keras_hub(keras_hub.layers.TransformerEncoder(4, 2, name="one"))
    with pytest.raises(
        ConfigError, match="^layer must be one of EncoderLayer, DecoderLayer, .*; received Dense$"
    ):
        to_keras_hub(keras.layers.Dense(3))


WITHOUT_COUNTERPART = [
    *(
        dict(attention_bias=False),
        dict(activation_dropout=0.1),
        dict(attention_dropout=0.1),
        dict(sliding_window=2),
    ),
    *(
        dict(key_dim=3),
        dict(value_dim=3),
        dict(feed_forward_bias=False),
        dict(normalization="rms"),
        dict(gated=True),
    ),
    *(dict(num_key_value_heads=1), dict(query_key_norm=True), dict(relative_positions="alibi")),
    *(dict(kernel_regularizer="l2"), dict(bias_regularizer="l2")),
]


@pytest.mark.parametrize("settings", WITHOUT_COUNTERPART, ids=str)
@pytest.mark.parametrize("cls", [EncoderLayer, DecoderLayer])
def test_what_keras_hub_has_not_is_one_line(cls, settings):
    layer = cls(**dict(num_heads=2, d_ff=12, dropout=0.0, attention_bias=True, **{}) | settings)
    layer.build((None, None, 8))
    (name,) = settings
    with pytest.raises(
        ConfigError, match=f"^{name} must be .* to become a keras_hub.layers.*; received {name}="
    ):
        to_keras_hub(layer)


@pytest.mark.parametrize("shape", [(2, 5, 8), (2, 3, 5, 8)])
def test_learned_positions_of_features(shape):
    hub = keras_hub.layers.PositionEmbedding(6)
    layer = PositionalEncoding("learned", max_length=6)
    x = normal(*shape)
    expected = numpy(x + hub(x))
    layer.build(shape)
    layer.position_table.assign(hub.position_embeddings)
    assert_allclose(numpy(layer(x)), expected, **TOLERANCE)


# KerasHub's "dynamic" divides all frequencies by the factor that "ntk" multiplies the base by.
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (dict(base=500.0), dict(max_wavelength=500)),
        (dict(scaling="linear", factor=4.0), dict(scaling_factor=4.0)),
        (
            dict(scaling="yarn", factor=8.0, original_max_length=64),
            dict(rope_type="yarn", scaling_factor=8.0, original_max_position_embeddings=64),
        ),
        (
            dict(
                base=1e6,
                scaling="yarn",
                factor=2.5,
                original_max_length=2048,
                beta_fast=16.0,
                beta_slow=2.0,
            ),
            dict(
                max_wavelength=1000000,
                rope_type="yarn",
                scaling_factor=2.5,
                original_max_position_embeddings=2048,
                beta_fast=16.0,
                beta_slow=2.0,
            ),
        ),
    ],
    ids=lambda arguments: "-".join(map(str, arguments)),
)
def test_rotary_positions(ours, theirs):
    hub, scheme = keras_hub.layers.RotaryEmbedding(**theirs), RotaryPositions(**ours)
    # Theirs has heads behind positions.
    heads = normal(2, 3, 40, 16)
    expected = numpy(hub(np.swapaxes(heads, 1, 2)))
    assert_allclose(np.swapaxes(numpy(scheme.rotate(heads)), 1, 2), expected, rtol=0, atol=2e-5)
    positions = np.array([[7, 3, 900], [0, 1, 2]])
    expected = numpy(hub(np.swapaxes(heads[:, :, :3], 1, 2), positions=positions))
    turned = numpy(scheme.rotate(heads[:, :, :3], positions))
    # An angle of hundreds in float32 is off by up to 3e-5.
    assert_allclose(np.swapaxes(turned, 1, 2), expected, rtol=0, atol=5e-4)
