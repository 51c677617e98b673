"""PositionalEmbedding against section 3.5's formula, worked out by hand and in NumPy."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops

from keras_transformer import PositionalEmbedding
from keras_transformer.masks import implicit_mask

TOKEN_IDS = np.array([[5, 3, 8, 0], [1, 0, 2, 9]])


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def built(*args, **kwargs):
    layer = PositionalEmbedding(*args, **kwargs)
    layer.build((None, None))
    return reference.randomize(layer)


def positions_alone(positions, d_model, **kwargs):
    layer = PositionalEmbedding(2, d_model, **kwargs)
    layer.build((None, None))
    layer.token_table.assign(np.zeros((2, d_model)))
    token_ids = np.ones((1, len(positions)), "int32")
    return numpy(layer(token_ids, positions=np.array([positions])))[0]


def test_sinusoids_by_hand():
    # d_model 4: 10000^(0/4) = 1 and 10000^(2/4) = 100, and sine and cosine alternate:
    # sin pos, cos pos, sin pos/100, cos pos/100.
    np.testing.assert_allclose(
        positions_alone([0, 1, 2, 100], d_model=4),
        [
            [0.0, 1.0, 0.0, 1.0],
            [0.84147098, 0.54030231, 0.00999983, 0.99995000],
            [0.90929743, -0.41614684, 0.01999867, 0.99980001],
            [-0.50636564, 0.86231887, 0.84147098, 0.54030231],
        ],
        atol=1e-6,
    )


def test_sinusoids_equal_numpy():
    # An angle of up to 1000 in float32 is off by up to 3e-5, and its powers of 10000 add as much.
    np.testing.assert_allclose(
        positions_alone(list(range(1000)), d_model=64), reference.sinusoids(1000, 64), atol=2e-4
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_sums_are_made_in_float32_under_a_mixed_policy(positions):
    arguments = dict(vocab_size=10, d_model=16, positions=positions, max_length=300)
    mixed = built(**arguments, dtype="mixed_bfloat16")(np.full((1, 300), 7))
    exact = built(**arguments, dtype="float32")(np.full((1, 300), 7))
    np.testing.assert_array_equal(numpy(mixed), numpy(ops.cast(exact, "bfloat16")))


def test_positions_above_256_differ_under_a_mixed_policy():
    # bfloat16 has 8 bits: to it 257 and 258 are one number.
    neighbours = positions_alone([257, 258], d_model=16, dtype="mixed_bfloat16")
    assert np.any(neighbours[0] != neighbours[1])


def test_token_embeddings_are_multiplied_by_the_root_of_d_model():
    # By hand: 3 * sqrt(4) + sin 0 = 6 and 3 * sqrt(4) + cos 0 = 7.
    layer = built(2, 4)
    layer.token_table.assign(np.full((2, 4), 3.0))
    np.testing.assert_allclose(numpy(layer(np.array([[1]]))), [[[6.0, 7.0, 6.0, 7.0]]], rtol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_equals_numpy(positions):
    layer = built(10, 6, positions=positions, max_length=4)
    expected = reference.positional_embedding(layer, TOKEN_IDS)
    np.testing.assert_allclose(numpy(layer(TOKEN_IDS)), expected, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_may_be_given(positions):
    layer = built(10, 6, positions=positions, max_length=4)
    whole = numpy(layer(TOKEN_IDS))
    for position in range(4):
        column = layer(TOKEN_IDS[:, position : position + 1], positions=np.array([[position]]))
        np.testing.assert_allclose(numpy(column), whole[:, position : position + 1], atol=1e-6)
    backwards = layer(TOKEN_IDS[:, ::-1], positions=np.array([[3, 2, 1, 0]]))
    np.testing.assert_allclose(numpy(backwards), whole[:, ::-1], atol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_reverse_projects_with_the_same_table(positions):
    layer = built(10, 6, positions=positions, max_length=4)
    assert layer.token_table.shape == (10, 6)
    assert len(layer.trainable_variables) == (1 if positions == "sinusoidal" else 2)
    hidden = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")
    expected = hidden @ reference.array(layer.token_table).T
    np.testing.assert_allclose(numpy(layer(hidden, reverse=True)), expected, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16", "float16"])
def test_logits_are_float32_under_every_policy(policy):
    layer = built(10, 6, dtype=policy)
    hidden = layer(TOKEN_IDS)
    assert keras.backend.standardize_dtype(hidden.dtype) == layer.compute_dtype
    logits = layer(hidden, reverse=True)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_ids_may_come_as_floats(policy):
    # Keras hands floats to models that were given no dtype. bfloat16 has no 301.
    layer = built(400, 6, dtype=policy)
    token_ids = np.array([[301, 2, 0]])
    from_floats = layer(token_ids.astype("float32"))
    np.testing.assert_array_equal(numpy(from_floats), numpy(layer(token_ids)))
    np.testing.assert_array_equal(numpy(implicit_mask(from_floats)), token_ids != 0)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_the_reverse_takes_hidden_states_of_any_precision(policy):
    layer = built(10, 6, dtype=policy)
    hidden = ops.cast(np.eye(6)[None], "bfloat16")
    expected = ops.cast(ops.cast(layer.token_table, layer.compute_dtype), "float32")
    for dtype in ("float32", "bfloat16"):
        logits = layer(ops.cast(hidden, dtype), reverse=True)
        np.testing.assert_array_equal(numpy(logits)[0], numpy(expected).T)


def test_symbolic_shapes_and_dtypes_are_those_of_the_computation():
    layer = PositionalEmbedding(10, 6, dtype="mixed_bfloat16")
    hidden = layer(keras.Input((None,), dtype="int32"))
    assert (hidden.shape, hidden.dtype) == ((None, None, 6), "bfloat16")
    logits = layer(hidden, reverse=True)
    assert (logits.shape, logits.dtype) == ((None, None, 10), "float32")


def test_id_0_is_masked_and_the_mask_reaches_the_logits():
    layer = built(10, 6)
    hidden = layer(TOKEN_IDS)
    np.testing.assert_array_equal(numpy(implicit_mask(hidden)), TOKEN_IDS != 0)
    logits = layer(hidden, reverse=True)
    np.testing.assert_array_equal(numpy(implicit_mask(logits)), TOKEN_IDS != 0)


def test_gradients_of_both_uses_meet_in_the_one_table():
    layer = built(3, 2)
    token_ids = keras.Input((None,), dtype="int32")
    model = keras.Model(token_ids, layer(layer(token_ids), reverse=True))
    model.compile(keras.optimizers.SGD(0.1), loss=lambda labels, logits: ops.mean(logits))
    before = numpy(layer.token_table).copy()
    model.train_on_batch(np.array([[1]]), np.array([[0]]))
    # The loss is the mean of three logits, h . row r with h = sqrt(2) * row 1 + (0, 1).
    # Its gradient is h / 3 for each row (output); for row 1 also sqrt(2) / 3 * sum of rows (input).
    hidden = np.sqrt(2) * before[1] + [0.0, 1.0]
    gradient = np.tile(hidden / 3, (3, 1))
    gradient[1] += np.sqrt(2) / 3 * before.sum(axis=0)
    np.testing.assert_allclose(numpy(layer.token_table), before - 0.1 * gradient, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(vocab_size=0, d_model=4), "vocab_size must be positive; received vocab_size=0"),
        (dict(vocab_size=9, d_model=0), "d_model must be positive; received d_model=0"),
        (
            dict(vocab_size=9, d_model=5),
            "d_model must be even for sinusoidal positions; received d_model=5",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="sin"),
            "positions must be 'sinusoidal' or 'learned'; received 'sin'",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="learned"),
            "max_length must be given for learned positions; received None",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="learned", max_length=0),
            "max_length must be positive; received max_length=0",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError) as error:
        PositionalEmbedding(**arguments)
    assert str(error.value) == message


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    layer = built(10, 6, positions="learned", max_length=3)
    with pytest.raises(ValueError, match="longer than max_length=3; received length 4"):
        layer(TOKEN_IDS)
