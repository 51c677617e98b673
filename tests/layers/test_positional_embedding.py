"""PositionalEmbedding against section 3.5's formula, worked out by hand and in NumPy."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy

from keras_transformer import PositionalEmbedding
from keras_transformer.masks import implicit_mask

TOKEN_IDS = np.array([[5, 3, 8, 0], [1, 0, 2, 9]])


def built(*args, **kwargs):
    return reference.built(PositionalEmbedding(*args, **kwargs), (None, None))


def positions_alone(position_ids, d_model, **kwargs):
    layer = built(2, d_model, **kwargs)
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
    # d_model 4: 10000^0 = 1 and 10000^1. In NumPy as that program computes them: sines, then
    # cosines.
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
    np.testing.assert_allclose(
        positions_alone(list(range(1000)), d_model=64), reference.sinusoids(1000, 64), atol=2e-4
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_sums_are_made_in_float32_under_a_mixed_policy(positions):
    arguments = dict(vocab_size=10, d_model=16, positions=positions, max_length=300)
    mixed = built(**arguments, dtype="mixed_bfloat16")(np.full((1, 300), 7))
    exact = built(**arguments, dtype="float32")(np.full((1, 300), 7))
    np.testing.assert_array_equal(numpy(mixed), numpy(ops.cast(exact, "bfloat16")))


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


@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16"]
)
def test_outputs_have_the_precision_of_the_computation(policy):
    layer = built(10, 6, dtype=policy)
    assert keras.backend.standardize_dtype(layer(TOKEN_IDS).dtype) == layer.compute_dtype
    assert {variable.dtype for variable in layer.variables} == {layer.variable_dtype}


@pytest.mark.parametrize(
    ("positions", "shapes"),
    [("sinusoidal", [(10, 6)]), ("tensor2tensor", [(10, 6)]), ("learned", [(10, 6), (4, 6)])],
)
def test_the_weights_are_a_table_of_tokens_and_one_of_learned_positions(positions, shapes):
    layer = built(10, 6, positions=positions, max_length=4)
    assert [tuple(variable.shape) for variable in layer.trainable_variables] == shapes
    assert layer.token_table.shape == (10, 6)


def tables(layer):
    return [numpy(variable) for variable in layer.trainable_variables]


def test_tables_begin_as_asked():
    layer = PositionalEmbedding(9, 6, "learned", max_length=4, embeddings_initializer="ones")
    layer.build((None, None))
    for table in tables(layer):
        assert np.all(table == 1)
    # sqrt(6) + 1.
    np.testing.assert_allclose(numpy(layer(TOKEN_IDS[:1]))[0, 0], np.full(6, 3.4494898), rtol=1e-6)

    def halves(shape, dtype=None):
        return ops.full(shape, 0.5, dtype)

    layer = PositionalEmbedding(9, 6, "learned", max_length=4, embeddings_initializer=halves)
    layer.build((None, None))
    assert all(np.all(table == 0.5) for table in tables(layer))


def test_an_initializer_with_a_seed_draws_other_numbers_for_tokens_than_for_positions():
    first, same = (
        PositionalEmbedding(
            *(9, 6, "learned"),
            max_length=9,
            embeddings_initializer=keras.initializers.RandomNormal(seed=3),
        )
        for _ in range(2)
    )
    for layer in (first, same):
        layer.build((None, None))
    for table, other in zip(tables(first), tables(same), strict=True):
        np.testing.assert_array_equal(table, other)
    assert np.all(tables(first)[0] != tables(first)[1])


def test_without_an_initializer_tables_have_known_initial_values():
    keras.utils.set_random_seed(0)
    layer = PositionalEmbedding(400, 100, "learned", max_length=300)
    layer.build((None, None))
    tokens, positions = tables(layer)
    # Of 30,000 numbers or more, the deviation is off by up to 2 percent.
    assert tokens.std() == pytest.approx(100**-0.5, rel=0.02)
    assert positions.std() == pytest.approx(0.02, rel=0.02)
    assert layer.get_config()["embeddings_initializer"] is None


def test_tables_are_regularized_and_constrained():
    layer = built(
        *(10, 6, "learned"),
        max_length=4,
        embeddings_regularizer=keras.regularizers.L2(0.5),
        embeddings_constraint="non_neg",
    )
    expected = [0.5 * np.sum(table**2) for table in tables(layer)]
    np.testing.assert_allclose([float(numpy(loss)) for loss in layer.losses], expected, rtol=1e-5)
    assert any(np.any(table < 0) for table in tables(layer))
    model = keras.Sequential([layer])
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    model.train_on_batch(TOKEN_IDS, np.zeros((2, 4, 6)))
    for table in tables(layer):
        assert np.all(table >= 0) and np.any(table > 0)


@pytest.mark.parametrize(
    "make_input", [lambda: [], lambda: [keras.Input((None,))]], ids=["without an input", "float"]
)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_ids_may_be_floats_that_keras_makes(policy, make_input):
    # bfloat16 has no 301: without an input, `Sequential` makes one of the first layer's
    # computation.
    vocab_size = 200 if policy == "mixed_bfloat16" and not make_input() else 400
    layer = built(vocab_size, 6, dtype=policy)
    model = keras.Sequential([*make_input(), layer])
    token_ids = np.array([[vocab_size - 99, 2, 0]])
    from_floats = model(token_ids)
    np.testing.assert_array_equal(numpy(from_floats), numpy(layer(token_ids)))
    np.testing.assert_array_equal(numpy(implicit_mask(from_floats)), token_ids != 0)
    loaded = keras.models.model_from_json(model.to_json())
    loaded.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(loaded(token_ids)), numpy(from_floats))


@pytest.mark.parametrize(
    ("shape", "symbolic"),
    [((2, 5), False), ((2, 5, 4), False), ((2,), False), ((2, 5, 4), True), ((2,), True)],
)
def test_floats_are_refused_in_one_line(shape, symbolic):
    inputs = keras.Input(batch_shape=shape) if symbolic else np.ones(shape, "float32")
    with pytest.raises(ValueError) as error:
        PositionalEmbedding(10, 6)(inputs)
    assert str(error.value) == (
        f"token_ids must be integers of shape (batch, length); received float32 of shape {shape}. "
        "For features, use PositionalEncoding"
    )


def test_floats_are_refused_where_a_model_is_trained():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = PositionalEmbedding(10, 6)

        def call(self, inputs):
            return self.embedding(inputs)

    model = Model()
    model.compile("sgd", "mse")
    with pytest.raises(
        ValueError, match="token_ids must be integers .* received float32 .* use PositionalEncoding"
    ):
        model.fit(np.ones((2, 5), "float32"), np.ones((2, 5, 6)), verbose=0)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_ids_may_be_any_integers(dtype):
    layer = built(10, 6)
    np.testing.assert_array_equal(numpy(layer(TOKEN_IDS.astype(dtype))), numpy(layer(TOKEN_IDS)))


def test_without_positions_and_scale_it_is_a_table_by_hand():
    layer = built(3, 3, positions=None, scale_embedding=False)
    layer.token_table.assign([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    assert numpy(layer(np.array([[2, 0]]))).tolist() == [[[7.0, 8.0, 9.0], [1.0, 2.0, 3.0]]]
    assert numpy(layer(np.array([[2, 0]]), start_index=5)).tolist() == [
        [[7.0, 8.0, 9.0], [1.0, 2.0, 3.0]]
    ]
    assert [variable.name for variable in layer.variables] == ["tokens"]
    np.testing.assert_array_equal(numpy(layer.encode_positions(np.array([0, 4]))), np.zeros((2, 3)))
    # 9 * sqrt(3).
    scaled = built(3, 3, positions=None)
    scaled.token_table.assign(layer.token_table)
    np.testing.assert_allclose(numpy(scaled(np.array([[2]])))[0, 0, 2], 15.588457, rtol=1e-6)


@pytest.mark.parametrize("padding_id", [0, 3, None])
def test_padding_is_masked(padding_id):
    layer = built(10, 6, padding_id=padding_id)
    mask = implicit_mask(layer(TOKEN_IDS))
    if padding_id is None:
        assert mask is None
    else:
        np.testing.assert_array_equal(numpy(mask), np.not_equal(TOKEN_IDS, padding_id))


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_steps_from_a_start_index_equal_rows_of_one_call(positions, as_tensor):
    layer = built(10, 6, positions=positions, max_length=4)
    whole = numpy(layer(TOKEN_IDS))
    for start in range(3):
        start_index = ops.convert_to_tensor(start) if as_tensor else start
        rows = layer(TOKEN_IDS[:, start : start + 2], start_index=start_index)
        np.testing.assert_allclose(numpy(rows), whole[:, start : start + 2], atol=1e-6)


def test_a_start_index_may_be_an_input_of_a_model():
    token_ids, start = (
        keras.Input((None,), dtype="int32"),
        keras.Input(batch_shape=(), dtype="int32"),
    )
    layer = built(10, 6)
    model = keras.Model([token_ids, start], layer(token_ids, start_index=start))
    rows = model([TOKEN_IDS[:, 1:], np.array(1)])
    np.testing.assert_allclose(numpy(rows), numpy(layer(TOKEN_IDS))[:, 1:], atol=1e-6)


def test_given_positions_may_be_an_input_of_a_compiled_model():
    token_ids, position_ids = (
        keras.Input((None,), dtype="int32"),
        keras.Input((None,), dtype="int32"),
    )
    layer = built(10, 6, positions="learned", max_length=4)
    model = keras.Model([token_ids, position_ids], layer(token_ids, position_ids=position_ids))
    backwards = np.array([[3, 2, 1, 0]] * 2)
    expected = numpy(layer(TOKEN_IDS, position_ids=backwards))
    np.testing.assert_allclose(
        model.predict([TOKEN_IDS, backwards], verbose=0), expected, atol=1e-6
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(vocab_size=9, d_model=5),
            "d_model must be even if positions='sinusoidal'; received d_model=5",
        ),
        (
            dict(vocab_size=9, d_model=4, positions="learned"),
            "max_length must be given if positions='learned'; received max_length=None",
        ),
        (
            dict(vocab_size=9, d_model=4, padding_id=9),
            "padding_id must be below vocab_size=9; received padding_id=9",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError) as error:
        PositionalEmbedding(**arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "token_ids", [TOKEN_IDS, keras.Input((4,), dtype="int32")], ids=["numbers", "symbolic"]
)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "token_ids must have at most max_length=3 positions; received 4"),
        (
            dict(start_index=2),
            "token_ids must have at most max_length=3 positions; received 4 positions starting at start_index=2",
        ),
        (dict(start_index=-1), "start_index must be at least 0; received start_index=-1"),
        (
            dict(start_index=2, position_ids=np.array([[0, 1, 2, 0]])),
            "position_ids and start_index must not both be given; received start_index=2",
        ),
    ],
)
def test_positions_that_make_no_sense_are_refused(arguments, message, token_ids):
    layer = built(10, 6, positions="learned", max_length=3)
    with pytest.raises(ValueError) as error:
        layer(token_ids, **arguments)
    assert message in str(error.value).replace("\x1b[0m", "").splitlines()[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(position_ids=np.array([[0, 3]])),
            "position_ids must be below max_length=3; received position 3",
        ),
        (
            dict(start_index=np.array(2)),
            "token_ids must have at most max_length=3 positions; received 2 positions starting at",
        ),
    ],
)
def test_given_positions_beyond_the_learned_ones_are_refused(arguments, message):
    layer = built(10, 6, positions="learned", max_length=3)
    by_itself = keras.backend.backend() == "torch"
    with pytest.raises(
        IndexError if by_itself else ValueError,
        match="index out of range" if by_itself else message,
    ):
        layer(TOKEN_IDS[:, :2], **arguments)


def test_both_kinds_of_positions_are_refused_without_learned_ones_too():
    with pytest.raises(ValueError, match="position_ids and start_index must not both be given"):
        built(10, 6)(TOKEN_IDS, position_ids=np.array([[0, 1, 2, 3]]), start_index=1)


@pytest.mark.parametrize("shape", [(2, 4, 1), (4,)])
def test_ids_of_another_rank_are_refused(shape):
    # Positions of (1, 4, width) would make (2, 4, 4, width) of (2, 4, 1, width).
    with pytest.raises(ValueError, match=f"expected ndim=2, found ndim={len(shape)}"):
        built(10, 6)(np.ones(shape, "int32"))
