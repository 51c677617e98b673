"""What attention has beyond the paper, against plain loops in NumPy."""

import math

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops

from keras_transformer import MultiHeadAttention
from keras_transformer.layers.cache import FixedCache, GrowingCache
from keras_transformer.layers.relative_positions import alibi_slopes, rotate, t5_buckets

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 7, 6
TOLERANCE = 1e-5


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


QUERY, VALUE = random(BATCH, TARGET, D_MODEL), random(BATCH, SOURCE, 4, seed=1)
SEQUENCE = random(BATCH, 9, D_MODEL, seed=2)
POSITIONS = np.array([[0, 3, 4, 4, 9], [140, 141, 2, 0, 1]])
KEY_POSITIONS = np.array([[3, 3, 0, 200, 5, 1, 9], [7, 6, 5, 4, 3, 2, 141]])


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def attention_of(query, value, **arguments):
    layer = MultiHeadAttention(**{"num_heads": 4, "key_dim": 6, **arguments})
    layer.build(query.shape, value.shape)
    return reference.randomize(layer)


def rotated(vector, position):
    # Feature i and feature i + width / 2 are a point of the plane, turned by position / 10000^(2i / width).
    half = len(vector) // 2
    turned = np.zeros(len(vector))
    for i in range(half):
        angle = position / 10000.0 ** (2 * i / len(vector))
        point = complex(vector[i], vector[i + half]) * complex(math.cos(angle), math.sin(angle))
        turned[i], turned[i + half] = point.real, point.imag
    return turned


def bucket(relative_position, causal):
    # Raffel et al. (2020): half of the buckets for exact distances, the others logarithmic up to 128.
    count, first = (32, 0) if causal else (16, 16 if relative_position > 0 else 0)
    distance = max(-relative_position, 0) if causal else abs(relative_position)
    exact = count // 2
    if distance < exact:
        return first + distance
    # A quotient of two logarithms may fall short of a whole number by one rounding.
    steps = math.log(distance / exact) / math.log(128 / exact) * (count - exact)
    return first + min(exact + math.floor(steps + 1e-9), count - 1)


def bias(layer, head, relative_position, causal):
    if layer.relative_positions == "alibi":
        return -abs(relative_position) * alibi_slopes(layer.num_heads)[head]
    if layer.relative_positions == "t5":
        return reference.array(layer.relative_bias.embeddings)[bucket(relative_position, causal), head]
    return 0.0


def expected_outputs(layer, query, value, mask=None, positions=None, key_positions=None, causal=False):
    """The outputs, one number after the other. `causal` picks T5's buckets; what is attended to is in `mask`."""
    batch, target, source = len(query), query.shape[1], value.shape[1]
    mask = np.broadcast_to(True if mask is None else mask, (batch, target, source))
    positions = np.broadcast_to(np.arange(target) if positions is None else positions, (batch, target))
    key_positions = np.broadcast_to(np.arange(source) if key_positions is None else key_positions, (batch, source))
    num_groups = layer.num_key_value_heads or layer.num_heads
    value_dim = layer.value_dim or layer.key_dim

    def heads(dense, x, count):
        return reference.dense(dense, x).reshape(batch, x.shape[1], count, -1)

    def prepared(x, norm, position):
        if layer.query_key_norm:
            x = x / math.sqrt(np.mean(x**2) + 1e-6) * reference.array(norm.scale)
        return rotated(x, position) if layer.relative_positions == "rotary" else x

    queries = heads(layer.query_dense, query, layer.num_heads)
    keys, values = heads(layer.key_dense, value, num_groups), heads(layer.value_dense, value, num_groups)
    norms = (layer.query_norm, layer.key_norm) if layer.query_key_norm else (None, None)
    joined = np.zeros((batch, target, layer.num_heads, value_dim))
    for b in range(batch):
        for head in range(layer.num_heads):
            group = head // (layer.num_heads // num_groups)
            for i in range(target):
                one = prepared(queries[b, i, head], norms[0], positions[b, i])
                exponentials = {}
                for j in np.flatnonzero(mask[b, i]):
                    other = prepared(keys[b, j, group], norms[1], key_positions[b, j])
                    distance = int(key_positions[b, j]) - int(positions[b, i])
                    exponentials[j] = math.exp(
                        one @ other / math.sqrt(layer.key_dim) + bias(layer, head, distance, causal)
                    )
                for j, exponential in exponentials.items():
                    joined[b, i, head] += exponential / sum(exponentials.values()) * values[b, j, group]
    joined = joined.reshape(batch, target, -1)
    if layer.use_gate:
        joined = joined / (1 + np.exp(-reference.dense(layer.gate_dense, query)))
    return reference.dense(layer.output_dense, joined)


KINDS = [
    dict(value_dim=3),
    dict(relative_positions="rotary"),
    dict(relative_positions="alibi"),
    dict(relative_positions="t5"),
    dict(num_key_value_heads=2),
    dict(num_key_value_heads=1, value_dim=5),
    dict(query_key_norm=True),
    dict(use_gate=True, value_dim=3),
    dict(relative_positions="rotary", query_key_norm=True, num_key_value_heads=2, use_gate=True, use_bias=False),
    dict(relative_positions="t5", num_key_value_heads=2, value_dim=5),
    dict(relative_positions="alibi", num_key_value_heads=1, num_heads=3),
]
every_kind = pytest.mark.parametrize("arguments", KINDS, ids=lambda arguments: "-".join(map(str, arguments.values())))


@every_kind
def test_one_call_equals_numpy(arguments):
    layer = attention_of(QUERY, VALUE, **arguments)
    mask = np.array([[1, 1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]], bool)
    expected = expected_outputs(layer, QUERY, VALUE, mask[:, None, :])
    np.testing.assert_allclose(numpy(layer(QUERY, VALUE, value_mask=mask)), expected, atol=TOLERANCE)
    # Self-attention, where one product makes queries, keys and values.
    layer = attention_of(SEQUENCE, SEQUENCE, **arguments)
    causal = np.tril(np.ones((9, 9), bool))
    for attended, is_causal in ((None, False), (causal, True)):
        expected = expected_outputs(layer, SEQUENCE, SEQUENCE, attended, causal=is_causal)
        output = layer(SEQUENCE, SEQUENCE, use_causal_mask=is_causal)
        np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


@every_kind
@pytest.mark.parametrize("use_causal_mask", [False, True])
def test_a_neighborhood_equals_numpy(arguments, use_causal_mask):
    layer = attention_of(SEQUENCE, SEQUENCE, neighborhood=5, **arguments)
    near = reference.neighborhood_mask(9, 5)
    near = np.tril(near) if use_causal_mask else near
    expected = expected_outputs(layer, SEQUENCE, SEQUENCE, near, causal=use_causal_mask)
    in_blocks = layer(SEQUENCE, SEQUENCE, use_causal_mask=use_causal_mask)
    as_a_mask, _ = layer(SEQUENCE, SEQUENCE, use_causal_mask=use_causal_mask, return_attention_scores=True)
    np.testing.assert_allclose(numpy(in_blocks), expected, atol=TOLERANCE)
    np.testing.assert_allclose(numpy(as_a_mask), expected, atol=TOLERANCE)


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("max_length", [None, 9])
def test_steps_from_a_cache_equal_one_call(arguments, max_length):
    layer = attention_of(SEQUENCE, SEQUENCE, **arguments)
    expected = expected_outputs(layer, SEQUENCE, SEQUENCE, np.tril(np.ones((9, 9), bool)), causal=True)
    cache = layer.init_cache(BATCH, max_length)
    assert type(cache) is (GrowingCache if max_length is None else FixedCache)
    for start, end in ((0, 4), (4, 5), (5, 6), (6, 9)):
        new, positions = ops.convert_to_tensor(SEQUENCE[:, start:end]), np.arange(start, end)
        # A cache that grows does so at its end, whatever the position.
        cache = cache.write(layer.project_key_value(new, position_ids=positions), start if max_length else 0)
        attended = np.arange(cache.keys.shape[2])[None, :] <= positions[:, None]
        output = layer.attend(new, cache, attended, position_ids=positions)
        np.testing.assert_allclose(numpy(output), expected[:, start:end], atol=TOLERANCE)


@every_kind
def test_positions_may_be_any_and_differ_between_sequences(arguments):
    layer = attention_of(QUERY, VALUE, **arguments)
    key_values = layer.project_key_value(ops.convert_to_tensor(VALUE), position_ids=KEY_POSITIONS)
    output = layer.attend(
        ops.convert_to_tensor(QUERY), key_values, position_ids=POSITIONS, key_position_ids=KEY_POSITIONS
    )
    expected = expected_outputs(layer, QUERY, VALUE, positions=POSITIONS, key_positions=KEY_POSITIONS, causal=True)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


def test_rotation_by_hand():
    # Of width 2 the one angle is the position: (1, 0) turned by 90 degrees is (0, 1).
    vectors = np.array([[[[1.0, 0.0], [1.0, 0.0], [1.0, 2.0]]]])
    expected = [
        [[[1.0, 0.0], [math.cos(1.0), math.sin(1.0)], [math.cos(2) - 2 * math.sin(2), math.sin(2) + 2 * math.cos(2)]]]
    ]
    np.testing.assert_allclose(numpy(rotate(vectors)), expected, rtol=1e-6)
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
    assert all(t5_buckets(32)[d] == bucket(-d, causal=True) for d in range(129))
    assert all(t5_buckets(16)[d] == bucket(-d, causal=False) for d in range(129))


def test_the_heads_of_a_group_share_keys_that_a_cache_holds_once():
    layer = attention_of(QUERY, VALUE, num_key_value_heads=2, value_dim=5)
    assert layer.key_dense.kernel.shape == (4, 2 * 6) and layer.value_dense.kernel.shape == (4, 2 * 5)
    key_values = layer.project_key_value(ops.convert_to_tensor(VALUE))
    assert [tuple(t.shape) for t in key_values] == [(BATCH, 2, SOURCE, 6), (BATCH, 2, SOURCE, 5)]
    assert [tuple(t.shape) for t in layer.init_cache(BATCH, 3)] == [(BATCH, 2, 3, 6), (BATCH, 2, 3, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_every_precision(dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # JAX computes in float32 unless told otherwise when it starts.
    arguments = dict(num_heads=4, key_dim=6, relative_positions="rotary", query_key_norm=True, num_key_value_heads=2)
    layer = MultiHeadAttention(**arguments, dtype=dtype)
    layer.build(SEQUENCE.shape, SEQUENCE.shape)
    reference.randomize(layer)
    output = layer(ops.cast(SEQUENCE, layer.compute_dtype), ops.cast(SEQUENCE, layer.compute_dtype))
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    expected = expected_outputs(layer, SEQUENCE, SEQUENCE)
    digits = {"mixed_bfloat16": 0.05, "mixed_float16": 0.01, "float32": TOLERANCE, "float64": 1e-6}[dtype]
    np.testing.assert_allclose(numpy(ops.cast(output, "float32")), expected, atol=digits * np.abs(expected).max())
