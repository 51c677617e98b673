"""Subclasses that replace one part each: they train, are saved and load, and step as they call."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import built, normal

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    NewPositions,
    Residual,
)

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 4, 6
ROWS, SOURCE_ROWS = normal(BATCH, TARGET, D_MODEL), normal(BATCH, SOURCE, 8, seed=1)
SOURCE_MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
SIZES = dict(num_heads=2, d_ff=8, dropout=0.0)
TOLERANCE = 2e-5
registered = keras.saving.register_keras_serializable("tests")


def assert_close(tensor, expected):
    np.testing.assert_allclose(numpy(tensor), expected, atol=TOLERANCE)


# Layers in the places of ours.


@registered
class Doubled(keras.layers.Dense):
    """A product with a call of its own."""

    def call(self, inputs, training=None):
        return 2 * super().call(inputs, training=training) + 1


@registered
class DoubledAttention(MultiHeadAttention):
    def make_projection(self, name, units):
        dense = super().make_projection(name, units)
        return Doubled.from_config(dense.get_config()) if name in ("query", "value") else dense


@registered
class DoubledFeedForward(FeedForward):
    def make_projection(self, name, units, activation=None):
        return Doubled.from_config(super().make_projection(name, units, activation).get_config())


@registered
class CenteredNorm(keras.layers.Layer):
    """Takes the mean away, and multiplies by a learned number."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        return self.scale * (inputs - ops.mean(inputs, axis=-1, keepdims=True))


@registered
class DropPath(Residual):
    """Drops the sublayer's output of whole sequences in training."""

    def __init__(self, norm, drop_path=0.5, **kwargs):
        super().__init__(norm, **kwargs)
        self.drop_path = drop_path

    def build(self, inputs_shape, sublayer_output_shape=None):
        super().build(inputs_shape, sublayer_output_shape)
        self.rows = keras.layers.Dropout(self.drop_path, noise_shape=(None, 1, 1), seed=self.seed)

    def call(self, inputs, sublayer_output, training=None):
        return super().call(inputs, self.rows(sublayer_output, training=training), training)

    def get_config(self):
        return {**super().get_config(), "drop_path": self.drop_path}


# Encoder and decoder layers with them.


class OwnSelfAttention:
    def make_self_attention(self, target_shape):
        config = super().make_self_attention(target_shape).get_config()
        return DoubledAttention.from_config({**config, "relative_positions": "alibi"})


class OwnFeedForward:
    """Of a width that is set after the constructor of the base class."""

    def __init__(self, *args, hidden=7, **kwargs):
        super().__init__(*args, **kwargs)
        self.hidden = hidden

    def make_feed_forward(self, target_shape):
        return keras.Sequential(
            [keras.layers.Dense(self.hidden, "tanh"), keras.layers.Dense(target_shape[-1])],
            name="feed_forward",
        )

    def get_config(self):
        return {**super().get_config(), "hidden": self.hidden}


class OwnProjections:
    def make_feed_forward(self, target_shape):
        return DoubledFeedForward.from_config(super().make_feed_forward(target_shape).get_config())


class OwnNormalization:
    def make_normalization(self, name):
        return CenteredNorm(name=name, dtype=self.dtype_policy)


class OwnResidual:
    def make_residual(self, sublayer_name):
        return DropPath(
            self.make_normalization("norm"),
            norm_first=self.norm_first,
            seed=5,
            dtype=self.dtype_policy,
            name=f"{sublayer_name}_residual",
        )


@registered
class EncoderWithSelfAttention(OwnSelfAttention, EncoderLayer):
    pass


@registered
class EncoderWithFeedForward(OwnFeedForward, EncoderLayer):
    pass


@registered
class EncoderWithProjections(OwnProjections, EncoderLayer):
    pass


@registered
class EncoderWithNormalization(OwnNormalization, EncoderLayer):
    pass


@registered
class EncoderWithResidual(OwnResidual, EncoderLayer):
    pass


@registered
class DecoderWithSelfAttention(OwnSelfAttention, DecoderLayer):
    pass


@registered
class DecoderWithCrossAttention(DecoderLayer):
    """One head as wide as the target."""

    def make_cross_attention(self, target_shape, source_shape):
        return DoubledAttention(1, target_shape[-1], name="cross_attention")


@registered
class DecoderWithFeedForward(OwnFeedForward, DecoderLayer):
    pass


@registered
class DecoderWithProjections(OwnProjections, DecoderLayer):
    pass


@registered
class DecoderWithNormalization(OwnNormalization, DecoderLayer):
    pass


@registered
class DecoderWithResidual(OwnResidual, DecoderLayer):
    pass


@registered
class CrossFirst(DecoderLayer):
    """Attends to the source before itself, and adds the feed-forward network's output to both."""

    def apply_sublayers(self, target, self_attend, cross_attend=None, training=None):
        hidden = cross_attend(self.cross_attention_residual.sublayer_input(target))
        hidden = self.cross_attention_residual(target, hidden, training=training)
        attended = self_attend(self.self_attention_residual.sublayer_input(hidden))
        fed = self.feed_forward(hidden, training=training)
        hidden = self.self_attention_residual(hidden, attended, training=training)
        return self.feed_forward_residual(hidden, fed, training=training)


@registered
class WithoutNormalization(DecoderLayer):
    def make_normalization(self, sublayer_name):
        return (
            None if sublayer_name == "feed_forward" else super().make_normalization(sublayer_name)
        )


# Stacks with layers of their own: a class, and an argument that depends on the number.


@registered
class OwnEncoder(Encoder):
    def make_layer(self, index):
        if index == 0:
            return EncoderWithFeedForward(self.num_heads, self.d_ff, hidden=4, name="layer_0")
        config = super().make_layer(index).get_config()
        return EncoderLayer.from_config({**config, "sliding_window": 2})


@registered
class DecoderOfOwnLayers(Decoder):
    layer_class = DecoderWithFeedForward


@registered
class OwnDecoder(Decoder):
    def make_layer(self, index):
        if index == 0:
            return DecoderWithSelfAttention(self.num_heads, self.d_ff, dropout=0.0, name="layer_0")
        config = super().make_layer(index).get_config()
        return DecoderLayer.from_config({**config, "sliding_window": 2})

    def make_normalization(self, name):
        return CenteredNorm(name=name, dtype=self.dtype_policy)


ENCODERS = [
    *(EncoderWithSelfAttention, EncoderWithFeedForward, EncoderWithProjections),
    *(EncoderWithNormalization, EncoderWithResidual),
]
DECODERS = [
    *(DecoderWithSelfAttention, DecoderWithCrossAttention, DecoderWithFeedForward),
    *(DecoderWithProjections, DecoderWithNormalization, DecoderWithResidual),
]
OTHERS = [CrossFirst, WithoutNormalization]
STACKS = [OwnEncoder, OwnDecoder, DecoderOfOwnLayers]
every_class = pytest.mark.parametrize("cls", [*ENCODERS, *DECODERS, *OTHERS, *STACKS])
each_norm = pytest.mark.parametrize("norm_first", [False, True])


def make(cls, norm_first=False):
    sizes = dict(num_layers=2, **SIZES) if cls in STACKS else SIZES
    layer = cls(**sizes, norm_first=norm_first)
    return built(layer, *[rows.shape for rows in inputs_of(cls)])


def inputs_of(cls):
    return [ROWS] if cls in (*ENCODERS, OwnEncoder) else [ROWS, SOURCE_ROWS]


def call_arguments(cls):
    """As in steps: causal, with the padding of a source."""
    if len(inputs_of(cls)) == 1:
        return dict(use_causal_mask=True)
    return dict(source_mask=SOURCE_MASK)


@every_class
def test_it_trains_is_saved_and_loads(cls, tmp_path):
    keras.utils.set_random_seed(0)
    layer = make(cls)
    inputs = [keras.Input((None, rows.shape[-1])) for rows in inputs_of(cls)]
    model = keras.Model(inputs, layer(*inputs))
    before = [numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    model.train_on_batch(inputs_of(cls), normal(BATCH, TARGET, D_MODEL, seed=3))
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert np.all(np.isfinite(numpy(variable))), variable.path
        # A bias of all keys changes no weight of attention.
        assert np.any(numpy(variable) != old) or variable.path.endswith("key/bias"), variable.path
    expected = numpy(model(inputs_of(cls)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    (copy,) = [part for part in loaded.layers if isinstance(part, cls)]
    assert copy.get_config() == layer.get_config()
    np.testing.assert_array_equal(numpy(loaded(inputs_of(cls))), expected)


@every_class
@each_norm
@pytest.mark.parametrize("growing", [False, True])
def test_steps_equal_one_call(cls, norm_first, growing):
    layer = make(cls, norm_first)
    expected = numpy(layer(*inputs_of(cls), **call_arguments(cls)))
    source = []
    if len(inputs_of(cls)) == 2:
        source = [layer.project_source(ops.convert_to_tensor(SOURCE_ROWS)), SOURCE_MASK]
    cache = layer.init_cache(BATCH, None if growing else TARGET)
    for start, end in ((0, 1), (1, 4), (4, TARGET)):
        rows = ops.convert_to_tensor(ROWS[:, start:end])
        output, cache = layer.step(rows, cache, NewPositions(start), *source)
        assert_close(output, expected[:, start:end])


@pytest.mark.parametrize("cls", [*ENCODERS, *DECODERS])
def test_the_part_is_the_one_that_was_made(cls):
    layer = make(cls)
    made = {
        "SelfAttention": (layer.self_attention, DoubledAttention),
        "FeedForward": (layer.feed_forward, keras.Sequential),
        "Projections": (layer.feed_forward, DoubledFeedForward),
        "Normalization": (layer.feed_forward_residual.norm, CenteredNorm),
        "Residual": (layer.self_attention_residual, DropPath),
    }
    if cls in DECODERS:
        made["CrossAttention"] = (layer.cross_attention, DoubledAttention)
    name = cls.__name__.partition("With")[2]
    for part, (sublayer, own) in made.items():
        assert isinstance(sublayer, own) == (part == name), part


def test_a_stack_has_the_layers_that_were_made():
    encoder, decoder = make(OwnEncoder), make(OwnDecoder, norm_first=True)
    assert [type(layer) for layer in encoder.layers] == [EncoderWithFeedForward, EncoderLayer]
    assert [layer.sliding_window for layer in encoder.layers] == [None, 2]
    assert [type(layer) for layer in decoder.layers] == [DecoderWithSelfAttention, DecoderLayer]
    assert type(decoder.final_norm) is CenteredNorm


def test_a_stack_hands_on_what_its_class_of_layers_takes():
    stack = DecoderOfOwnLayers(2, **SIZES, hidden=3)
    stack.build(ROWS.shape)
    assert [layer.hidden for layer in stack.layers] == [3, 3]
    assert stack.get_config()["hidden"] == 3
    assert DecoderOfOwnLayers.from_config(stack.get_config()).get_config() == stack.get_config()
    by_default = DecoderOfOwnLayers(2, **SIZES)
    by_default.build(ROWS.shape)
    assert [layer.hidden for layer in by_default.layers] == [7, 7]
    with pytest.raises(ValueError, match="passed to DecoderLayer"):
        Decoder(2, **SIZES, hidden=3).build(ROWS.shape)


# Against numbers.


@each_norm
def test_parts_in_another_order_equal_numpy_and_scores_keep_theirs(norm_first):
    layer = make(CrossFirst, norm_first)

    def normalized(residual, x, first):
        return reference.normalization(residual.norm, x) if first == norm_first else x

    residual = layer.cross_attention_residual
    attended, cross_weights = reference.multi_head_attention(
        layer.cross_attention, normalized(residual, ROWS, True), SOURCE_ROWS
    )
    hidden = normalized(residual, ROWS + attended, False)
    fed = reference.feed_forward(layer.feed_forward, hidden)
    residual = layer.self_attention_residual
    inputs = normalized(residual, hidden, True)
    attended, weights = reference.multi_head_attention(
        layer.self_attention, inputs, inputs, causal=True
    )
    hidden = normalized(residual, hidden + attended, False)
    outputs, *scores = layer(ROWS, SOURCE_ROWS, return_attention_scores=True)
    assert_close(outputs, normalized(layer.feed_forward_residual, hidden + fed, False))
    assert_close(scores[0], weights)
    assert_close(scores[1], cross_weights)


def test_without_a_normalization_the_sum_stays_as_it_is():
    layer = make(WithoutNormalization)
    assert layer.feed_forward_residual.norm is None
    residual = layer.feed_forward_residual
    assert residual.sublayer_input(ROWS) is ROWS
    np.testing.assert_array_equal(numpy(residual(ROWS, ROWS)), ROWS + ROWS)


def test_a_projection_with_a_call_of_its_own_is_called():
    own, plain = (
        built(cls(2, 3), ROWS.shape, ROWS.shape) for cls in (DoubledAttention, MultiHeadAttention)
    )
    for dense in (plain.query_dense, plain.value_dense):
        # 2 (x W + b) + 1 = x 2W + (2b + 1).
        dense.kernel.assign(2 * numpy(dense.kernel))
        dense.bias.assign(2 * numpy(dense.bias) + 1)
    assert_close(own(ROWS, ROWS), numpy(plain(ROWS, ROWS)))
    key_values = own.project_key_value(ops.convert_to_tensor(ROWS))
    assert_close(own.attend(ops.convert_to_tensor(ROWS), key_values), numpy(plain(ROWS, ROWS)))


def test_feed_forward_calls_its_projections():
    own, plain = (built(cls(5), ROWS.shape) for cls in (DoubledFeedForward, FeedForward))
    # The ReLU is inside of the first product, and the doubling outside of it.
    hidden = 2 * np.maximum(reference.dense(plain.hidden_dense, ROWS), 0) + 1
    assert_close(own(ROWS), 2 * reference.dense(plain.output_dense, hidden) + 1)


@pytest.mark.parametrize("sliding_window", [None, 2])
def test_adapters_of_projections_count_in_a_call_and_in_steps(sliding_window):
    layer = MultiHeadAttention(2, 3, sliding_window=sliding_window)
    layer.build(ROWS.shape, ROWS.shape)
    before = numpy(layer(ROWS, ROWS, use_causal_mask=True))
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        dense.enable_lora(2)
    reference.randomize(layer)
    # A kernel of Keras' Dense includes its adapter.
    expected, _ = reference.multi_head_attention(
        layer, ROWS, ROWS, mask=reference.window_mask(TARGET, sliding_window), causal=True
    )
    assert_close(layer(ROWS, ROWS, use_causal_mask=True), expected)
    assert np.abs(before - expected).max() > 0.1
    cache = layer.init_cache(BATCH)
    for position in range(TARGET):
        rows = ops.convert_to_tensor(ROWS[:, position : position + 1])
        output, cache = layer.step(rows, cache, NewPositions(position))
        assert_close(output, expected[:, position : position + 1])


@pytest.mark.slow
def test_quantized_projections_count_in_a_call_and_in_steps():
    layer = built(DecoderLayer(**SIZES), ROWS.shape)
    before = numpy(layer(ROWS))
    for sublayer in layer._flatten_layers():
        if isinstance(sublayer, keras.layers.Dense):
            sublayer.quantize("int8")
    expected = numpy(layer(ROWS))
    error = np.abs(expected - before).max()
    assert 0 < error < 0.2
    cache = layer.init_cache(BATCH)
    for position in range(TARGET):
        rows = ops.convert_to_tensor(ROWS[:, position : position + 1])
        output, cache = layer.step(rows, cache, NewPositions(position))
        assert_close(output, expected[:, position : position + 1])


def test_whole_sequences_are_dropped_in_training_alone():
    residual = DropPath(keras.layers.Identity(), drop_path=0.5, seed=3)
    inputs, outputs = np.zeros((64, 3, 2), "float32"), np.ones((64, 3, 2), "float32")
    added = numpy(residual(inputs, outputs, training=True))
    assert set(np.unique(added)) == {0.0, 2.0}
    assert all(len(np.unique(sequence)) == 1 for sequence in added)
    np.testing.assert_array_equal(numpy(residual(inputs, outputs)), outputs)


def test_a_norm_of_ones_own_equals_numpy():
    layer = make(EncoderWithNormalization, norm_first=True)

    def normalized(residual, x):
        return numpy(residual.norm.scale) * (x - x.mean(axis=-1, keepdims=True))

    hidden = normalized(layer.self_attention_residual, ROWS)
    attended, _ = reference.multi_head_attention(layer.self_attention, hidden, hidden)
    hidden = ROWS + attended
    outputs = reference.feed_forward(
        layer.feed_forward, normalized(layer.feed_forward_residual, hidden)
    )
    assert_close(layer(ROWS), hidden + outputs)
