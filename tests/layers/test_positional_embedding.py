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


def positions_alone(position_ids, d_model, **kwargs):
    layer = PositionalEmbedding(2, d_model, **kwargs)
    layer.build((None, None))
    layer.token_table.assign(np.zeros((2, d_model)))
    token_ids = np.ones((1, len(position_ids)), "int32")
    return numpy(layer(token_ids, position_ids=np.array([position_ids])))[0]


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


def test_sinusoids_of_tensor2tensor_end_at_a_frequency_of_1_in_10000():
    # d_model 4: 10000^0 = 1 and 10000^1. In NumPy as that program computes them: sines, then cosines.
    places = np.arange(5000)
    rates = np.exp(-np.arange(4) * np.log(10_000) / 3)
    angles = places[:, None] * rates
    computed = positions_alone(list(places), d_model=8, positions="tensor2tensor")
    np.testing.assert_allclose(computed[:, 0::2], np.sin(angles), atol=2e-3)
    np.testing.assert_allclose(computed[:, 1::2], np.cos(angles), atol=2e-3)
    shortest = positions_alone([3], d_model=2, positions="tensor2tensor")
    np.testing.assert_allclose(shortest, [[np.sin(3), np.cos(3)]], atol=1e-6)


def test_sinusoids_equal_numpy():
    # An angle of up to 1000 in float32 is off by up to 3e-5, and its powers of 10000 add as much.
    np.testing.assert_allclose(positions_alone(list(range(1000)), d_model=64), reference.sinusoids(1000, 64), atol=2e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_sums_are_made_in_float32_under_a_mixed_policy(positions):
    arguments = dict(vocab_size=10, d_model=16, positions=positions, max_length=300)
    mixed = built(**arguments, dtype="mixed_bfloat16")(np.full((1, 300), 7))
    exact = built(**arguments, dtype="float32")(np.full((1, 300), 7))
    np.testing.assert_array_equal(numpy(mixed), numpy(ops.cast(exact, "bfloat16")))


def test_positions_above_256_differ_under_a_mixed_policy():
    # bfloat16 has 8 bits: to it 257 and 258 are one number.
    neighbors = positions_alone([257, 258], d_model=16, dtype="mixed_bfloat16")
    assert np.any(neighbors[0] != neighbors[1])


def test_token_embeddings_are_multiplied_by_the_root_of_d_model():
    # By hand: 3 * sqrt(4) + sin 0 = 6 and 3 * sqrt(4) + cos 0 = 7.
    layer = built(2, 4)
    layer.token_table.assign(np.full((2, 4), 3.0))
    np.testing.assert_allclose(numpy(layer(np.array([[1]]))), [[[6.0, 7.0, 6.0, 7.0]]], rtol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_equals_numpy(positions):
    layer = built(10, 6, positions=positions, max_length=4)
    expected = reference.positional_embedding(layer, TOKEN_IDS)
    np.testing.assert_allclose(numpy(layer(TOKEN_IDS)), expected, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_positions_may_be_given(positions):
    layer = built(10, 6, positions=positions, max_length=4)
    whole = numpy(layer(TOKEN_IDS))
    for position in range(4):
        column = layer(TOKEN_IDS[:, position : position + 1], position_ids=np.array([[position]]))
        np.testing.assert_allclose(numpy(column), whole[:, position : position + 1], atol=1e-6)
    backwards = layer(TOKEN_IDS[:, ::-1], position_ids=np.array([[3, 2, 1, 0]]))
    np.testing.assert_allclose(numpy(backwards), whole[:, ::-1], atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16"])
def test_outputs_have_the_precision_of_the_computation(policy):
    layer = built(10, 6, dtype=policy)
    assert keras.backend.standardize_dtype(layer(TOKEN_IDS).dtype) == layer.compute_dtype
    assert {variable.dtype for variable in layer.variables} == {layer.variable_dtype}


@pytest.mark.parametrize(
    ("positions", "shapes"), [("sinusoidal", [(10, 6)]), ("tensor2tensor", [(10, 6)]), ("learned", [(10, 6), (4, 6)])]
)
def test_the_weights_are_a_table_of_tokens_and_one_of_learned_positions(positions, shapes):
    layer = built(10, 6, positions=positions, max_length=4)
    assert [tuple(variable.shape) for variable in layer.trainable_variables] == shapes
    assert layer.token_table.shape == (10, 6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_ids_may_come_as_floats(policy):
    # Keras hands floats to models that were given no dtype. bfloat16 has no 301.
    layer = built(400, 6, dtype=policy)
    token_ids = np.array([[301, 2, 0]])
    from_floats = layer(token_ids.astype("float32"))
    np.testing.assert_array_equal(numpy(from_floats), numpy(layer(token_ids)))
    np.testing.assert_array_equal(numpy(implicit_mask(from_floats)), token_ids != 0)


def test_symbolic_shapes_and_dtypes_are_those_of_the_computation():
    layer = PositionalEmbedding(10, 6, dtype="mixed_bfloat16")
    hidden = layer(keras.Input((None,), dtype="int32"))
    assert (hidden.shape, hidden.dtype) == ((None, None, 6), "bfloat16")


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_id_0_is_masked(positions):
    hidden = built(10, 6, positions=positions, max_length=4)(TOKEN_IDS)
    np.testing.assert_array_equal(numpy(implicit_mask(hidden)), TOKEN_IDS != 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(vocab_size=0, d_model=4), "vocab_size must be positive; received vocab_size=0"),
        (dict(vocab_size=9, d_model=0), "d_model must be positive; received d_model=0"),
        (
            dict(vocab_size=9, d_model=5),
            "d_model must be even if positions='sinusoidal'; received d_model=5",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="sin"),
            "positions must be one of sinusoidal, tensor2tensor, learned; received positions='sin'",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="learned"),
            "max_length must be given if positions='learned'; received max_length=None",
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
    with pytest.raises(ValueError, match="token_ids must have at most max_length=3 positions; received 4"):
        layer(TOKEN_IDS)
