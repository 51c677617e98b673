"""`score_bias`, which is added to the scores before the softmax, against NumPy."""

import math

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy
from numpy_transformer import built, normal

from keras_transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, MultiHeadAttention
from keras_transformer.errors import ConfigError

BATCH, HEADS, TARGET, SOURCE, D_MODEL = 2, 3, 5, 4, 6
QUERY, VALUE = normal(BATCH, TARGET, D_MODEL), normal(BATCH, SOURCE, D_MODEL, seed=1)
PADDING = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], bool)
SOURCE_PADDING = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
TOLERANCE = 2e-5

SHAPES = [
    (TARGET, SOURCE),
    (BATCH, TARGET, SOURCE),
    (1, TARGET, SOURCE),
    (BATCH, 1, SOURCE),
    (BATCH, HEADS, TARGET, SOURCE),
    (1, HEADS, TARGET, SOURCE),
    (BATCH, 1, TARGET, SOURCE),
    (BATCH, HEADS, 1, SOURCE),
    (1, HEADS, TARGET, 1),
    (1, 1, 1, SOURCE),
    (1, SOURCE),
]
# As a mask, or one more bias.
KINDS = {
    "plain": ({}, {}, False),
    "without flash attention": (dict(flash_attention=False), {}, False),
    "causal": ({}, dict(use_causal_mask=True), True),
    "grouped": (dict(num_key_value_heads=1, value_dim=5), {}, False),
    "rotary": (dict(relative_positions="rotary"), {}, False),
    "alibi": (dict(relative_positions="alibi"), {}, False),
    "t5": (dict(relative_positions="t5"), dict(use_causal_mask=True), True),
}


def numpy(tensor):
    return convert_to_numpy(ops.cast(tensor, "float32"))


def attention_of(query, value, **arguments):
    layer = MultiHeadAttention(**{"num_heads": HEADS, "key_dim": 4, **arguments})
    return built(layer, query.shape, value.shape)


def assert_close(tensor, expected):
    np.testing.assert_allclose(numpy(tensor), expected, atol=TOLERANCE)


def test_one_head_by_hand():
    # Without a bias both scores are 0. ln 3 more for the first: weights 3/4 and 1/4.
    layer = MultiHeadAttention(1, 1, kernel_initializer="identity")
    query, value = np.zeros((1, 1, 1), "float32"), np.array([[[4.0], [8.0]]], "float32")
    assert_close(layer(query, value, score_bias=[[math.log(3.0), 0.0]]), [[[5.0]]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_equals_numpy(shape):
    layer = attention_of(QUERY, VALUE)
    bias = 2 * normal(*shape, seed=2)
    for call, mask in (({}, None), ({"value_mask": SOURCE_PADDING}, SOURCE_PADDING[:, None, :])):
        expected, weights = reference.multi_head_attention(
            layer, QUERY, VALUE, mask=mask, bias=bias
        )
        assert_close(layer(QUERY, VALUE, score_bias=bias, **call), expected)
        output, scores = layer(QUERY, VALUE, score_bias=bias, return_attention_scores=True, **call)
        assert_close(output, expected)
        assert_close(scores, weights)
    # The bias counts in every row of each sequence.
    if shape[-1] > 1:
        without = reference.multi_head_attention(layer, QUERY, VALUE, mask=mask)[0]
        assert np.all(np.abs(without - expected).max(axis=-1) > 100 * TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_with_other_masks_and_biases_equals_numpy(kind):
    arguments, call, is_causal = KINDS[kind]
    layer = attention_of(QUERY, QUERY, **arguments)
    bias = normal(BATCH, HEADS, TARGET, TARGET, seed=2)
    expected, _ = reference.multi_head_attention(
        layer, QUERY, QUERY, mask=PADDING[:, None, :], causal=is_causal, bias=bias
    )
    assert_close(layer(QUERY, QUERY, value_mask=PADDING, score_bias=bias, **call), expected)


@pytest.mark.parametrize("use_causal_mask", [False, True])
@pytest.mark.parametrize("relative_positions", [None, "alibi"])
def test_in_a_sliding_window_equals_numpy(use_causal_mask, relative_positions):
    layer = attention_of(QUERY, QUERY, sliding_window=2, relative_positions=relative_positions)
    bias = normal(HEADS, TARGET, TARGET, seed=2)[None]
    mask = reference.window_mask(TARGET, 2) & PADDING[:, None, :]
    expected, _ = reference.multi_head_attention(
        layer, QUERY, QUERY, mask=mask, causal=use_causal_mask, bias=bias
    )
    output = layer(
        QUERY, QUERY, value_mask=PADDING, use_causal_mask=use_causal_mask, score_bias=bias
    )
    assert_close(output, expected)


# The axis of heads may be missing, or it and axes before it.
@pytest.mark.parametrize(
    ("axes", "shapes"),
    [
        # Each of the three places on axis 1 by itself.
        (2, [(5, 4), (2, 5, 4), (2, 3, 5, 4), (1, 3, 1, 4), (2, 3, HEADS, 5, 4), (2, 1, 1, 5, 1)]),
        # All 3 * 5 places of the query and 3 * 4 of the value as one sequence.
        (None, [(3, 5, 3, 4), (2, 3, 5, 3, 4), (2, HEADS, 3, 5, 3, 4), (1, 3, 1, 1, 4)]),
    ],
    ids=["one axis", "all axes"],
)
def test_along_other_axes_equals_numpy(axes, shapes):
    query, value = normal(2, 3, 5, D_MODEL), normal(2, 3, 4, D_MODEL, seed=1)
    layer = attention_of(query, value, attention_axes=axes)
    scores_shape = (2, HEADS, 3, 5, 3, 4) if axes is None else (2, 3, HEADS, 5, 4)
    num_attended = 4 if axes is None else 2
    for shape in shapes:
        bias = normal(*shape, seed=2)
        missing = len(scores_shape) - len(shape)
        before, after = shape[: len(shape) - num_attended], shape[len(shape) - num_attended :]
        whole = np.broadcast_to(bias.reshape(*before, *[1] * missing, *after), scores_shape)
        if axes is None:
            flat = [array.reshape(2, -1, D_MODEL) for array in (query, value)]
            whole = whole.reshape(2, HEADS, 15, 12)
            expected, _ = reference.multi_head_attention(layer, *flat, bias=whole)
            expected = expected.reshape(query.shape)
        else:
            places = [
                reference.multi_head_attention(layer, query[:, i], value[:, i], bias=whole[:, i])[0]
                for i in range(3)
            ]
            expected = np.stack(places, axis=1)
        assert_close(layer(query, value, score_bias=bias), expected)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("flash_attention", [None, False])
@pytest.mark.parametrize("relative_positions", [None, "alibi"])
def test_low_precision_is_near_numpy(policy, flash_attention, relative_positions):
    layer = attention_of(
        *(QUERY, VALUE),
        flash_attention=flash_attention,
        relative_positions=relative_positions,
        dtype=policy,
    )
    bias = normal(BATCH, HEADS, TARGET, SOURCE, seed=2)
    output = layer(QUERY, VALUE, score_bias=bias)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    expected, _ = reference.multi_head_attention(layer, QUERY, VALUE, bias=bias)
    # 8 or 11 bits, and sums of a few.
    error = (0.02 if policy == "mixed_bfloat16" else 0.003) * np.abs(expected).max()
    np.testing.assert_allclose(numpy(output), expected, atol=error)


@pytest.mark.parametrize("flash_attention", [None, False])
def test_integers_are_biases(flash_attention):
    layer = attention_of(QUERY, VALUE, flash_attention=flash_attention)
    bias = np.arange(TARGET * SOURCE).reshape(TARGET, SOURCE) % 3
    expected, _ = reference.multi_head_attention(layer, QUERY, VALUE, bias=bias)
    assert_close(layer(QUERY, VALUE, score_bias=bias), expected)
    assert_close(layer(QUERY, VALUE, score_bias=bias.tolist()), expected)


@pytest.mark.parametrize("shape", [(TARGET, SOURCE + 1), (HEADS + 1, TARGET, SOURCE), (SOURCE,)])
def test_a_bias_that_does_not_fit_is_named(shape):
    with pytest.raises(ConfigError, match="score_bias must"):
        attention_of(QUERY, VALUE)(QUERY, VALUE, score_bias=np.zeros(shape))


@pytest.mark.parametrize("flash_attention", [None, False])
def test_a_bias_learns(flash_attention):
    # The gradient of a plain step at rate 1, against differences of NumPy's loss.
    class Biased(keras.Model):
        def __init__(self):
            super().__init__()
            self.bias = self.add_weight(shape=(TARGET, SOURCE), initializer="zeros")
            self.attention = attention_of(QUERY, VALUE, flash_attention=flash_attention)
            self.attention.trainable = False

        def call(self, inputs):
            return self.attention(*inputs, score_bias=self.bias)

    model = Biased()
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    labels = normal(BATCH, TARGET, D_MODEL, seed=5)
    model.train_on_batch([QUERY, VALUE], labels)
    step, expected = 1e-4, np.zeros((TARGET, SOURCE))
    for place in np.ndindex(TARGET, SOURCE):
        losses = []
        for sign in (1, -1):
            bias = np.zeros((TARGET, SOURCE))
            bias[place] = sign * step
            output, _ = reference.multi_head_attention(model.attention, QUERY, VALUE, bias=bias)
            losses.append(np.mean((output - labels) ** 2))
        expected[place] = (losses[1] - losses[0]) / (2 * step)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(numpy(model.bias), expected, atol=1e-6)


# Layers and stacks.

SIZES = dict(num_heads=HEADS, d_ff=8, key_dim=4)
BIAS = normal(BATCH, HEADS, TARGET, TARGET, seed=3)
CROSS_BIAS = normal(HEADS, TARGET, SOURCE, seed=4)[None]


@pytest.mark.parametrize(
    "options", [{}, dict(relative_positions="t5", norm_first=True), dict(sliding_window=2)], ids=str
)
def test_encoders_equal_numpy(options):
    layer = built(EncoderLayer(**SIZES, **options), QUERY.shape)
    expected = reference.encoder_layer(layer, QUERY, PADDING, bias=BIAS)
    assert_close(layer(QUERY, mask=PADDING, score_bias=BIAS), expected)
    stack = built(Encoder(2, **SIZES, **options), QUERY.shape)
    expected = reference.encoder(stack, QUERY, PADDING, bias=BIAS)
    assert_close(stack(QUERY, mask=PADDING, score_bias=BIAS), expected)


@pytest.mark.parametrize(
    "options", [{}, dict(relative_positions="alibi", norm_first=True)], ids=str
)
@pytest.mark.parametrize("given", [("bias",), ("cross_bias",), ("bias", "cross_bias")], ids=str)
def test_decoders_equal_numpy(options, given):
    biases = {"bias": BIAS, "cross_bias": CROSS_BIAS}
    names = {"bias": "score_bias", "cross_bias": "cross_score_bias"}
    masks = dict(target_mask=PADDING, source_mask=SOURCE_PADDING)
    call = {**masks, **{names[name]: biases[name] for name in given}}
    expected_biases = {name: biases[name] for name in given}
    for make, compute in (
        (lambda: DecoderLayer(**SIZES, **options), reference.decoder_layer),
        (lambda: Decoder(2, **SIZES, **options), reference.decoder),
    ):
        layer = built(make(), QUERY.shape, VALUE.shape)
        expected = compute(layer, QUERY, VALUE, **masks, **expected_biases)
        assert_close(layer(QUERY, VALUE, **call), expected)


@pytest.mark.parametrize("make", [DecoderLayer, lambda **sizes: Decoder(2, **sizes)])
def test_a_decoder_without_a_source_has_a_bias_too(make):
    layer = built(make(**SIZES), QUERY.shape)
    compute = reference.decoder if isinstance(layer, Decoder) else reference.decoder_layer
    assert_close(layer(QUERY, score_bias=BIAS), compute(layer, QUERY, bias=BIAS))


def test_a_stack_that_is_computed_again_for_its_gradient_has_the_biases_too():
    stack = built(Decoder(2, **SIZES, dropout=0.0, remat=True), QUERY.shape, VALUE.shape)
    call = dict(score_bias=BIAS, cross_score_bias=CROSS_BIAS)
    expected = numpy(stack(QUERY, VALUE, **call))
    assert_close(stack(QUERY, VALUE, training=True, **call), expected)


def test_a_functional_model_may_have_biases():
    target, source = keras.Input((None, D_MODEL)), keras.Input((None, D_MODEL))
    bias, cross_bias = keras.Input((HEADS, None, None)), keras.Input((1, None, None))
    decoder = Decoder(1, **SIZES)
    outputs = decoder(target, source, score_bias=bias, cross_score_bias=cross_bias)
    model = keras.Model([target, source, bias, cross_bias], outputs)
    cross = normal(BATCH, 1, TARGET, SOURCE, seed=6)
    expected = numpy(decoder(QUERY, VALUE, score_bias=BIAS, cross_score_bias=cross))
    assert_close(model([QUERY, VALUE, BIAS, cross]), expected)
