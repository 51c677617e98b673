"""A masked position has no influence, whatever finite numbers it holds, in every way to compute."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy
from numpy_transformer import built, normal

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    NewPositions,
)
from keras_transformer.layers.cache import FixedCache
from keras_transformer.layers.scaled_dot_product_attention import (
    attention_weights,
    fused_attention,
    product_of_heads,
    swap_heads,
)

BATCH, LENGTH, HEADS, D_MODEL = 2, 7, 4, 6
INPUTS = normal(BATCH, LENGTH, D_MODEL)
SOURCE = normal(BATCH, LENGTH, 5, seed=1)
# The positions that hold huge numbers, of which products with a query are up to 1e22.
HIDDEN = np.array([[0, 0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1, 1]], bool)
HUGE = 1e20
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))
PER_HEAD = np.random.default_rng(3).random((BATCH, HEADS, LENGTH, LENGTH)) < 0.7


def numpy(tensor):
    return convert_to_numpy(ops.cast(tensor, "float32"))


def with_hidden(inputs, value=HUGE):
    return np.where(HIDDEN[..., None], value, inputs).astype("float32")


def window(size):
    return reference.window_mask(LENGTH, size)


# Each way of masking: arguments of the layer and of the call, and what each position may see.
KEYS = ~HIDDEN[:, None, :]
WAYS = {
    "padding": ({}, dict(value_mask=~HIDDEN), KEYS),
    "attention mask": ({}, dict(attention_mask=KEYS), KEYS),
    "a mask for each head": (
        {},
        dict(attention_mask=PER_HEAD & KEYS[:, None]),
        (PER_HEAD & KEYS[:, None]).any(axis=1),
    ),
    "causal": ({}, dict(use_causal_mask=True), CAUSAL),
    "causal and padding": ({}, dict(use_causal_mask=True, value_mask=~HIDDEN), CAUSAL & KEYS),
    "window": (dict(sliding_window=2), {}, window(2)),
    "causal window": (dict(sliding_window=2), dict(use_causal_mask=True), window(2) & CAUSAL),
    "window and padding": (dict(sliding_window=3), dict(value_mask=~HIDDEN), window(3) & KEYS),
    "window with a mask": (
        dict(sliding_window=3),
        dict(attention_mask=CAUSAL, key_mask=~HIDDEN),
        window(3) & CAUSAL & KEYS,
    ),
}
KINDS = {
    "plain": ({}, {}),
    "without flash attention": (dict(flash_attention=False), {}),
    "with scores": ({}, dict(return_attention_scores=True)),
    "grouped": (dict(num_key_value_heads=2, value_dim=3), {}),
    "rotary": (dict(relative_positions="rotary"), {}),
    "alibi": (dict(relative_positions="alibi", num_key_value_heads=1), {}),
    "t5": (dict(relative_positions="t5"), {}),
    "biased": ({}, dict(score_bias=normal(HEADS, LENGTH, LENGTH, seed=2)[None])),
    "gated": (dict(use_gate=True), {}),
}
CASES = [
    *((way, kind) for way in WAYS for kind in ("plain", "without flash attention")),
    *(
        (way, kind)
        for way in ("padding", "causal", "window and padding")
        for kind in list(KINDS)[2:]
    ),
]


def attention_of(dtype=None, **arguments):
    layer = MultiHeadAttention(**{"num_heads": HEADS, "key_dim": 4, **arguments}, dtype=dtype)
    return built(layer, INPUTS.shape, INPUTS.shape)


def rows_that_see_nothing_hidden(seen):
    """(batch, length): those that are not hidden themselves, and may not see a hidden position."""
    rows = ~HIDDEN & ~np.any(seen & HIDDEN[:, None, :], axis=-1)
    assert rows.sum() >= 2
    return rows


@pytest.mark.parametrize(("way", "kind"), CASES, ids=str)
def test_huge_numbers_behind_a_mask_change_nothing(way, kind):
    (arguments, call, seen), (more_arguments, more_call) = WAYS[way], KINDS[kind]
    layer = attention_of(**arguments, **more_arguments)
    rows = rows_that_see_nothing_hidden(seen)
    outputs = []
    for inputs in (INPUTS, with_hidden(INPUTS), with_hidden(INPUTS, -HUGE)):
        output = layer(inputs, inputs, **call, **more_call)
        outputs.append(numpy(output[0] if "return_attention_scores" in more_call else output)[rows])
    assert np.all(np.isfinite(outputs[0]))
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


@pytest.mark.parametrize(("dtype", "huge"), [("mixed_bfloat16", HUGE), ("mixed_float16", 1e3)])
@pytest.mark.parametrize("way", ["padding", "causal", "window and padding"])
@pytest.mark.parametrize("kind", ["plain", "without flash attention", "alibi"])
def test_numbers_behind_a_mask_change_nothing_in_low_precision(way, kind, dtype, huge):
    (arguments, call, seen), (more_arguments, _) = WAYS[way], KINDS[kind]
    layer = attention_of(dtype, **arguments, **more_arguments)
    rows = rows_that_see_nothing_hidden(seen)
    first, second = (
        numpy(layer(inputs, inputs, **call))[rows] for inputs in (INPUTS, with_hidden(INPUTS, huge))
    )
    assert np.all(np.isfinite(first))
    np.testing.assert_array_equal(second, first)


# Scores of billions, with projections that are identities and one head of width 1: the scores are
# the keys.

BILLIONS = np.array([-3e9, -3e9, 3e9, -3e9, -6e9, 3e9, -3e9], "float32")[None, :, None]
ALLOWED = BILLIONS[..., 0] < 0
SCORE_WAYS = {
    "padding": ({}, dict(key_mask=ALLOWED), ALLOWED[:, None, :]),
    "attention mask": ({}, dict(attention_mask=ALLOWED[:, None, :]), ALLOWED[:, None, :]),
    "causal and padding": (
        {},
        dict(use_causal_mask=True, key_mask=ALLOWED),
        CAUSAL & ALLOWED[:, None, :],
    ),
    "window": (
        dict(sliding_window=3),
        dict(key_mask=ALLOWED),
        window(3) & ALLOWED[:, None, :],
    ),
    "window with a mask": (
        dict(sliding_window=2),
        dict(attention_mask=ALLOWED[:, None, :]),
        window(2) & ALLOWED[:, None, :],
    ),
    "causal alone": ({}, dict(use_causal_mask=True), CAUSAL[None]),
}


@pytest.mark.parametrize("flash_attention", [None, False])
@pytest.mark.parametrize("way", SCORE_WAYS)
def test_allowed_scores_of_minus_three_billion_win_over_masked_ones_above(way, flash_attention):
    arguments, call, seen = SCORE_WAYS[way]
    layer = MultiHeadAttention(
        1, 1, kernel_initializer="identity", flash_attention=flash_attention, **arguments
    )
    values = normal(1, LENGTH, 1)
    layer.build(values.shape, values.shape, values.shape)
    query = np.ones_like(values)
    expected, weights = reference.multi_head_attention(layer, query, values, BILLIONS, mask=seen)
    # Each row sees something, and some see the highest score more than once.
    assert np.all(weights.sum(axis=-1) == 1) and np.any((weights > 0) & (weights < 1))
    output = layer(query, values, BILLIONS, **call)
    np.testing.assert_allclose(numpy(output), expected, rtol=1e-6)


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_scores_may_be_as_large_as_1e37_on_either_side(is_fused, biased):
    # Of two heads, the second has its mask the other way round.
    keys = np.array([[[[-1e37], [1e37], [-1e37]], [[1e37], [-1e37], [1e37]]]], "float32")
    values = np.array([[[[2.0], [1e37], [4.0]], [[-1e37], [5.0], [1e37]]]], "float32")
    mask = np.array([[[[True, False, True]], [[False, True, False]]]])
    queries = np.ones((1, 2, 1, 1), "float32")
    tensors = [ops.convert_to_tensor(array) for array in (queries, keys, values, mask)]
    bias = ops.ones((1, 2, 1, 1)) if biased else None
    if is_fused:
        heads = fused_attention(*tensors, bias)
    else:
        weights = attention_weights(tensors[0], tensors[1], tensors[3], bias)
        assert numpy(weights).tolist() == [[[[0.5, 0.0, 0.5]], [[0.0, 1.0, 0.0]]]]
        heads = swap_heads(product_of_heads(weights, tensors[2]))
    assert numpy(heads).tolist() == [[[[3.0], [5.0]]]]


def test_a_bias_of_billions_counts_where_it_is_allowed_alone():
    # All scores are 0 without it. Row 0 chooses between -3e9 and -6e9, row 1 has -3e9 twice.
    layer = MultiHeadAttention(1, 1, kernel_initializer="identity")
    values = np.array([[[2.0], [4.0], [100.0]]], "float32")
    bias = np.array([[-3e9, -6e9, 3e9], [-3e9, -3e9, 3e9]], "float32")
    mask = np.array([[True, True, False]] * 2)
    queries = np.zeros((1, 2, 1), "float32")
    output = layer(queries, values, score_bias=bias, attention_mask=mask)
    assert numpy(output).tolist() == [[[2.0], [3.0]]]
    _, weights = layer(
        queries, values, score_bias=bias, attention_mask=mask, return_attention_scores=True
    )
    assert numpy(weights).tolist() == [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]]]


# Rows that may see nothing.


@pytest.mark.parametrize("kind", ["plain", "without flash attention", "grouped", "alibi", "biased"])
@pytest.mark.parametrize(
    ("arguments", "call", "seen"),
    [
        ({}, dict(attention_mask=PER_HEAD & (np.arange(LENGTH) % 3 > 0)[:, None]), None),
        ({}, dict(use_causal_mask=True, value_mask=HIDDEN), CAUSAL & HIDDEN[:, None, :]),
        (dict(sliding_window=2), dict(value_mask=HIDDEN), window(2) & HIDDEN[:, None, :]),
    ],
    ids=["attention mask", "causal and padding", "window and padding"],
)
def test_a_row_that_may_see_nothing_is_zero_before_the_output_projection(
    arguments, call, seen, kind
):
    more_arguments, more_call = KINDS[kind]
    layer = attention_of(**arguments, **more_arguments)
    if seen is None:
        seen = call["attention_mask"].any(axis=1)
    rows = ~seen.any(axis=-1)
    assert rows.any() and not rows.all()
    # Huge numbers too are nothing.
    output = numpy(layer(INPUTS, with_hidden(INPUTS), **call, **more_call))
    expected = np.broadcast_to(numpy(layer.output_dense.bias), output[rows].shape)
    np.testing.assert_array_equal(output[rows], expected)


# Step by step.


def filled_cache(layer, length, value):
    """A fixed cache whose entries are not zeros."""
    cache = layer.init_cache(BATCH, length)
    return FixedCache(*[ops.full(tensor.shape, value, tensor.dtype) for tensor in cache])


STEPPED = {
    "plain": {},
    "grouped": dict(num_key_value_heads=1, value_dim=3),
    "rotary": dict(relative_positions="rotary"),
    "alibi": dict(relative_positions="alibi"),
    "t5 in a window": dict(relative_positions="t5", sliding_window=2),
}
each_kind = pytest.mark.parametrize("arguments", STEPPED.values(), ids=STEPPED)


@each_kind
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_entries_that_are_not_written_yet_change_nothing(arguments, dtype):
    layer = attention_of(dtype, **arguments)
    outputs = []
    for value in (0.0, HUGE, -HUGE):
        cache = filled_cache(layer, LENGTH + 2, value)
        rows = []
        for start, end in ((0, 1), (1, 2), (2, 5)):
            hidden = ops.cast(INPUTS[:, start:end], layer.compute_dtype)
            row, cache = layer.step(hidden, cache, NewPositions(start))
            rows.append(numpy(row))
        outputs.append(np.concatenate(rows, axis=1))
    assert np.all(np.isfinite(outputs[0]))
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


@each_kind
@pytest.mark.parametrize("growing", [False, True])
def test_entries_that_a_mask_hides_change_nothing(arguments, growing):
    # Padding in front, as in a batch of prompts of different lengths.
    layer = attention_of(**arguments)
    padding = np.array([2, 1])
    position_ids = np.arange(LENGTH) - padding[:, None]
    outputs = []
    for value in (0.5, HUGE, -HUGE):
        inputs = np.where(position_ids[..., None] < 0, value, INPUTS).astype("float32")
        cache = layer.init_cache(BATCH, None if growing else LENGTH)
        rows = []
        for start, end in ((0, 3), (3, 4), (4, LENGTH)):
            entries = np.arange(end if growing else LENGTH)
            places = np.arange(start, end)[:, None]
            positions = NewPositions(
                start,
                (entries <= places) & (entries >= padding[:, None, None]),
                position_ids[:, start:end],
                position_ids[:, : len(entries)],
            )
            hidden = ops.convert_to_tensor(inputs[:, start:end])
            row, cache = layer.step(hidden, cache, positions)
            rows.append(numpy(row))
        outputs.append(np.concatenate(rows, axis=1)[position_ids >= 0])
    assert np.all(np.isfinite(outputs[0]))
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


@each_kind
def test_attend_hides_huge_keys_and_values_and_rows_without_any(arguments):
    layer = attention_of(**arguments)
    outputs = []
    for inputs in (INPUTS, with_hidden(INPUTS), with_hidden(INPUTS, -HUGE)):
        key_values = layer.project_key_value(ops.convert_to_tensor(inputs))
        mask = KEYS & (np.arange(LENGTH) > 0)[:, None]
        outputs.append(numpy(layer.attend(ops.convert_to_tensor(INPUTS), key_values, mask)))
    assert np.all(np.isfinite(outputs[0]))
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])
    bias = np.broadcast_to(numpy(layer.output_dense.bias), (BATCH, D_MODEL))
    np.testing.assert_array_equal(outputs[0][:, 0], bias)


# Layers and stacks.

SIZES = dict(num_heads=2, d_ff=8, key_dim=4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_padded_source_changes_nothing_in_a_call_and_in_steps(norm_first):
    decoder = built(Decoder(2, **SIZES, norm_first=norm_first), INPUTS.shape, SOURCE.shape)
    calls, steps = [], []
    for source in (SOURCE, with_hidden(SOURCE), with_hidden(SOURCE, -HUGE)):
        calls.append(numpy(decoder(INPUTS, source, source_mask=~HIDDEN)))
        key_values = decoder.project_source(ops.convert_to_tensor(source))
        inputs, cache = ops.convert_to_tensor(INPUTS), decoder.init_cache(BATCH)
        output, _ = decoder.step(inputs, cache, NewPositions(0), key_values, ~HIDDEN)
        steps.append(numpy(output))
    for outputs in (calls, steps):
        assert np.all(np.isfinite(outputs[0]))
        np.testing.assert_array_equal(outputs[1], outputs[0])
        np.testing.assert_array_equal(outputs[2], outputs[0])
    np.testing.assert_allclose(calls[0], steps[0], atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("make", [Encoder, Decoder])
def test_padding_changes_nothing_in_a_stack(make, norm_first):
    # The padded rows attend too, and their scores are the squares of their numbers.
    stack = built(make(2, **SIZES, norm_first=norm_first), INPUTS.shape)
    name = "mask" if make is Encoder else "target_mask"
    first, second = (
        numpy(stack(inputs, **{name: ~HIDDEN}))[~HIDDEN]
        for inputs in (INPUTS, with_hidden(INPUTS, 1e15))
    )
    assert np.all(np.isfinite(first))
    np.testing.assert_array_equal(second, first)


@pytest.mark.parametrize("make", [EncoderLayer, DecoderLayer])
def test_a_later_position_changes_nothing(make):
    layer = built(make(**SIZES), INPUTS.shape)
    changed = INPUTS.copy()
    changed[:, 4:] = HUGE
    outputs = [numpy(layer(rows, use_causal_mask=True))[:, :4] for rows in (INPUTS, changed)]
    np.testing.assert_array_equal(outputs[1], outputs[0])


@pytest.mark.parametrize("flash_attention", [None, False])
def test_a_step_of_training_is_the_same(flash_attention):
    query, value = keras.Input((LENGTH, D_MODEL)), keras.Input((LENGTH, 5))
    mask = keras.Input((LENGTH,), dtype="bool")
    attention = MultiHeadAttention(2, 4, flash_attention=flash_attention)
    model = keras.Model([query, value, mask], attention(query, value, value_mask=mask))
    initial = reference.randomize(model).get_weights()
    trained = []
    for source in (SOURCE, with_hidden(SOURCE)):
        model.set_weights(initial)
        model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
        model.train_on_batch([INPUTS, source, ~HIDDEN], np.ones_like(INPUTS))
        trained.append(model.get_weights())
    for one, other in zip(*trained, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert np.any(trained[0][0] != initial[0])
