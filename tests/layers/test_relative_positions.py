"""What attention has beyond the paper, against NumPy."""

import math

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import built, normal

from keras_transformer import MultiHeadAttention, RotaryPositions
from keras_transformer.layers.alibi_positions import alibi_slopes
from keras_transformer.layers.t5_positions import t5_buckets

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 7, 6
TOLERANCE = 1e-5
QUERY, VALUE = normal(BATCH, TARGET, D_MODEL), normal(BATCH, SOURCE, 4, seed=1)
SEQUENCE = normal(BATCH, 9, D_MODEL, seed=2)
POSITIONS = np.array([[0, 3, 4, 4, 9], [140, 141, 2, 0, 1]])
KEY_POSITIONS = np.array([[3, 3, 0, 200, 5, 1, 9], [7, 6, 5, 4, 3, 2, 141]])


def attention_of(query, value, **arguments):
    return built(
        MultiHeadAttention(**{"num_heads": 4, "key_dim": 6, **arguments}), query.shape, value.shape
    )


def expected_outputs(*args, **kwargs):
    outputs, _ = reference.multi_head_attention(*args, **kwargs)
    return outputs


KINDS = [
    dict(value_dim=3),
    dict(relative_positions="rotary"),
    dict(relative_positions="alibi"),
    dict(relative_positions="t5"),
    dict(num_key_value_heads=2),
    dict(num_key_value_heads=1, value_dim=5),
    dict(query_key_norm=True),
    dict(use_gate=True, value_dim=3),
    dict(
        relative_positions="rotary",
        query_key_norm=True,
        num_key_value_heads=2,
        use_gate=True,
        use_bias=False,
    ),
    dict(relative_positions="t5", num_key_value_heads=2, value_dim=5),
    dict(relative_positions="alibi", num_key_value_heads=1, num_heads=3),
]
every_kind = pytest.mark.parametrize(
    "arguments", KINDS, ids=lambda arguments: "-".join(map(str, arguments.values()))
)


@every_kind
def test_one_call_equals_numpy(arguments):
    layer = attention_of(QUERY, VALUE, **arguments)
    mask = np.array([[1, 1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]], bool)
    expected = expected_outputs(layer, QUERY, VALUE, mask=mask[:, None, :])
    np.testing.assert_allclose(
        numpy(layer(QUERY, VALUE, value_mask=mask)), expected, atol=TOLERANCE
    )
    # Self-attention, where one product makes queries, keys and values.
    layer = attention_of(SEQUENCE, SEQUENCE, **arguments)
    for is_causal in (False, True):
        expected = expected_outputs(layer, SEQUENCE, SEQUENCE, causal=is_causal)
        output = layer(SEQUENCE, SEQUENCE, use_causal_mask=is_causal)
        np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


@every_kind
@pytest.mark.parametrize("use_causal_mask", [False, True])
def test_a_sliding_window_equals_numpy(arguments, use_causal_mask):
    layer = attention_of(SEQUENCE, SEQUENCE, sliding_window=3, **arguments)
    near = reference.window_mask(9, 3)
    expected = expected_outputs(layer, SEQUENCE, SEQUENCE, mask=near, causal=use_causal_mask)
    in_blocks = layer(SEQUENCE, SEQUENCE, use_causal_mask=use_causal_mask)
    as_a_mask, _ = layer(
        SEQUENCE, SEQUENCE, use_causal_mask=use_causal_mask, return_attention_scores=True
    )
    np.testing.assert_allclose(numpy(in_blocks), expected, atol=TOLERANCE)
    np.testing.assert_allclose(numpy(as_a_mask), expected, atol=TOLERANCE)


@every_kind
def test_positions_may_be_any_and_differ_between_sequences(arguments):
    layer = attention_of(QUERY, VALUE, **arguments)
    key_values = layer.project_key_value(ops.convert_to_tensor(VALUE), position_ids=KEY_POSITIONS)
    output = layer.attend(
        ops.convert_to_tensor(QUERY),
        key_values,
        position_ids=POSITIONS,
        key_position_ids=KEY_POSITIONS,
    )
    expected = expected_outputs(
        layer, QUERY, VALUE, positions=POSITIONS, key_positions=KEY_POSITIONS, causal=True
    )
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


def test_rotation_by_hand():
    # Of width 2 the one angle is the position: (1, 0) turned by 90 degrees is (0, 1).
    vectors = np.array([[[[1.0, 0.0], [1.0, 0.0], [1.0, 2.0]]]])
    expected = [
        [
            [
                [1.0, 0.0],
                [math.cos(1.0), math.sin(1.0)],
                [math.cos(2) - 2 * math.sin(2), math.sin(2) + 2 * math.cos(2)],
            ]
        ]
    ]
    rotate = RotaryPositions().rotate
    # Sums of two numbers up to 2, each rounded in float32.
    np.testing.assert_allclose(numpy(rotate(vectors)), expected, rtol=0, atol=4 * 2**-23)
    quarter = rotate(np.array([[[0.0, 1.0]]]), np.array([[math.pi / 2]]))
    np.testing.assert_allclose(numpy(quarter), [[[-1.0, 0.0]]], atol=1e-6)


def test_slopes_by_hand():
    # The paper's example, 1/2 to 1/2^8; and 12 heads: those of 8, then every other one of 16 heads.
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12) == [*alibi_slopes(8), 2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    assert alibi_slopes(1) == [2.0**-8] and alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]


def test_buckets_of_distances():
    assert t5_buckets(32)[:17] == [*range(17)] and t5_buckets(32)[113:] == [31] * 16
    assert t5_buckets(16)[:9] == [*range(9)] and t5_buckets(16)[91:] == [15] * 38
    assert all(t5_buckets(32)[d] == reference.t5_bucket(-d, causal=True) for d in range(129))
    assert all(t5_buckets(16)[d] == reference.t5_bucket(-d, causal=False) for d in range(129))


def test_the_heads_of_a_group_share_keys_that_a_cache_holds_once():
    layer = attention_of(QUERY, VALUE, num_key_value_heads=2, value_dim=5)
    assert layer.key_dense.kernel.shape == (4, 2 * 6) and layer.value_dense.kernel.shape == (
        4,
        2 * 5,
    )
    key_values = layer.project_key_value(ops.convert_to_tensor(VALUE))
    assert [tuple(t.shape) for t in key_values] == [(BATCH, 2, SOURCE, 6), (BATCH, 2, SOURCE, 5)]
    assert [tuple(t.shape) for t in layer.init_cache(BATCH, 3)] == [
        (BATCH, 2, 3, 6),
        (BATCH, 2, 3, 5),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_every_precision(dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # JAX computes in float32 unless told otherwise when it starts.
    arguments = dict(
        num_heads=4,
        key_dim=6,
        relative_positions="rotary",
        query_key_norm=True,
        num_key_value_heads=2,
    )
    layer = attention_of(SEQUENCE, SEQUENCE, **arguments, dtype=dtype)
    output = layer(ops.cast(SEQUENCE, layer.compute_dtype), ops.cast(SEQUENCE, layer.compute_dtype))
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    expected = expected_outputs(layer, SEQUENCE, SEQUENCE)
    digits = {"mixed_bfloat16": 0.05, "mixed_float16": 0.01, "float32": TOLERANCE, "float64": 1e-6}[
        dtype
    ]
    np.testing.assert_allclose(
        numpy(ops.cast(output, "float32")), expected, atol=digits * np.abs(expected).max()
    )
