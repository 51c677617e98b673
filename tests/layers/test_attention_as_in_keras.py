"""`MultiHeadAttention` against `keras.layers.MultiHeadAttention` with the same weights and
arguments.

Compared are the outputs and, on every backend, the scores. Where Keras' layer fails or is wrong,
ours is compared with itself or with what is right: rows that are fully masked (uniform weights
there, zeros here), positions of the query that are masked, padding and causal masks along any but
the first axis, scores of rank 6 (TensorFlow), `value_dim` without scores (JAX), symbolic scores of
unequal lengths, and implicit masks of a tensor that two attentions use.
"""

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import normal

from keras_transformer import MultiHeadAttention

TOLERANCE = 1e-6


def mask_of(*shape, seed=0):
    """A mask in which every position may attend to the first: rows that are fully masked differ in
    Keras' layer."""
    mask = np.random.default_rng(seed).random(shape) < 0.6
    mask[..., 0] = True
    return mask


def both(query, value, key=None, **arguments):
    """Both layers, with the same random weights."""
    arguments = {"num_heads": 3, "key_dim": 4, **arguments}
    stock, ours = keras.layers.MultiHeadAttention(**arguments), MultiHeadAttention(**arguments)
    for layer in (stock, ours):
        layer.build(query.shape, value.shape, None if key is None else key.shape)
    for seed, name in enumerate(
        ["query", "key", "value", "output", *(["gate"] if ours.use_gate else [])]
    ):
        theirs = getattr(stock, f"_{name}_dense")
        weights = [0.4 * normal(*weight.shape, seed=seed) for weight in theirs.weights]
        theirs.set_weights(weights)
        projection = getattr(ours, f"{name}_dense")
        projection.set_weights(
            [new.reshape(old.shape) for new, old in zip(weights, projection.weights, strict=True)]
        )
    return stock, ours


def assert_equal(query, value, key=None, call=None, with_outputs_alone=True, **arguments):
    call = call or {}
    stock, ours = both(query, value, key, **arguments)
    expected, expected_scores = map(
        numpy, stock(query, value, key, return_attention_scores=True, **call)
    )
    output, scores = map(numpy, ours(query, value, key, return_attention_scores=True, **call))
    assert output.shape == expected.shape and scores.shape == expected_scores.shape
    np.testing.assert_allclose(scores, expected_scores, atol=TOLERANCE)
    # To a millionth of the largest number, which float32 holds to 1e-7.
    close = dict(rtol=TOLERANCE, atol=TOLERANCE * max(1.0, np.abs(expected).max()))
    np.testing.assert_allclose(output, expected, **close)
    # The same without scores, which the backend may compute in one operation.
    np.testing.assert_allclose(numpy(ours(query, value, key, **call)), expected, **close)


QUERY, VALUE, KEY = normal(2, 5, 6), normal(2, 7, 4, seed=1), normal(2, 7, 3, seed=2)
PADDING = np.array([[1, 1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 1, 0]], bool)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"value_dim": 5},
        {"use_bias": False},
        {"output_shape": 8},
        {"output_shape": (2, 3)},
        {"use_gate": True},
        {"use_gate": True, "value_dim": 5, "use_bias": False, "output_shape": 4},
        {"flash_attention": False, "dropout": 0.3, "seed": 1},
    ],
    ids=str,
)
def test_arguments(arguments):
    assert_equal(QUERY, VALUE, **arguments)
    assert_equal(QUERY, VALUE, KEY, {"value_mask": PADDING, "use_causal_mask": True}, **arguments)
    assert_equal(QUERY, QUERY, call={"use_causal_mask": True}, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        (5, 7),
        (1, 5, 7),
        (2, 1, 7),
        (2, 5, 7),
        (2, 3, 5, 7),
        (1, 3, 1, 7),
        (2, 1, 5, 7),
        (1, 1, 1, 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_every_form_of_mask(shape, dtype):
    mask = mask_of(*shape).astype(dtype)
    assert_equal(QUERY, VALUE, call={"attention_mask": mask})
    # Keras' layer cannot combine padding with a mask that has an axis for the heads.
    padding = {"key_mask": PADDING} if len(shape) < 4 else {}
    assert_equal(QUERY, VALUE, KEY, {"attention_mask": mask, "use_causal_mask": True, **padding})


@pytest.mark.slow
@pytest.mark.parametrize("use_causal_mask", [False, True])
@pytest.mark.parametrize("sliding_window", [1, 2, 3, 10])
def test_sliding_windows(sliding_window, use_causal_mask):
    call = {"use_causal_mask": use_causal_mask}
    assert_equal(QUERY, QUERY, call=call, sliding_window=sliding_window)
    # Another value, which may be longer.
    assert_equal(QUERY, VALUE, KEY, call, sliding_window=sliding_window)
    mask = mask_of(2, 5, 5) | np.eye(5, dtype=bool)
    assert_equal(QUERY, QUERY, call={"attention_mask": mask, **call}, sliding_window=sliding_window)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query_shape", "value_shape", "axes", "mask_shapes"),
    [
        (
            (2, 3, 5, 6),
            (2, 3, 7, 4),
            2,
            [(5, 7), (2, 5, 7), (2, 3, 5, 7), (1, 3, 5, 7), (2, 3, 3, 5, 7), (2, 3, 1, 5, 7)],
        ),
        ((2, 3, 5, 6), (2, 3, 7, 4), (-2,), [(2, 1, 3, 5, 7)]),
        ((2, 5, 3, 6), (2, 7, 3, 4), 1, [(5, 7), (2, 3, 5, 7)]),
        (
            (2, 3, 5, 6),
            (2, 2, 4, 6),
            None,
            [(3, 5, 2, 4), (2, 3, 5, 2, 4), (2, 3, 3, 5, 2, 4), (1, 1, 3, 5, 2, 4)],
        ),
        ((2, 3, 5, 6), (2, 2, 4, 6), (2, 1), [(5, 3, 4, 2)]),
        (
            (2, 2, 3, 4, 6),
            (2, 2, 2, 3, 6),
            (2, 3),
            [(3, 4, 2, 3), (2, 3, 4, 2, 3), (2, 2, 3, 3, 4, 2, 3)],
        ),
        ((2, 4, 3, 2, 6), (2, 2, 3, 3, 6), (1, -2), [(2, 3, 4, 2, 2, 3)]),
    ],
    ids=str,
)
def test_inputs_of_any_rank(query_shape, value_shape, axes, mask_shapes):
    query, value, key = (
        normal(*query_shape),
        normal(*value_shape, seed=1),
        normal(*value_shape[:-1], 5, seed=2),
    )
    num_attended = len(query_shape) - 2 if axes is None else np.size(axes)
    assert_equal(query, value, attention_axes=axes)
    assert_equal(query, value, key, attention_axes=axes, use_gate=True, output_shape=(2, 3))
    for shape in mask_shapes:
        mask = np.random.default_rng(0).random(shape) < 0.6
        mask[(..., *[0] * num_attended)] = True
        assert_equal(query, value, call={"attention_mask": mask}, attention_axes=axes)


def test_causal_and_restricted_attention_along_the_first_of_two_axes():
    # The one axis along which Keras' layer has them.
    query, value = normal(2, 5, 3, 6), normal(2, 5, 3, 4, seed=1)
    for use_causal_mask in (False, True):
        for sliding_window in (None, 2):
            call = {"use_causal_mask": use_causal_mask}
            assert_equal(query, value, call=call, attention_axes=1, sliding_window=sliding_window)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_each_place_on_a_free_axis_is_on_its_own(axes):
    # Of rank 5 and along any axis, with masks: Keras' layer finds padding, and what is causal, on
    # the first axis alone.
    inputs = normal(2, 3, 4, 3, 6)
    padding = np.random.default_rng(1).random(inputs.shape[:-1]) < 0.7
    layer = MultiHeadAttention(2, 3, attention_axes=axes, sliding_window=3)
    layer.build(inputs.shape, inputs.shape)
    flat = MultiHeadAttention(2, 3, sliding_window=3)
    flat.build((None, None, 6), (None, None, 6))
    flat.set_weights(layer.get_weights())
    output = numpy(layer(inputs, inputs, value_mask=padding, use_causal_mask=True))

    def folded(array):
        array = np.moveaxis(array, axes, 3)
        return array.reshape(-1, *array.shape[3:])

    sequences = folded(inputs)
    expected = flat(sequences, sequences, value_mask=folded(padding), use_causal_mask=True)
    np.testing.assert_allclose(folded(output), numpy(expected), atol=TOLERANCE)


def test_regularizers_constraints_and_initializers():
    arguments = dict(
        num_heads=3,
        key_dim=4,
        use_gate=True,
        kernel_regularizer="l2",
        bias_regularizer="l1",
        activity_regularizer=keras.regularizers.L2(0.5),
        kernel_constraint="non_neg",
        bias_constraint="max_norm",
        bias_initializer="ones",
    )
    stock, ours = both(QUERY, VALUE, **arguments)
    for name in ("query", "key", "value", "gate", "output"):
        projection = getattr(ours, f"{name}_dense")
        assert type(projection.kernel.constraint) is keras.constraints.NonNeg
        assert type(projection.bias.constraint) is keras.constraints.MaxNorm
    for sliding_window in (None, 2):
        # In blocks too, where there are rows that stand beyond the end.
        ours.sliding_window = sliding_window
        for layer in (stock, ours):
            layer(QUERY, VALUE)
        # Five kernels, five biases, five outputs.
        losses, expected = (
            [float(numpy(loss)) for loss in layer.losses] for layer in (ours, stock)
        )
        assert len(losses) == 15
        if sliding_window is None:
            np.testing.assert_allclose(sorted(losses), sorted(expected), rtol=1e-5)
            first = sorted(losses)
        else:
            # All but one are those of the whole attention: the output is another one.
            assert sum(np.isclose(loss, first, rtol=1e-5).any() for loss in losses) == 14
    fresh = MultiHeadAttention(
        2, 3, bias_initializer="ones", kernel_initializer=keras.initializers.GlorotUniform(1)
    )
    fresh.build(QUERY.shape, QUERY.shape)
    assert np.all(numpy(fresh.key_dense.bias) == 1)
    assert np.any(numpy(fresh.key_dense.kernel) != numpy(fresh.query_dense.kernel))


def test_a_masked_query_changes_nothing_and_two_attentions_may_share_a_masked_tensor():
    # Keras' layer gives positions of the query that are masked uniform weights, and takes the mask
    # off its inputs.
    embedded = keras.layers.Embedding(9, 6, mask_zero=True)(np.array([[3, 1, 0, 0], [2, 7, 1, 0]]))
    first, second = MultiHeadAttention(2, 3), MultiHeadAttention(2, 3)
    first(embedded, embedded)
    second.build(embedded.shape, embedded.shape)
    second.set_weights(first.get_weights())
    bare = numpy(embedded)
    expected = first(bare, bare, value_mask=np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool))
    for layer in (first, second, first):
        np.testing.assert_allclose(
            numpy(layer(embedded, embedded)), numpy(expected), atol=TOLERANCE
        )


@pytest.mark.parametrize("flash_attention", [None, False])
def test_a_row_that_is_fully_masked_is_zero_before_the_output_projection(flash_attention):
    _, ours = both(QUERY, VALUE, flash_attention=flash_attention)
    mask = mask_of(2, 3, 5, 7)
    mask[0, :, 2] = False
    output = numpy(ours(QUERY, VALUE, attention_mask=mask))
    np.testing.assert_array_equal(output[0, 2], numpy(ours.output_dense.bias))
    scored, weights = ours(QUERY, VALUE, attention_mask=mask, return_attention_scores=True)
    assert np.all(numpy(weights)[0, :, 2] == 0)
    np.testing.assert_allclose(output, numpy(scored), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("query_shape", "value_shape", "arguments"),
    [
        ((2, 5, 6), (2, 7, 4), {}),
        ((None, None, 6), (None, 7, 4), {"output_shape": (2, 3)}),
        ((None, 3, None, 6), (None, 3, 7, 6), {"attention_axes": 2, "output_shape": 8}),
        ((None, 3, 5, 6), (None, 2, 4, 6), {"num_key_value_heads": 1}),
        (
            (2, None, None, 4, 6),
            (2, None, None, 3, 6),
            {"attention_axes": (3, 1), "sliding_window": 3},
        ),
    ],
)
def test_shapes_are_known_before_anything_is_computed(query_shape, value_shape, arguments):
    layer = MultiHeadAttention(3, 4, **arguments)
    query, value = keras.Input(batch_shape=query_shape), keras.Input(batch_shape=value_shape)
    symbolic = layer(query, value, return_attention_scores=True)
    assert (
        symbolic[0].shape
        == layer.compute_output_shape(query_shape, value_shape)
        == layer(query, value).shape
    )
    model = keras.Model([query, value], symbolic)
    sizes = [[size or 2 for size in shape] for shape in (query_shape, value_shape)]
    computed = model([normal(*shape) for shape in sizes])
    for known, tensor in zip(symbolic, computed, strict=True):
        assert len(known.shape) == len(tensor.shape)
        assert all(size in (None, actual) for size, actual in zip(known.shape, tensor.shape))
        # Unknown is what depends on an unknown size, and nothing else.
        assert known.shape.count(None) <= query_shape.count(None) + value_shape.count(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(flash_attention=True, dropout=0.1),
            "Dropout is not supported when flash attention is enabled: dropout must be 0 with "
            "flash_attention=True; "
            "received dropout=0.1",
        ),
        (
            dict(num_key_value_heads=3),
            "num_key_value_heads must be a divisor of num_heads=2; received num_key_value_heads=3",
        ),
        (
            dict(relative_positions="rotary"),
            "key_dim must be even with relative_positions='rotary'; received key_dim=3",
        ),
    ],
)
def test_what_cannot_be_combined_is_one_line(arguments, message):
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(2, 3, **arguments)
    assert str(error.value) == message


def test_scores_and_flash_attention_exclude_each_other():
    layer = MultiHeadAttention(2, 3, flash_attention=True)
    with pytest.raises(
        ValueError,
        match="Returning attention scores is not supported when flash attention is enabled",
    ):
        layer(QUERY, VALUE, return_attention_scores=True)


@pytest.mark.parametrize(
    ("query_shape", "value_shape", "key_shape", "axes", "message"),
    [
        (
            (2, 6),
            (2, 7, 4),
            None,
            None,
            "query must be (batch, length, d_model), or have more axes",
        ),
        (
            (2, 5, 6),
            (2, 7, 4),
            (2, 6, 4),
            None,
            "value and key must be equal in all dimensions but the last",
        ),
        ((2, 5, 6), (2, 3, 7, 4), None, None, "query and value must have the same rank"),
        (
            (2, 5, 6),
            (2, 7, 4),
            None,
            2,
            "attention_axes must be different axes from 1 to 1 of inputs of rank 3",
        ),
        (
            (2, 3, 5, 6),
            (2, 3, 7, 4),
            None,
            (1, 1),
            "attention_axes must be different axes from 1 to 2",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named(query_shape, value_shape, key_shape, axes, message):
    layer = MultiHeadAttention(2, 3, attention_axes=axes)
    with pytest.raises(ValueError) as error:
        layer(
            normal(*query_shape),
            normal(*value_shape),
            None if key_shape is None else normal(*key_shape),
        )
    assert message in str(error.value)


def test_a_built_layer_names_a_query_or_a_mask_of_another_rank():
    layer = MultiHeadAttention(2, 3)
    layer(QUERY, VALUE)
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        layer(QUERY[0], VALUE)
    with pytest.raises(ValueError, match="attention_mask must be a tensor of rank 2 to 4"):
        layer(QUERY, VALUE, attention_mask=np.ones(7, bool))


def test_shapes_that_do_not_agree_are_refused_whatever_they_are():
    # Keras' own tests give an int for the shape of the key.
    for key_shape in (2, (2, 1, 7)):
        with pytest.raises(
            ValueError, match="value and key must be equal in all dimensions but the last"
        ):
            MultiHeadAttention(4, 2).compute_output_shape((2, 4, 8), (2, 2, 7), key_shape)
