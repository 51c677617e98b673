"""Position schemes as objects: scaled rotary positions, and schemes of a user's own."""

import math

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import built, normal

from keras_transformer import (
    AlibiPositions,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    NewPositions,
    PositionScheme,
    RotaryPositions,
    T5Positions,
)
from keras_transformer.errors import ConfigError

BATCH, LENGTH, D_MODEL, KEY_DIM = 2, 9, 6, 8
ROWS = normal(BATCH, LENGTH, D_MODEL)
TOLERANCE = 2e-5
SCALINGS = {
    "base": dict(base=500.0),
    "linear": dict(scaling="linear", factor=4.0),
    "ntk": dict(scaling="ntk", factor=8.0),
    # With these, of four pairs the first stays, two are on the ramp, and the last is divided.
    "yarn": dict(scaling="yarn", factor=4.0, original_max_length=256),
    "yarn, other turns": dict(
        base=100.0,
        scaling="yarn",
        factor=2.5,
        original_max_length=64,
        beta_fast=8.0,
        beta_slow=0.5,
    ),
}
each_scaling = pytest.mark.parametrize("arguments", SCALINGS.values(), ids=SCALINGS)


def assert_close(tensor, expected):
    np.testing.assert_allclose(numpy(tensor), expected, atol=TOLERANCE)


# Rotary positions.


@each_scaling
def test_a_rotation_equals_numpy(arguments):
    scheme = RotaryPositions(**arguments)
    heads = normal(BATCH, 3, LENGTH, KEY_DIM)
    frequencies, magnitude = reference.rotary_frequencies(KEY_DIM, scheme)
    expected = magnitude * reference.rotated(heads, np.arange(LENGTH), frequencies)
    assert_close(scheme.rotate(heads), expected)
    positions = np.array([[0, 3, 3, 40, 7, 6, 5, 100, 1], [2, 0, 1, 3, 4, 5, 6, 7, 8]])
    expected = magnitude * reference.rotated(heads, positions[:, None], frequencies)
    assert_close(scheme.rotate(heads, positions), expected)
    # Not scaled, it would be another one.
    assert np.abs(numpy(RotaryPositions().rotate(heads)) - numpy(scheme.rotate(heads))).max() > 0.1


def test_a_base_by_hand():
    # Of width 4 and base 16 the angles of position 2 are 2 and 2 / 4.
    turned = RotaryPositions(base=16.0).rotate(
        np.array([[[1.0, 1.0, 0.0, 0.0]]], "float32"), np.array([[2]])
    )
    assert_close(turned, [[[math.cos(2), math.cos(0.5), math.sin(2), math.sin(0.5)]]])


def test_linear_scaling_takes_a_position_for_a_fraction_of_it():
    heads = normal(1, 1, 4, KEY_DIM)
    scaled = RotaryPositions(scaling="linear", factor=4.0).rotate(heads, np.array([[0, 4, 8, 40]]))
    assert_close(scaled, numpy(RotaryPositions().rotate(heads, np.array([[0, 1, 2, 10]]))))


@pytest.mark.parametrize("width", [4, 8, 64])
def test_ntk_keeps_the_shortest_wavelength_and_stretches_the_longest_by_the_factor(width):
    plain, scaled = (
        RotaryPositions(**arguments).frequencies(width)
        for arguments in ({}, dict(scaling="ntk", factor=8.0))
    )
    ratios = plain / scaled
    assert ratios[0] == 1 and ratios[-1] == pytest.approx(8.0)
    # Each pair more than the one before, by one and the same factor.
    np.testing.assert_allclose(ratios[1:] / ratios[:-1], 8 ** (1 / (width // 2 - 1)))


@pytest.mark.parametrize(("width", "original"), [(64, 4096), (128, 2048), (16, 64)])
def test_yarn_keeps_what_turns_often_and_divides_what_does_not_turn_once(width, original):
    scheme = RotaryPositions(scaling="yarn", factor=8.0, original_max_length=original)
    plain, scaled = RotaryPositions().frequencies(width), scheme.frequencies(width)
    turns = original * plain / (2 * np.pi)
    ratios = plain / scaled
    # The ramp begins and ends at a whole pair.
    often, hardly = np.flatnonzero(turns >= 32), np.flatnonzero(turns < 1)
    assert len(often) >= (1 if original > 64 else 0) and len(hardly) >= 2
    assert np.all(ratios[often[:-1]] == 1)
    np.testing.assert_allclose(ratios[hardly[1:]], 8.0)
    assert np.all(np.diff(ratios) >= -1e-9)
    # Scores are multiplied by the square.
    assert scheme.magnitude == pytest.approx(0.1 * math.log(8) + 1)
    heads = normal(1, 1, 1, width)
    length = np.linalg.norm(numpy(scheme.rotate(heads)))
    assert length == pytest.approx(scheme.magnitude * np.linalg.norm(heads), rel=1e-5)


@each_scaling
@pytest.mark.parametrize("sliding_window", [None, 3])
@pytest.mark.parametrize("use_causal_mask", [False, True])
def test_attention_equals_numpy(arguments, sliding_window, use_causal_mask):
    layer = MultiHeadAttention(
        2,
        KEY_DIM,
        sliding_window=sliding_window,
        num_key_value_heads=1,
        relative_positions=RotaryPositions(**arguments),
    )
    built(layer, ROWS.shape, ROWS.shape)
    expected, _ = reference.multi_head_attention(
        layer,
        ROWS,
        ROWS,
        mask=reference.window_mask(LENGTH, sliding_window),
        causal=use_causal_mask,
    )
    assert_close(layer(ROWS, ROWS, use_causal_mask=use_causal_mask), expected)


@each_scaling
@pytest.mark.parametrize("growing", [False, True])
def test_steps_equal_numpy(arguments, growing):
    layer = DecoderLayer(2, 8, key_dim=KEY_DIM, relative_positions=RotaryPositions(**arguments))
    layer = built(layer, ROWS.shape)
    expected = reference.decoder_layer(layer, ROWS)
    assert_close(layer(ROWS), expected)
    cache = layer.init_cache(BATCH, None if growing else LENGTH)
    for start, end in ((0, 1), (1, 6), (6, 7), (7, 9)):
        rows = ops.convert_to_tensor(ROWS[:, start:end])
        output, cache = layer.step(rows, cache, NewPositions(start))
        assert_close(output, expected[:, start:end])


def test_the_positions_of_a_step_may_be_given():
    # A prompt padded in front by two positions, and one that is not.
    arguments = dict(relative_positions=RotaryPositions(**SCALINGS["yarn"]), sliding_window=3)
    layer = built(DecoderLayer(2, 8, key_dim=KEY_DIM, **arguments), ROWS.shape)
    padding = np.array([2, 0])
    position_ids = np.arange(LENGTH) - padding[:, None]
    cache = layer.init_cache(BATCH)
    outputs = []
    for start, end in ((0, 4), (4, 5), (5, LENGTH)):
        entries, places = np.arange(end), np.arange(start, end)[:, None]
        positions = NewPositions(
            start,
            (entries <= places) & (entries >= padding[:, None, None]),
            position_ids=position_ids[:, start:end],
            entry_position_ids=position_ids[:, :end],
        )
        output, cache = layer.step(ops.convert_to_tensor(ROWS[:, start:end]), cache, positions)
        outputs.append(numpy(output))
    outputs = np.concatenate(outputs, axis=1)
    for b in range(BATCH):
        expected = reference.decoder_layer(layer, ROWS[b : b + 1, padding[b] :])
        np.testing.assert_allclose(outputs[b, padding[b] :], expected[0], atol=TOLERANCE)


# Names and objects.


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("rotary", RotaryPositions), ("alibi", AlibiPositions), ("t5", T5Positions)],
)
def test_a_name_stands_for_an_object(name, scheme):
    by_name, by_object = (
        built(Decoder(2, 2, 8, key_dim=KEY_DIM, relative_positions=positions), ROWS.shape)
        for positions in (name, scheme())
    )
    for layer, other in zip(by_object.layers, by_name.layers, strict=True):
        for part in ("query_dense", "key_dense", "value_dense", "output_dense", "position_scheme"):
            copied, original = (getattr(one.self_attention, part) for one in (layer, other))
            assert type(copied) is type(original)
            copied.set_weights(original.get_weights())
        for part in ("self_attention_residual", "feed_forward", "feed_forward_residual"):
            getattr(layer, part).set_weights(getattr(other, part).get_weights())
    np.testing.assert_array_equal(numpy(by_object(ROWS)), numpy(by_name(ROWS)))
    schemes = [layer.self_attention.position_scheme for layer in by_object.layers]
    assert {type(one) for one in schemes} == {scheme} and schemes[0] is not schemes[1]


def test_each_layer_learns_biases_of_its_own():
    encoder = Encoder(2, 2, 8, relative_positions=T5Positions())
    encoder.build(ROWS.shape)
    first, second = (layer.self_attention.position_scheme.embeddings for layer in encoder.layers)
    assert first is not second and first.shape == second.shape == (32, 2)
    assert [variable for variable in encoder.trainable_variables if variable is second]


def test_an_odd_width_is_refused_for_an_object_too():
    with pytest.raises(ConfigError) as error:
        MultiHeadAttention(2, 3, relative_positions=RotaryPositions(base=10.0))
    assert (
        str(error.value)
        == "key_dim must be even with relative_positions='rotary'; received key_dim=3"
    )


@pytest.mark.parametrize(
    "message, arguments",
    [
        ("factor must be 1 without scaling; received factor=2.0", dict(factor=2.0)),
        (
            "beta_fast must be above beta_slow=4.0; received beta_fast=4.0",
            dict(beta_fast=4.0, beta_slow=4.0),
        ),
    ],
)
def test_arguments_that_make_no_sense_together_are_refused(message, arguments):
    with pytest.raises(ConfigError) as error:
        RotaryPositions(**arguments)
    assert str(error.value) == message


# A user's own.


@keras.saving.register_keras_serializable("tests")
class Table(PositionScheme):
    """A learned bias for each distance up to a longest one, the same for all heads."""

    def __init__(self, longest=2, **kwargs):
        super().__init__(**kwargs)
        self.longest = longest

    def build(self, scores_shape):
        super().build(scores_shape)
        self.table = self.add_weight(shape=(2 * self.longest + 1,), initializer="ones")

    def score_bias(self, query_positions, key_positions, causal):
        distances = ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)
        places = ops.clip(distances, -self.longest, self.longest) + self.longest
        bias = ops.expand_dims(ops.take(self.table, places), -3)
        return ops.repeat(bias, self.num_heads, axis=-3)

    def get_config(self):
        return {**super().get_config(), "longest": self.longest}


@keras.saving.register_keras_serializable("tests")
class Neighbors(PositionScheme):
    """Turns features 2i and 2i + 1 instead of the two halves, by the position over 10^i."""

    def rotate(self, heads, position_ids=None):
        positions = ops.arange(ops.shape(heads)[-2]) if position_ids is None else position_ids
        half = heads.shape[-1] // 2
        angles = ops.expand_dims(ops.cast(positions, "float32"), -1) * ops.power(
            10.0, -ops.arange(half, dtype="float32")
        )
        if len(angles.shape) == 3:
            angles = ops.expand_dims(angles, 1)
        even, odd = heads[..., ::2], heads[..., 1::2]
        turned = (
            even * ops.cos(angles) - odd * ops.sin(angles),
            even * ops.sin(angles) + odd * ops.cos(angles),
        )
        return ops.reshape(ops.stack(turned, axis=-1), ops.shape(heads))


def expected_with_table(layer, mask):
    table = numpy(layer.position_scheme.table)
    distances = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
    return reference.multi_head_attention(
        layer, ROWS, ROWS, mask=mask, bias=table[np.clip(distances, -2, 2) + 2][None]
    )[0]


def expected_with_neighbors(layer, mask):
    queries, keys, values = (
        reference.split_heads(reference.dense(dense, ROWS), 2)
        for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
    )
    # In another order of the features, it is rotation by halves.
    order = [*range(0, KEY_DIM, 2), *range(1, KEY_DIM, 2)]
    frequencies = 0.1 ** np.arange(KEY_DIM // 2)
    queries, keys = (
        reference.rotated(heads[..., order], np.arange(LENGTH), frequencies)
        for heads in (queries, keys)
    )
    exponentials = np.exp(queries @ np.swapaxes(keys, -1, -2) / np.sqrt(KEY_DIM)) * mask
    heads = exponentials / exponentials.sum(axis=-1, keepdims=True) @ values
    return reference.dense(layer.output_dense, np.swapaxes(heads, 1, 2).reshape(BATCH, LENGTH, -1))


OWN = {"table": (Table, expected_with_table), "neighbors": (Neighbors, expected_with_neighbors)}
each_own = pytest.mark.parametrize(("scheme", "compute"), OWN.values(), ids=OWN)


@each_own
@pytest.mark.parametrize("sliding_window", [None, 3])
def test_a_scheme_of_ones_own_equals_numpy_in_a_call_and_in_steps(scheme, compute, sliding_window):
    layer = MultiHeadAttention(
        2, KEY_DIM, sliding_window=sliding_window, relative_positions=scheme()
    )
    built(layer, ROWS.shape, ROWS.shape)
    near = reference.window_mask(LENGTH, sliding_window)
    assert_close(layer(ROWS, ROWS), compute(layer, near))
    expected = compute(layer, np.tril(near))
    assert_close(layer(ROWS, ROWS, use_causal_mask=True), expected)
    for max_length in (None, LENGTH):
        cache = layer.init_cache(BATCH, max_length)
        for start, end in ((0, 1), (1, 4), (4, 9)):
            rows = ops.convert_to_tensor(ROWS[:, start:end])
            output, cache = layer.step(rows, cache, NewPositions(start))
            assert_close(output, expected[:, start:end])


@pytest.mark.parametrize(
    "scheme", [Table(longest=3), Neighbors(), RotaryPositions(**SCALINGS["yarn"]), T5Positions()]
)
def test_a_model_with_the_object_is_saved_and_loads(scheme, tmp_path):
    inputs = keras.Input((None, D_MODEL))
    outputs = Decoder(1, 2, 8, key_dim=KEY_DIM, relative_positions=scheme)(inputs)
    model = reference.randomize(keras.Model(inputs, outputs))
    expected = numpy(model(ROWS))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(ROWS)), expected)
    of_loaded = loaded.layers[-1].layers[0].self_attention.position_scheme
    assert type(of_loaded) is type(scheme) and of_loaded is not scheme
    assert of_loaded.get_config() == scheme.get_config()
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(clone(ROWS)), expected)


@pytest.mark.parametrize("positions", [None, "rotary", "alibi", "t5"])
def test_quantize_does_not_warn_of_position_schemes(positions, recwarn):
    inputs = keras.Input((3, 8))
    outputs = EncoderLayer(2, 8, relative_positions=positions)(inputs)
    keras.Model(inputs, outputs).quantize("int8")
    warned = [str(warning.message) for warning in recwarn]
    assert not any("Position" in message for message in warned)
