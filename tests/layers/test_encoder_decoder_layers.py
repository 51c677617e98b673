"""The parts of layers and stacks, and the layers and stacks themselves, against NumPy; steps
against calls."""

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
from keras_transformer.layers.cache import FixedCache, GrowingCache
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.masks import causal_mask, implicit_mask

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 4, 6
SIZES = dict(num_heads=3, d_ff=9, key_dim=4, value_dim=5)
TARGET_IDS = np.array([[3, 1, 4, 1, 0], [5, 9, 2, 0, 0]])
SOURCE_IDS = np.array([[2, 7, 0, 0], [1, 8, 2, 8]])
TARGET_MASK, SOURCE_MASK = TARGET_IDS != 0, SOURCE_IDS != 0
TARGET_ROWS = normal(BATCH, TARGET, D_MODEL)
# The source may be of another width than the target.
SOURCE_ROWS = normal(BATCH, SOURCE, 8, seed=1)
TOLERANCE = 2e-5

both_norms = pytest.mark.parametrize("norm_first", [False, True])


def assert_close(tensor, expected):
    np.testing.assert_allclose(numpy(tensor), expected, atol=TOLERANCE)


def assert_differs(tensor, other):
    """In every row, by far more than rounding."""
    assert np.all(np.any(np.abs(numpy(tensor) - numpy(other)) > 100 * TOLERANCE, axis=-1))


def embedded(token_ids, width, seed=0):
    """Rows with Keras' implicit mask."""
    keras.utils.set_random_seed(seed)
    return keras.layers.Embedding(10, width, "normal", mask_zero=True)(token_ids)


# The parts.


def test_feed_forward_by_hand():
    # max(0, (1, 2) W1 + b1) = max(0, (1 + 2, -1 + 0.5)) = (3, 0).
    # Times W2 plus b2: (3 * 2 + 1, 3 * 1 + 0).
    layer = FeedForward(2)
    layer.build((None, 2))
    layer.set_weights(
        [
            np.array([[1.0, -1.0], [1.0, 0.0]]),
            np.array([0.0, 0.5]),
            np.array([[2.0, 1.0], [50.0, 50.0]]),
            np.array([1.0, 0.0]),
        ]
    )
    assert numpy(layer(np.array([[1.0, 2.0]], "float32"))).tolist() == [[7.0, 3.0]]


def test_post_norm_residual_by_hand():
    # (1, 3) + (1, 3) = (2, 6): mean 4, variance 4, and sqrt(4 + 2.25) = 2.5. Normalized (-0.8,
    # 0.8); times gamma 2 plus beta 1.
    layer = Residual(LayerNormalization(epsilon=2.25))
    layer.build((None, 2))
    layer.norm.set_weights([np.full(2, 2.0), np.full(2, 1.0)])
    x = np.array([[1.0, 3.0]], "float32")
    assert layer.sublayer_input(x) is x
    assert_close(layer(x, x), [[-0.6, 2.6]])


def test_pre_norm_residual_by_hand():
    # Into the sublayer goes (1, 3) normalized, of mean 2 and sqrt(1 + 0.5625) = 1.25: (-0.8, 0.8),
    # times 2 plus 1. The sum stays as it is.
    layer = Residual(LayerNormalization(epsilon=0.5625), norm_first=True)
    layer.build((None, 2))
    layer.norm.set_weights([np.full(2, 2.0), np.full(2, 1.0)])
    x = np.array([[1.0, 3.0]], "float32")
    assert_close(layer.sublayer_input(x), [[-0.6, 2.6]])
    assert_close(layer(x, np.array([[10.0, 20.0]], "float32")), [[11.0, 23.0]])


@both_norms
def test_the_sublayer_output_is_dropped_out_before_the_sum_in_training_alone(norm_first):
    # Of ones at rate 0.5, 0 or 2 is left; pre-norm shows the sum itself.
    keras.utils.set_random_seed(0)
    layer = built(Residual(LayerNormalization(), dropout=0.5, norm_first=norm_first), (None, 400))
    zeros, ones = np.zeros((1, 400), "float32"), np.ones((1, 400), "float32")
    outputs = numpy(layer(zeros, ones, training=True))
    if norm_first:
        assert set(np.unique(outputs)) == {0.0, 2.0}
    else:
        gamma, beta = numpy(layer.norm.gamma), numpy(layer.norm.beta)
        kept = (outputs[0] - beta) / gamma > 0
        share = kept.mean()
        assert 0.35 < share < 0.65
        # Of a share s of twos and zeros the mean is 2 s and the deviation 2 sqrt(s (1 - s)).
        normalized = np.where(kept, np.sqrt((1 - share) / share), -np.sqrt(share / (1 - share)))
        assert_close(outputs[0], gamma * normalized + beta)


# The layers and the stacks.


@both_norms
def test_encoder_layer_equals_numpy(norm_first):
    layer = built(EncoderLayer(**SIZES, norm_first=norm_first), TARGET_ROWS.shape)
    assert_close(layer(TARGET_ROWS), reference.encoder_layer(layer, TARGET_ROWS))
    expected = reference.encoder_layer(layer, TARGET_ROWS, TARGET_MASK)
    assert_close(layer(TARGET_ROWS, mask=TARGET_MASK), expected)
    # The same mask, given as an attention mask, and with half of it in each.
    assert_close(layer(TARGET_ROWS, attention_mask=TARGET_MASK[:, None, :]), expected)
    first = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], bool)
    second = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]], bool)
    output = layer(TARGET_ROWS, mask=first, attention_mask=second[:, None, :])
    assert_close(output, expected)


def test_an_encoder_takes_a_mask_for_each_head():
    layer = built(Encoder(num_layers=2, **SIZES), TARGET_ROWS.shape)
    generator = np.random.default_rng(2)
    attention_mask = generator.random((BATCH, 3, TARGET, TARGET)) < 0.5
    expected = TARGET_ROWS
    for sublayer in layer.layers:
        mask = attention_mask & TARGET_MASK[:, None, None, :]
        hidden, _ = reference.multi_head_attention(
            sublayer.self_attention, expected, expected, mask=mask
        )
        expected = reference.layer_norm(sublayer.self_attention_residual.norm, expected + hidden)
        hidden = reference.feed_forward(sublayer.feed_forward, expected)
        expected = reference.layer_norm(sublayer.feed_forward_residual.norm, expected + hidden)
    assert_close(layer(TARGET_ROWS, mask=TARGET_MASK, attention_mask=attention_mask), expected)


@both_norms
@pytest.mark.parametrize("with_source", [False, True])
def test_decoder_layer_equals_numpy(norm_first, with_source):
    shapes = [TARGET_ROWS.shape, SOURCE_ROWS.shape] if with_source else [TARGET_ROWS.shape]
    rows = [TARGET_ROWS, SOURCE_ROWS] if with_source else [TARGET_ROWS]
    layer = built(DecoderLayer(**SIZES, norm_first=norm_first), *shapes)
    assert_close(layer(*rows), reference.decoder_layer(layer, *rows))
    masks = dict(target_mask=TARGET_MASK, source_mask=SOURCE_MASK if with_source else None)
    assert_close(layer(*rows, **masks), reference.decoder_layer(layer, *rows, **masks))


@both_norms
def test_encoder_equals_numpy(norm_first):
    layer = built(Encoder(num_layers=3, **SIZES, norm_first=norm_first), TARGET_ROWS.shape)
    expected = reference.encoder(layer, TARGET_ROWS, TARGET_MASK)
    assert_close(layer(TARGET_ROWS, mask=TARGET_MASK), expected)
    assert (layer.final_norm is not None) == norm_first


@both_norms
def test_decoder_equals_numpy(norm_first):
    layer = built(
        Decoder(num_layers=3, **SIZES, norm_first=norm_first), TARGET_ROWS.shape, SOURCE_ROWS.shape
    )
    masks = dict(target_mask=TARGET_MASK, source_mask=SOURCE_MASK)
    expected = reference.decoder(layer, TARGET_ROWS, SOURCE_ROWS, **masks)
    assert_close(layer(TARGET_ROWS, SOURCE_ROWS, **masks), expected)
    assert (layer.final_norm is not None) == norm_first


# Masks.


@pytest.mark.slow
@both_norms
@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "decoder with a source"])
def test_implicit_masks_are_honored_and_passed_on(kind, stack, norm_first):
    layer_class, stack_class = (
        (EncoderLayer, Encoder) if kind == "encoder" else (DecoderLayer, Decoder)
    )
    arguments = dict(**SIZES, norm_first=norm_first)
    layer = stack_class(2, **arguments) if stack else layer_class(**arguments)
    inputs, masks = (
        [embedded(TARGET_IDS, D_MODEL)],
        {"mask" if kind == "encoder" else "target_mask": TARGET_MASK},
    )
    if kind == "decoder with a source":
        inputs.append(embedded(SOURCE_IDS, 8, seed=1))
        masks["source_mask"] = SOURCE_MASK
    built(layer, *[tensor.shape for tensor in inputs])
    without_masks = [numpy(tensor) for tensor in inputs]
    expected = numpy(layer(*without_masks, **masks))
    for more in ({}, {"attention_mask": np.ones((TARGET, TARGET), bool)}):
        output = layer(*inputs, **more)
        assert_close(output, expected)
        np.testing.assert_array_equal(numpy(implicit_mask(output)), TARGET_MASK)
    # Masks that are given take the place of the implicit ones.
    all_real = {name: np.ones_like(mask) for name, mask in masks.items()}
    unmasked = numpy(layer(*without_masks))
    assert_close(layer(*inputs, **all_real), unmasked)
    if kind != "decoder":
        # The second sentence has no padding in its source.
        assert_differs(unmasked[0], expected[0])


# Step by step.


@both_norms
@pytest.mark.parametrize("with_source", [False, True])
@pytest.mark.parametrize("stack", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("growing", [False, True])
def test_steps_equal_one_call(norm_first, with_source, stack, growing):
    arguments = dict(**SIZES, norm_first=norm_first)
    layer = Decoder(2, **arguments) if stack else DecoderLayer(**arguments)
    source = [SOURCE_ROWS] if with_source else []
    layer = built(layer, TARGET_ROWS.shape, *[rows.shape for rows in source])
    whole = numpy(layer(TARGET_ROWS, *source, source_mask=SOURCE_MASK if with_source else None))
    source_key_values = (
        layer.project_source(ops.convert_to_tensor(SOURCE_ROWS)) if with_source else None
    )
    cache = layer.init_cache(BATCH, None if growing else TARGET)
    allowed = causal_mask(np.arange(TARGET), np.arange(TARGET))
    assert {type(layer_cache) for layer_cache in (cache if stack else [cache])} == {
        GrowingCache if growing else FixedCache
    }
    for position in range(TARGET):
        output, cache = layer.step(
            ops.convert_to_tensor(TARGET_ROWS[:, position : position + 1]),
            cache,
            # What is in the cache: all that was written, or all that has a place.
            NewPositions(
                position, allowed[:, position : position + 1, : position + 1 if growing else TARGET]
            ),
            source_key_values,
            SOURCE_MASK if with_source else None,
        )
        assert_close(output, whole[:, position : position + 1])


@pytest.mark.parametrize("sliding_window", [None, pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("stack", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("max_length", "as_first_entry"),
    [(TARGET, int), (TARGET + 2, ops.convert_to_tensor), (None, int)],
)
@pytest.mark.parametrize(
    "ends", [pytest.param((1, 2, 3, 4, 5), marks=pytest.mark.slow), (5,), (1, 4, 5)], ids=str
)
def test_without_a_mask_steps_equal_one_call(
    sliding_window, stack, max_length, ends, as_first_entry
):
    arguments = dict(**SIZES, sliding_window=sliding_window)
    layer = built(
        Decoder(2, **arguments) if stack else DecoderLayer(**arguments), TARGET_ROWS.shape
    )
    whole = numpy(layer(TARGET_ROWS))
    cache = layer.init_cache(BATCH, max_length)
    for start, end in zip((0, *ends), ends, strict=False):
        output, cache = layer.step(
            ops.convert_to_tensor(TARGET_ROWS[:, start:end]),
            cache,
            NewPositions(as_first_entry(start)),
        )
        np.testing.assert_allclose(numpy(output), whole[:, start:end], atol=1e-5)


@pytest.mark.parametrize(("first_entry", "count"), [(5, 1), (4, 2), (0, 6), (-1, 1)])
def test_step_beyond_the_end_of_a_fixed_cache_raises_an_error(first_entry, count):
    layer = built(DecoderLayer(**SIZES), TARGET_ROWS.shape)
    with pytest.raises(ValueError) as error:
        hidden = ops.zeros((BATCH, count, D_MODEL))
        layer.step(hidden, layer.init_cache(BATCH, 5), NewPositions(first_entry))
    assert str(error.value) == (
        "the n positions of the step must fit into the cache; "
        f"received first_entry={first_entry}, n={count} and a cache of length 5"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda **name: DecoderLayer(**SIZES, **name),
        lambda **name: Decoder(2, **SIZES, **name),
        lambda **name: MultiHeadAttention(3, 4, **name),
    ],
)
@pytest.mark.parametrize("max_length", [None, 4])
def test_a_layer_that_is_not_built_makes_no_cache(make, max_length):
    layer = make(name="ours")
    with pytest.raises(ValueError) as error:
        layer.init_cache(BATCH, max_length)
    assert (
        str(error.value)
        == "ours must be built before init_cache; call it or its build method first"
    )
    layer.build(TARGET_ROWS.shape, SOURCE_ROWS.shape)
    assert len(layer.init_cache(BATCH, max_length)) == 2


# Bad input.


@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
def test_heads_that_do_not_divide_d_model_are_refused(layer_class):
    with pytest.raises(ValueError, match="num_heads must divide d_model=6 .* received num_heads=4"):
        layer_class(num_heads=4, d_ff=4)(TARGET_ROWS)


def test_a_source_is_given_always_or_never():
    with_source, without = DecoderLayer(**SIZES), DecoderLayer(**SIZES)
    with_source(TARGET_ROWS, SOURCE_ROWS), without(TARGET_ROWS)
    message = "source must be given in every call or in no call; the layer was built "
    with pytest.raises(ValueError) as error:
        with_source(TARGET_ROWS)
    assert message + "with a source and received source=None" in str(error.value)
    with pytest.raises(ValueError) as error:
        without(TARGET_ROWS, SOURCE_ROWS)
    assert message + "without a source and received source=a tensor" in str(error.value)


X = np.ones((2, 5, 8), "float32")


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: EncoderLayer(4, 32)(X, mask=X[:, :4, 0] > 0),
            r"mask must be of shape \(2, 5\), .* of shape \(2, 4\)",
        ),
        (
            lambda: Encoder(1, 4, 32)(X, mask=X[0] > 0),
            r"mask must be of shape \(2, 5\), .* of shape \(5, 8\)",
        ),
        (
            lambda: EncoderLayer(4, 32)(X, attention_mask=X[:, :4, :4] > 0),
            r"attention_mask must broadcast to \(2, 4, 5, 5\), .*; received attention_mask of "
            r"shape \(2, 4, 4\)",
        ),
        (
            lambda: DecoderLayer(4, 32)(X, X, source_mask=X[:, :, 0][:1, :4] > 0),
            r"source_mask must be of shape \(2, 5\)",
        ),
        (
            lambda: DecoderLayer(4, 32)(X, X[:1]),
            "source must have the same batch size as target, 2; received source of shape",
        ),
        (
            lambda: Decoder(1, 4, 32)(X[:1], X),
            "source must have the same batch size as target, 1; received source of",
        ),
        (
            lambda: EncoderLayer(4, intermediate_dim=32),
            "no argument 'intermediate_dim'; use d_ff instead",
        ),
        (
            lambda: DecoderLayer(nhead=4, d_ff=32),
            "DecoderLayer has no argument 'nhead'; use num_heads instead",
        ),
        (
            lambda: Encoder(1, 4, 32, normalize_first=True),
            "no argument 'normalize_first'; use norm_first instead",
        ),
        (
            lambda: EncoderLayer(4, 32)(X, padding_mask=None),
            "got an unexpected keyword argument 'padding_mask'",
        ),
        (
            lambda: DecoderLayer(4, 32)(X, encoder_sequence=X),
            "got an unexpected keyword argument 'encoder_sequence'",
        ),
    ],
)
def test_what_does_not_fit_is_told_by_name(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize(
    "mask", [TARGET_MASK[:1], TARGET_MASK[:, 3:4]], ids=["one row", "one position"]
)
def test_masks_of_one_row_or_one_position_fit_all(mask):
    layer = built(EncoderLayer(**SIZES), TARGET_ROWS.shape)
    assert_close(layer(TARGET_ROWS, mask=mask), reference.encoder_layer(layer, TARGET_ROWS, mask))


def test_integers_of_numpy_are_sizes():
    layer = EncoderLayer(np.int64(2), np.int32(16), key_dim=np.int16(4))
    assert layer(X).shape == X.shape
    assert {type(layer.get_config()[name]) for name in ("num_heads", "d_ff", "key_dim")} == {int}


if keras.backend.backend() == "tensorflow":

    def test_ragged_tensors_are_to_be_padded():
        import tensorflow as tf

        for layer in (EncoderLayer(2, 8), Encoder(1, 2, 8, norm_first=True)):
            with pytest.raises(
                ValueError, match=r"inputs must not be ragged: pad it first, with to_tensor\(\)"
            ):
                layer(tf.RaggedTensor.from_tensor(X))
