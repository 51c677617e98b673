"""PositionalEncoding: positions for features, by hand, in NumPy, and compared with
PositionalEmbedding."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy

from keras_transformer import PositionalEmbedding, PositionalEncoding
from keras_transformer.masks import implicit_mask

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(2, 5, 6)).astype("float32")
POSITIONS = ("sinusoidal", "tensor2tensor", "learned", "rotary")
every_kind = pytest.mark.parametrize("positions", POSITIONS)


def built(positions, width=6, max_length=5, **kwargs):
    return reference.built(
        PositionalEncoding(positions, max_length=max_length, **kwargs), (None, None, width)
    )


def expected(layer, features, position_ids):
    if layer.positions == "rotary":
        return reference.rotated(features, position_ids)
    if layer.positions == "learned":
        return features + reference.array(layer.position_table)[position_ids]
    width = features.shape[-1]
    rows = reference.sinusoids(
        np.max(position_ids) + 1, width, width - 2 if layer.positions == "tensor2tensor" else None
    )
    return features + rows[position_ids]


def test_sinusoids_are_added_by_hand():
    # d_model 2: sin pos and cos pos.
    features = np.array([[[1.0, 2.0], [3.0, 4.0]]], "float32")
    np.testing.assert_allclose(
        numpy(PositionalEncoding()(features)), [[[1.0, 3.0], [3.8414710, 4.5403023]]], rtol=1e-6
    )
    # sqrt(2) * 3 + sin 1 and sqrt(2) * 4 + cos 1.
    scaled = PositionalEncoding(scale_embedding=True)(features)
    np.testing.assert_allclose(numpy(scaled)[0, 1], [5.0841117, 6.1971566], rtol=1e-6)


def test_rotation_by_hand():
    # Width 4 at position 1: features 0 and 2 turn by 1, features 1 and 3 by 1/100.
    features = np.array([[[1.0, 1.0, 0.0, 0.0]] * 2], "float32")
    np.testing.assert_allclose(
        numpy(PositionalEncoding("rotary")(features)),
        [[[1.0, 1.0, 0.0, 0.0], [0.54030231, 0.99995000, 0.84147098, 0.00999983]]],
        atol=1e-6,
    )


@every_kind
def test_equals_numpy(positions):
    layer = built(positions)
    np.testing.assert_allclose(
        numpy(layer(FEATURES)), expected(layer, FEATURES, np.arange(5)), atol=1e-5
    )
    position_ids = np.array([[4, 0, 2, 2, 1], [0, 1, 2, 3, 4]])
    outputs = layer(FEATURES, position_ids=position_ids)
    np.testing.assert_allclose(numpy(outputs), expected(layer, FEATURES, position_ids), atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
@pytest.mark.parametrize("scale_embedding", [False, True])
def test_an_embedding_and_positions_equal_a_positional_embedding(positions, scale_embedding):
    token_ids = np.array([[5, 3, 8, 0], [1, 0, 2, 9]])
    whole = PositionalEmbedding(10, 6, positions, max_length=4, scale_embedding=scale_embedding)
    reference.built(whole, (None, None))
    embedding = keras.layers.Embedding(10, 6, mask_zero=True)
    encoding = built(positions, max_length=4, scale_embedding=scale_embedding)
    embedding.build((None, None))
    embedding.set_weights([numpy(whole.token_table)])
    if positions == "learned":
        encoding.position_table.assign(whole.position_table)
    two, one = encoding(embedding(token_ids)), whole(token_ids)
    np.testing.assert_array_equal(numpy(two), numpy(one))
    np.testing.assert_array_equal(numpy(implicit_mask(two)), numpy(implicit_mask(one)))


@pytest.mark.parametrize("as_tensor", [False, True])
@every_kind
def test_steps_from_a_start_index_equal_rows_of_one_call(positions, as_tensor):
    layer = built(positions)
    whole = numpy(layer(FEATURES))
    for start in range(4):
        start_index = ops.convert_to_tensor(start) if as_tensor else start
        rows = layer(FEATURES[:, start : start + 2], start_index=start_index)
        np.testing.assert_allclose(numpy(rows), whole[:, start : start + 2], atol=1e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_encode_returns_what_is_added(positions):
    layer = built(positions)
    vectors = numpy(layer.encode(np.array([[0, 4], [3, 1]])))
    assert vectors.shape == (2, 2, 6) and vectors.dtype == "float32"
    whole = numpy(layer(np.zeros((1, 5, 6), "float32")))[0]
    np.testing.assert_allclose(vectors, whole[[[0, 4], [3, 1]]], atol=1e-6)


def test_rotary_positions_have_no_vectors():
    with pytest.raises(ValueError, match="encode is not available with positions='rotary'"):
        built("rotary").encode(np.arange(3))


@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16"]
)
@every_kind
def test_positions_are_computed_in_float32_under_every_policy(positions, policy):
    # bfloat16 has 8 bits: to it 257 and 258 are one number.
    features = RANDOM.normal(size=(1, 300, 8)).astype("float32")
    layer, exact = built(positions, 8, 300, dtype=policy), built(positions, 8, 300, dtype="float32")
    for mine, other in zip(layer.variables, exact.variables, strict=True):
        mine.assign(other)
        other.assign(ops.cast(mine, "float32"))
    outputs = layer(features)
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    np.testing.assert_array_equal(
        numpy(outputs), numpy(ops.cast(exact(features), layer.compute_dtype))
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_float64_keeps_its_precision(positions):
    features = ops.convert_to_tensor(RANDOM.normal(size=(1, 5, 6)), "float64")
    outputs = numpy(built(positions, dtype="float64")(features))
    # JAX has no float64 unless it is told to.
    assert np.any(outputs != outputs.astype("float32")) == (keras.backend.backend() != "jax")


@every_kind
def test_a_model_of_any_length_is_saved_and_loads(positions, tmp_path):
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, PositionalEncoding(positions, max_length=5)(inputs))
    assert model.output_shape == (None, None, 6)
    reference.randomize(model)
    before = [numpy(model(FEATURES[:, :length])) for length in (1, 5)]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for outputs, length in zip(before, (1, 5)):
        np.testing.assert_array_equal(numpy(loaded(FEATURES[:, :length])), outputs)
    np.testing.assert_allclose(model.predict(FEATURES, verbose=0), before[1], atol=1e-6)


def test_the_table_of_learned_positions_begins_is_regularized_and_constrained_as_asked():
    layer = PositionalEncoding(
        "learned",
        max_length=5,
        embeddings_initializer=keras.initializers.Constant(-2.0),
        embeddings_regularizer="l2",
        embeddings_constraint="non_neg",
    )
    layer.build((None, None, 6))
    assert np.all(numpy(layer.position_table) == -2)
    # 30 numbers, of which 0.01 times the square is added.
    assert [float(numpy(loss)) for loss in layer.losses] == [pytest.approx(30 * 0.04)]
    model = keras.Sequential([layer])
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
    model.train_on_batch(FEATURES, FEATURES)
    assert np.all(numpy(layer.position_table) == 0)


def test_without_an_initializer_the_table_has_known_initial_values():
    keras.utils.set_random_seed(0)
    layer = PositionalEncoding("learned", max_length=300)
    layer.build((None, None, 100))
    assert numpy(layer.position_table).std() == pytest.approx(0.02, rel=0.02)


@every_kind
def test_the_axes_before_the_length_share_the_positions(positions):
    layer = built(positions)
    features = RANDOM.normal(size=(2, 3, 5, 6)).astype("float32")
    outputs = numpy(layer(features))
    assert outputs.shape == features.shape
    for i in range(3):
        np.testing.assert_array_equal(outputs[:, i], numpy(layer(features[:, i])))
    position_ids = np.array([[4, 0, 2, 2, 1], [0, 1, 2, 3, 4]])
    outputs = numpy(layer(features, position_ids=position_ids))
    for i in range(3):
        alone = layer(features[:, i], position_ids=position_ids)
        np.testing.assert_array_equal(outputs[:, i], numpy(alone))
    later = numpy(layer(features[:, :, :2], start_index=3))
    np.testing.assert_array_equal(later[:, 1], numpy(layer(features[:, 1, :2], start_index=3)))
    # Of rank 5 too.
    whole = numpy(layer(features[:, :, None]))
    np.testing.assert_array_equal(whole[:, :, 0], numpy(layer(features)))


def test_a_model_may_have_more_axes():
    inputs = keras.Input((3, None, 6))
    model = keras.Model(inputs, PositionalEncoding()(inputs))
    assert model.output_shape == (None, 3, None, 6)
    features = RANDOM.normal(size=(2, 3, 5, 6)).astype("float32")
    expected = numpy(PositionalEncoding()(features))
    np.testing.assert_allclose(numpy(model(features)), expected, atol=1e-6)


def test_learned_positions_are_the_only_weights():
    assert [tuple(variable.shape) for variable in built("learned").trainable_variables] == [(5, 6)]
    for positions in ("sinusoidal", "tensor2tensor", "rotary"):
        assert built(positions).variables == []


@every_kind
def test_dropout_drops_in_training_alone(positions):
    layer = built(positions, dropout=0.5)
    outputs = numpy(layer(FEATURES, training=True))
    kept = outputs != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(outputs[kept], 2 * numpy(layer(FEATURES))[kept], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 6)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_token_ids_are_refused_in_one_line(shape, dtype, symbolic):
    inputs = keras.Input(batch_shape=shape, dtype=dtype) if symbolic else np.ones(shape, dtype)
    with pytest.raises(ValueError) as error:
        PositionalEncoding()(inputs)
    assert str(error.value) == (
        f"inputs must be floats of shape (batch, length, d_model); received {dtype} of shape "
        f"{shape}. "
        "For token ids, use PositionalEmbedding"
    )


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("shape", [(5, 6), (6,)])
def test_a_lower_rank_is_refused_as_keras_does(shape, is_built):
    layer = built("sinusoidal") if is_built else PositionalEncoding()
    with pytest.raises(ValueError, match=f"expected min_ndim=3, found ndim={len(shape)}"):
        layer(np.ones(shape, "float32"))


def test_another_width_is_refused_as_keras_does():
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
        built("sinusoidal")(np.ones((2, 5, 8), "float32"))


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "rotary"])
def test_an_odd_width_is_refused_in_one_line(positions):
    with pytest.raises(ValueError) as error:
        PositionalEncoding(positions)(np.ones((2, 5, 7), "float32"))
    assert (
        str(error.value) == f"d_model must be even if positions={positions!r}; received d_model=7"
    )


def test_an_unknown_width_is_refused_in_one_line():
    with pytest.raises(ValueError) as error:
        PositionalEncoding()(keras.Input((5, None)))
    assert (
        str(error.value)
        == "inputs must have a known width; received inputs of shape (None, 5, None)"
    )


def test_learned_positions_take_any_width():
    assert built("learned", 7)(np.ones((2, 5, 7), "float32")).shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(positions=None),
            "positions must be one of sinusoidal, tensor2tensor, learned, rotary; received "
            "positions=None",
        ),
        (
            dict(positions="learned"),
            "max_length must be given if positions='learned'; received max_length=None",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError) as error:
        PositionalEncoding(**arguments)
    assert str(error.value) == message


@pytest.mark.parametrize("inputs", [FEATURES, keras.Input((5, 6))], ids=["numbers", "symbolic"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(start_index=1),
            "inputs must have at most max_length=5 positions; received 5 positions starting at start_index=1",
        ),
        (dict(start_index=-1), "start_index must be at least 0; received start_index=-1"),
        (
            dict(start_index=2, position_ids=np.array([[0, 1, 2, 0, 1]])),
            "position_ids and start_index must not both be given; received start_index=2",
        ),
    ],
)
def test_positions_that_make_no_sense_are_refused(arguments, message, inputs):
    with pytest.raises(ValueError) as error:
        built("learned")(inputs, **arguments)
    assert message in str(error.value).replace("\x1b[0m", "").splitlines()[2]
