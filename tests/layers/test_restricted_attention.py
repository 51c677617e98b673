"""Restricted self-attention (section 4): what it computes, and how its cost grows."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import normal

from keras_transformer import MultiHeadAttention

BATCH, LENGTH, D_MODEL = 2, 11, 6
TOLERANCE = 1e-5

both = pytest.mark.parametrize("use_causal_mask", [False, True])


INPUTS = normal(BATCH, LENGTH, D_MODEL)
# The second row begins with padding that is longer than half of any small window.
MASK = np.array([[1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1]], bool)


def attention_of(sliding_window, **arguments):
    layer = MultiHeadAttention(
        **{"num_heads": 3, "key_dim": 4, "sliding_window": sliding_window, **arguments}
    )
    return reference.built(layer, (None, None, D_MODEL), (None, None, D_MODEL))


def band(length, sliding_window, use_causal_mask):
    mask = reference.window_mask(length, sliding_window)
    return np.tril(mask) if use_causal_mask else mask


def test_uniform_attention_over_three_positions_by_hand():
    # The query's kernel is 0, so all scores are equal and every output is a mean: of the position
    # and its neighbors, or of the position and the one before.
    layer = MultiHeadAttention(1, 1, kernel_initializer="identity", sliding_window=2)
    layer.build((1, 5, 1), (1, 5, 1))
    layer.query_dense.kernel.assign([[0.0]])
    values = np.array([[[0.0], [6.0], [12.0], [30.0], [60.0]]], "float32")
    output = numpy(layer(values, values))[0, :, 0]
    np.testing.assert_allclose(output, [3.0, 6.0, 16.0, 34.0, 45.0], rtol=1e-6)
    output = numpy(layer(values, values, use_causal_mask=True))[0, :, 0]
    np.testing.assert_allclose(output, [0.0, 3.0, 9.0, 21.0, 45.0], rtol=1e-6)


# Lengths below, at and above one, two and three blocks.
@pytest.mark.parametrize(
    ("length", "sliding_window"),
    [
        *((1, 1), (5, 1), (1, 2), (2, 2), (5, 2), (1, 5), (3, 5), (4, 5), (5, 5), (8, 5), (9, 5)),
        *((10, 4), (11, 3), (11, 4), (11, 11), (6, 500)),
    ],
)
@both
def test_equals_numpy(length, sliding_window, use_causal_mask):
    layer = attention_of(sliding_window, value_dim=5, use_bias=True)
    query, value, key = (normal(BATCH, length, D_MODEL, seed=seed) for seed in range(3))
    mask = MASK[:, :length]
    near = band(length, sliding_window, use_causal_mask)
    for arguments, attended in (
        ({}, near),
        ({"value_mask": mask}, near & mask[:, None, :]),
        ({"value_mask": mask[:1]}, near & mask[:1, None, :]),  # One for all.
        ({"value_mask": mask, "key_mask": mask[::-1]}, near & (mask & mask[::-1])[:, None, :]),
    ):
        expected, _ = reference.multi_head_attention(layer, query, value, key, attended)
        output = layer(query, value, key, use_causal_mask=use_causal_mask, **arguments)
        np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


def test_weights_are_dropped_in_training_alone():
    # Weights 1/3 of values 1: at rate 0.5 each is 0 or 2/3; at the two ends 1/2 becomes 0 or 1.
    keras.utils.set_random_seed(1)
    arguments = {"dropout": 0.5, "kernel_initializer": "identity", "sliding_window": 2}
    layer = MultiHeadAttention(1, 1, **arguments)
    inputs = np.ones((1, 200, 1), "float32")
    np.testing.assert_allclose(numpy(layer(inputs, inputs)), inputs, rtol=1e-6)
    thirds = 3 * numpy(layer(inputs, inputs, training=True))[0, 1:-1]
    assert set(np.unique(np.round(thirds, 4))) == {0.0, 2.0, 4.0, 6.0}


@pytest.mark.slow
@both
def test_gradients_are_those_of_full_attention_with_a_band_mask(use_causal_mask):
    # One step of plain gradient descent at rate 1 shows the gradient of every weight; the dense
    # layer before shows that of the inputs.
    def weights_after_a_step(sliding_window, **arguments):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((LENGTH, D_MODEL))
        mask = keras.Input((LENGTH,), dtype="bool")
        before = keras.layers.Dense(D_MODEL)
        attention = MultiHeadAttention(3, 4, use_bias=True, sliding_window=sliding_window)
        hidden = before(inputs)
        outputs = attention(
            hidden, hidden, value_mask=mask, use_causal_mask=use_causal_mask, **arguments
        )
        model = reference.randomize(keras.Model([inputs, mask], outputs))
        initial = model.get_weights()
        model.compile(keras.optimizers.SGD(1.0), "mse")
        model.train_on_batch([INPUTS, MASK], normal(BATCH, LENGTH, D_MODEL, seed=9))
        return initial, model.get_weights(), [weight.path for weight in model.weights]

    near = band(LENGTH, 3, False)
    initial, expected, paths = weights_after_a_step(None, attention_mask=near)
    _, trained, _ = weights_after_a_step(3)
    for path, old, new, right in zip(paths, initial, trained, expected, strict=True):
        # Adding one number to all scores of a position changes no weight.
        if not path.endswith("key/bias"):
            assert np.abs(right - old).max() > 1e-2, path
        np.testing.assert_allclose(new, right, atol=2e-6, err_msg=path)


@both
def test_mixed_precision_is_that_of_full_attention_with_a_band_mask(use_causal_mask):
    outputs = {}
    for dtype in ("float32", "mixed_bfloat16"):
        restricted, full = (attention_of(w, dtype=dtype) for w in (3, None))
        assert {weight.dtype for weight in restricted.weights} == {"float32"}
        output = restricted(INPUTS, INPUTS, value_mask=MASK, use_causal_mask=use_causal_mask)
        expected = full(
            *(INPUTS, INPUTS),
            value_mask=MASK,
            attention_mask=band(LENGTH, 3, False),
            use_causal_mask=use_causal_mask,
        )
        assert keras.backend.standardize_dtype(output.dtype) == restricted.compute_dtype
        outputs[dtype] = [numpy(ops.cast(tensor, "float32")) for tensor in (output, expected)]
    exact = outputs["float32"][0]
    errors = [np.sqrt(np.mean((output - exact) ** 2)) for output in outputs["mixed_bfloat16"]]
    # Both round alike, to the 8 bits of bfloat16.
    assert 0 < errors[0] < 0.01 * np.abs(exact).max()
    assert errors[0] == pytest.approx(errors[1], rel=0.05)


@both
@pytest.mark.parametrize("lengths", [(11, 11), (11, 4), (4, 11), (1, 11), (11, 1)])
def test_with_scores_or_a_mask_or_other_lengths_equals_numpy(lengths, use_causal_mask):
    query, value = normal(BATCH, lengths[0], D_MODEL), normal(BATCH, lengths[1], D_MODEL, seed=1)
    near = band(11, 3, use_causal_mask)[: lengths[0], : lengths[1]]
    layer = attention_of(3, value_dim=2)
    mask = MASK[:, : lengths[1]]
    attention_mask = np.random.default_rng(0).random((BATCH, 3, *lengths)) < 0.6
    arguments = dict(value_mask=mask, use_causal_mask=use_causal_mask)
    expected, weights = reference.multi_head_attention(
        layer, query, value, mask=near & mask[:, None, :]
    )
    output, scores = layer(query, value, return_attention_scores=True, **arguments)
    np.testing.assert_allclose(numpy(scores), weights, atol=TOLERANCE)
    for outputs in (output, layer(query, value, **arguments)):
        np.testing.assert_allclose(numpy(outputs), expected, atol=TOLERANCE)
    attended = near & mask[:, None, None, :] & attention_mask
    expected, _ = reference.multi_head_attention(layer, query, value, mask=attended)
    output = layer(query, value, attention_mask=attention_mask, **arguments)
    np.testing.assert_allclose(numpy(output), expected, atol=TOLERANCE)


@pytest.mark.slow
def test_one_graph_takes_any_two_lengths():
    layer = attention_of(3)
    query, value = keras.Input((None, D_MODEL)), keras.Input((None, D_MODEL))
    model = keras.Model([query, value], layer(query, value))
    near = band(LENGTH, 3, False)
    for target, source in ((11, 11), (11, 3), (2, 11)):
        inputs = INPUTS[:, :target], normal(BATCH, source, D_MODEL, seed=1)
        expected, _ = reference.multi_head_attention(layer, *inputs, mask=near[:target, :source])
        np.testing.assert_allclose(model.predict(inputs, verbose=0), expected, atol=TOLERANCE)


# PyTorch computes without a graph.
if keras.backend.backend() != "torch":

    def compiled(function, *shapes):
        """The function compiled by XLA; TensorFlow's is traced once, without a length."""
        if keras.backend.backend() == "jax":
            import jax

            return jax.jit(function)
        import tensorflow as tf

        signature = [tf.TensorSpec([None, None, *shape], dtype) for dtype, shape in shapes]
        return tf.function(function, input_signature=signature, jit_compile=True)

    @pytest.mark.slow
    @both
    def test_one_graph_takes_any_length(use_causal_mask):
        layer = attention_of(3)

        def attend(inputs, mask):
            return layer(inputs, inputs, value_mask=mask, use_causal_mask=use_causal_mask)

        graph = compiled(attend, ("float32", [D_MODEL]), ("bool", []))
        for length in (1, 2, 6, LENGTH):
            inputs, mask = INPUTS[:, :length], MASK[:, :length]
            expected = numpy(attend(inputs, mask))
            np.testing.assert_allclose(numpy(graph(inputs, mask)), expected, atol=TOLERANCE)

    def sizes_of_tensors(layer, length, use_causal_mask):
        """The number of elements of everything that one call and its gradient compute."""
        arguments = dict(value_mask=np.ones((1, length), bool), use_causal_mask=use_causal_mask)
        inputs = np.ones((1, length, D_MODEL), "float32")

        def total(inputs):
            return ops.sum(layer(inputs, inputs, **arguments) ** 2)

        if keras.backend.backend() == "jax":
            import jax
            from jax.extend.core import jaxprs_in_params

            def walk(jaxpr):
                for equation in jaxpr.eqns:
                    yield from (variable.aval.size for variable in equation.outvars)
                    for inner in jaxprs_in_params(equation.params):
                        yield from walk(inner)

            return list(walk(jax.make_jaxpr(jax.value_and_grad(total))(inputs).jaxpr))
        import tensorflow as tf

        @tf.function
        def value_and_gradient(inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                value = total(inputs)
            return value, tape.gradient(value, inputs)

        graph = value_and_gradient.get_concrete_function(tf.constant(inputs)).graph
        tensors = [tensor for operation in graph.get_operations() for tensor in operation.outputs]
        return [tensor.shape.num_elements() for tensor in tensors]

    @pytest.mark.slow
    @both
    def test_time_and_memory_grow_with_the_length_not_with_its_square(use_causal_mask):
        restricted, full = (attention_of(w, num_heads=2) for w in (17, None))
        lengths = (1024, 2048, 4096)
        sizes = {n: sizes_of_tensors(restricted, n, use_causal_mask) for n in lengths}
        # The largest hold the scores: of each head, each position, and two or three blocks of 16.
        assert max(sizes[4096]) == 2 * 4096 * (2 if use_causal_mask else 3) * 16 < 4096 * 4096
        totals = [sum(sizes[n]) for n in lengths]
        assert totals[2] - totals[1] == 2 * (totals[1] - totals[0])
        # Full attention's n * n elements do not escape the count.
        assert max(sizes_of_tensors(full, 1024, use_causal_mask)) == 2 * 1024 * 1024

    @pytest.mark.slow
    @both
    def test_a_short_sentence_costs_little_however_large_the_window(use_causal_mask):
        sizes = sizes_of_tensors(attention_of(5000, num_heads=2), 20, use_causal_mask)
        assert max(sizes) == 2 * 20 * (2 if use_causal_mask else 3) * 20
