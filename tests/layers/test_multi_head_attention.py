"""MultiHeadAttention against numbers worked out by hand and an independent computation in NumPy."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import normal

from keras_transformer import MultiHeadAttention
from keras_transformer.layers.cache import KeyValues, empty_cache
from keras_transformer.masks import implicit_mask

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 7, 6
TOLERANCE = 1e-5
# What the order of float32 sums may change in numbers of size 1 to 10, between two ways to compute
# the same.
ROUNDING = dict(rtol=1e-6, atol=1e-6)
# Without scores, PyTorch has one operation for all of the attention.
AS_WITH_SCORES = ROUNDING if keras.backend.backend() == "torch" else dict(rtol=0)


QUERY, VALUE, KEY = (
    normal(BATCH, TARGET, D_MODEL),
    normal(BATCH, SOURCE, 4, seed=1),
    normal(BATCH, SOURCE, 3, seed=2),
)
VALUE_MASK = np.array([[1, 1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]], bool)
KEY_MASK = np.array([[1, 1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]], bool)
ATTENTION_MASK = np.random.default_rng(3).random((BATCH, TARGET, SOURCE)) < 0.6


def attention_of(query, value, key=None, **arguments):
    layer = MultiHeadAttention(**{"num_heads": 3, "key_dim": 4, **arguments})
    return reference.built(layer, query.shape, value.shape, None if key is None else key.shape)


def identity_attention(num_heads, key_dim, d_model):
    layer = MultiHeadAttention(num_heads, key_dim, kernel_initializer="identity")
    layer.build((1, 1, d_model), (1, 2, d_model))
    return layer


def test_two_heads_by_hand():
    # The projections are identities, so head 1 sees the first column alone, head 2 the second, and
    # sqrt(key_dim) is 1. Head 1: scores ln 3 * (1, 0), weights (3/4, 1/4), output 3/4 * 1 = 0.75.
    # Head 2: scores 0 * (10, 20), weights (1/2, 1/2), output 15.
    query = np.array([[[np.log(3.0), 0.0]]], "float32")
    value = np.array([[[1.0, 10.0], [0.0, 20.0]]], "float32")
    layer = identity_attention(num_heads=2, key_dim=1, d_model=2)
    output, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(numpy(weights), [[[[0.75, 0.25]], [[0.5, 0.5]]]], rtol=1e-6)
    np.testing.assert_allclose(numpy(output), [[[0.75, 15.0]]], rtol=1e-6)


def test_scores_are_divided_by_the_root_of_key_dim_by_hand():
    # 2 ln 3 * 1 / sqrt(4) = ln 3 against 0: weights (3/4, 1/4).
    query = np.array([[[2 * np.log(3.0), 0.0, 0.0, 0.0]]], "float32")
    value = np.array([[[1.0, 0.0, 8.0, 0.0], [0.0, 0.0, 0.0, 4.0]]], "float32")
    output = identity_attention(num_heads=1, key_dim=4, d_model=4)(query, value)
    np.testing.assert_allclose(numpy(output), [[[0.75, 0.0, 6.0, 1.0]]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("value_dim", [None, 5])
@pytest.mark.parametrize("with_key", [False, True])
def test_equals_numpy(use_bias, value_dim, with_key):
    key = KEY if with_key else None
    layer = attention_of(QUERY, VALUE, key, value_dim=value_dim, use_bias=use_bias)
    for arguments, mask in (
        ({}, None),
        ({"value_mask": VALUE_MASK}, VALUE_MASK[:, None, :]),
        ({"key_mask": KEY_MASK}, KEY_MASK[:, None, :]),
        ({"attention_mask": ATTENTION_MASK}, ATTENTION_MASK),
        (
            {"attention_mask": ATTENTION_MASK, "value_mask": VALUE_MASK, "key_mask": KEY_MASK},
            ATTENTION_MASK & VALUE_MASK[:, None, :] & KEY_MASK[:, None, :],
        ),
    ):
        output, weights = layer(QUERY, VALUE, key, return_attention_scores=True, **arguments)
        expected, expected_weights = reference.multi_head_attention(layer, QUERY, VALUE, key, mask)
        np.testing.assert_allclose(numpy(weights), expected_weights, atol=TOLERANCE)
        np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)
        np.testing.assert_allclose(
            numpy(layer(QUERY, VALUE, key, **arguments)), numpy(output), **AS_WITH_SCORES
        )


@pytest.mark.parametrize("shape", [(TARGET, SOURCE), (1, TARGET, SOURCE), (BATCH, 1, SOURCE)])
def test_an_attention_mask_broadcasts_over_what_it_lacks(shape):
    # As many heads as target positions: the two must not be taken for each other.
    layer = attention_of(QUERY, VALUE, num_heads=TARGET)
    mask = np.random.default_rng(0).random(shape) < 0.6
    expected, _ = reference.multi_head_attention(layer, QUERY, VALUE, mask=mask)
    output = layer(QUERY, VALUE, attention_mask=mask)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


HEADS = 3
MASK_PER_HEAD = np.random.default_rng(5).random((BATCH, HEADS, TARGET, SOURCE)) < 0.6
# Each row of the causal mask sees position 0, so that no row is empty, in which Keras' layer
# differs from ours.
MASK_PER_HEAD[..., 0] = True


@pytest.mark.parametrize("with_key", [False, True])
def test_an_attention_mask_may_differ_between_heads(with_key):
    key = KEY if with_key else None
    layer = attention_of(QUERY, VALUE, key, value_dim=5)
    causal = np.tril(np.ones((TARGET, SOURCE), bool))
    for mask in (
        MASK_PER_HEAD,
        MASK_PER_HEAD[:, :1],  # (batch, 1, target, source)
        MASK_PER_HEAD[:1],
        MASK_PER_HEAD[:, :, :1],
    ):
        for arguments, combined in (
            ({}, mask),
            ({"value_mask": VALUE_MASK}, mask & VALUE_MASK[:, None, None, :]),
            ({"use_causal_mask": True}, mask & causal),
            (
                {"value_mask": VALUE_MASK, "key_mask": KEY_MASK, "use_causal_mask": True},
                mask & (VALUE_MASK & KEY_MASK)[:, None, None, :] & causal,
            ),
        ):
            output, weights = layer(
                QUERY, VALUE, key, attention_mask=mask, return_attention_scores=True, **arguments
            )
            expected, expected_weights = reference.multi_head_attention(
                layer, QUERY, VALUE, key, combined
            )
            np.testing.assert_allclose(numpy(weights), expected_weights, atol=TOLERANCE)
            np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


@pytest.mark.parametrize("lengths", [(TARGET, SOURCE), (SOURCE, TARGET), (TARGET, 1), (1, SOURCE)])
def test_causal_attention_of_unequal_lengths_sees_what_is_not_later(lengths):
    # As in Keras, both sequences are counted from their start: position i of the query sees j <= i
    # of the value.
    query, value = (
        normal(BATCH, length, D_MODEL, seed=seed) for seed, length in enumerate(lengths)
    )
    layer = attention_of(query, value)
    causal = np.array([[j <= i for j in range(lengths[1])] for i in range(lengths[0])])
    expected, expected_weights = reference.multi_head_attention(layer, query, value, mask=causal)
    output, weights = layer(query, value, use_causal_mask=True, return_attention_scores=True)
    np.testing.assert_allclose(numpy(weights), expected_weights, atol=TOLERANCE)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)
    # Nor does the value's end matter to the first positions.
    changed = value.copy()
    changed[:, 1:] += 100.0
    first = numpy(layer(query, changed, use_causal_mask=True))[:, 0]
    np.testing.assert_array_equal(first, numpy(output)[:, 0])


@pytest.mark.parametrize(
    "mask", [dict(value_mask=VALUE_MASK[:, :6]), dict(use_causal_mask=True)], ids=list
)
@pytest.mark.parametrize(("length", "is_fused"), [(6, True), (5, False)])
def test_on_gpus_jax_is_given_what_cudnn_takes(monkeypatch, length, is_fused, mask):
    # cuDNN takes no mask whose queries' axis is 1, and for its gradient no odd lengths beside a
    # mask.
    attend, mask_shapes = ops.dot_product_attention, []

    def dot_product_attention(*tensors, mask, **options):
        mask_shapes.append(tuple(mask.shape))
        return attend(*tensors, mask=mask, **options)

    monkeypatch.setattr(ops, "dot_product_attention", dot_product_attention)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["gpu:0"])
    query, value = normal(BATCH, 4, D_MODEL), normal(BATCH, length, D_MODEL, seed=1)
    layer = MultiHeadAttention(3, 4, dtype="bfloat16")
    if "value_mask" in mask:
        mask = dict(value_mask=mask["value_mask"][:, :length])
    outputs = layer(query, value, **mask)
    assert mask_shapes == [(BATCH if "value_mask" in mask else 1, 1, 4, length)] * is_fused
    with_scores, _ = layer(query, value, **mask, return_attention_scores=True)
    # bfloat16 has 8 bits.
    np.testing.assert_allclose(
        *(numpy(ops.cast(tensor, "float32")) for tensor in (outputs, with_scores)), atol=2**-6
    )


def test_what_is_masked_changes_nothing():
    layer = attention_of(QUERY, VALUE, KEY)
    changed_value = np.where(VALUE_MASK[..., None], VALUE, 1e4).astype("float32")
    changed_key = np.where(VALUE_MASK[..., None], KEY, -1e4).astype("float32")
    np.testing.assert_array_equal(
        numpy(layer(QUERY, changed_value, changed_key, value_mask=VALUE_MASK)),
        numpy(layer(QUERY, VALUE, KEY, value_mask=VALUE_MASK)),
    )


def test_what_comes_later_changes_nothing():
    layer = attention_of(QUERY, QUERY)
    output = numpy(layer(QUERY, QUERY, use_causal_mask=True))
    for position in range(TARGET):
        changed = QUERY.copy()
        changed[:, position + 1 :] += 100.0
        changed_output = numpy(layer(changed, changed, use_causal_mask=True))
        np.testing.assert_array_equal(changed_output[:, : position + 1], output[:, : position + 1])


TOKEN_IDS = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 0]])


@pytest.mark.parametrize("with_attention_mask", [False, True])
def test_implicit_masks_are_honored_and_passed_on(with_attention_mask):
    embedding = keras.layers.Embedding(9, D_MODEL, mask_zero=True)
    embedded = embedding(TOKEN_IDS)
    bare = numpy(embedded)
    layer = attention_of(bare, bare)
    arguments, mask = {}, (TOKEN_IDS != 0)[:, None, :]
    if with_attention_mask:
        arguments = {"attention_mask": ATTENTION_MASK[:, :, :TARGET]}
        mask = mask & ATTENTION_MASK[:, :, :TARGET]
    expected, _ = reference.multi_head_attention(layer, bare, bare, mask=mask)
    output = layer(embedded, embedded, **arguments)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)
    np.testing.assert_array_equal(numpy(implicit_mask(output)), TOKEN_IDS != 0)
    # The query's mask is passed on, the value's honored, where the two differ.
    query = ops.convert_to_tensor(bare)
    output, _ = layer(query, embedded, return_attention_scores=True, **arguments)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)
    assert implicit_mask(output) is None


def test_a_mask_that_is_given_takes_the_place_of_the_implicit_one():
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=0)
    embedded = keras.layers.Embedding(9, D_MODEL, initializer, mask_zero=True)(TOKEN_IDS)
    layer = attention_of(embedded, embedded)
    without = numpy(layer(numpy(embedded), numpy(embedded)))
    output = layer(embedded, embedded, value_mask=np.ones(TOKEN_IDS.shape, bool))
    np.testing.assert_allclose(numpy(output), without, **ROUNDING)
    # The implicit mask would have changed every position.
    assert np.all(np.any(np.abs(numpy(layer(embedded, embedded)) - without) > 1e-3, axis=-1))


@pytest.mark.parametrize("per_head", [False, True])
def test_every_argument_may_be_symbolic(per_head):
    floats = [keras.Input((None, width)) for width in (D_MODEL, 4, 3)]
    masks = [keras.Input((None,), dtype="bool") for _ in range(3)]
    inputs = [
        *floats,
        *masks,
        keras.Input((HEADS, None, None) if per_head else (None, None), dtype="bool"),
    ]
    layer = MultiHeadAttention(3, 4)
    outputs = layer(*inputs, return_attention_scores=True)
    assert [output.shape for output in outputs] == [(None, None, D_MODEL), (None, 3, None, None)]
    model = keras.Model(inputs, outputs)
    reference.randomize(layer)
    query_mask = np.ones((BATCH, TARGET), bool)
    attention_mask = MASK_PER_HEAD if per_head else ATTENTION_MASK[:, None]
    given = attention_mask if per_head else ATTENTION_MASK
    output, weights = model([QUERY, VALUE, KEY, query_mask, VALUE_MASK, KEY_MASK, given])
    mask = attention_mask & (VALUE_MASK & KEY_MASK)[:, None, None, :]
    expected, expected_weights = reference.multi_head_attention(layer, QUERY, VALUE, KEY, mask)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)
    np.testing.assert_allclose(numpy(weights), expected_weights, atol=TOLERANCE)


def test_a_fixed_cache_changes_where_it_is_written_alone():
    # Not at the end, and twice: the other entries stay as they were.
    cache = empty_cache(2, num_heads=1, key_dim=2, value_dim=1, max_length=5)
    first = KeyValues(np.full((2, 1, 3, 2), 7.0, "float32"), np.full((2, 1, 3, 1), 8.0, "float32"))
    second = KeyValues(
        np.arange(4.0, dtype="float32").reshape(2, 1, 1, 2),
        np.array([5.0, 6.0], "float32").reshape(2, 1, 1, 1),
    )
    cache = cache.write(first, 1).write(second, 2)
    assert numpy(cache.keys).tolist() == [
        [[[0, 0], [7, 7], [0, 1], [7, 7], [0, 0]]],
        [[[0, 0], [7, 7], [2, 3], [7, 7], [0, 0]]],
    ]
    assert numpy(cache.values).tolist() == [
        [[[0], [8], [5], [8], [0]]],
        [[[0], [8], [6], [8], [0]]],
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("max_length", [None, 4])
def test_a_cache_has_the_precision_of_the_computation(dtype, max_length):
    layer = MultiHeadAttention(1, 2, dtype=dtype)
    layer.build(QUERY.shape, QUERY.shape)
    cache = layer.init_cache(BATCH, max_length)
    assert {keras.backend.standardize_dtype(tensor.dtype) for tensor in cache} == {dtype}


def test_keys_and_values_projected_before_give_what_a_call_gives():
    layer = attention_of(QUERY, VALUE, KEY, value_dim=3)
    key_values = layer.project_key_value(ops.convert_to_tensor(VALUE), ops.convert_to_tensor(KEY))
    output = layer.attend(ops.convert_to_tensor(QUERY), key_values, VALUE_MASK[:, None, :])
    whole = layer(QUERY, VALUE, KEY, value_mask=VALUE_MASK)
    np.testing.assert_allclose(numpy(output), numpy(whole), atol=TOLERANCE)


def test_weights_are_dropped_in_training_alone():
    # With weights 1/4 of values 1 and identity projections the output is 1; at rate 0.5 each weight
    # is 0 or doubled, so the output is one of 0, 0.5, 1, 1.5, 2.
    keras.utils.set_random_seed(1)
    layer = MultiHeadAttention(1, 1, dropout=0.5, kernel_initializer="identity")
    query, value = np.ones((1, 200, 1), "float32"), np.ones((1, 4, 1), "float32")
    # A softmax is right to a unit or two of the last place.
    np.testing.assert_allclose(numpy(layer(query, value)), query, rtol=1e-6)
    dropped = numpy(layer(query, value, training=True))
    halves = np.round(2 * dropped)
    np.testing.assert_allclose(2 * dropped, halves, rtol=1e-6)
    assert set(np.unique(halves)) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert 0.85 < dropped.mean() < 1.15
