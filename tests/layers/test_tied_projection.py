"""TiedProjection: logits from the token table of an embedding, which is always one shared table."""

import tempfile

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy

from keras_transformer import PositionalEmbedding, TiedProjection
from keras_transformer.masks import implicit_mask

TOKEN_IDS = np.array([[5, 3, 8, 0], [1, 0, 2, 9]])
HIDDEN = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")


def tied(*args, dtype=None, **kwargs):
    """An embedding with random weights, and its projection."""
    embedding = reference.built(PositionalEmbedding(*args, dtype=dtype, **kwargs), (None, None))
    return embedding, TiedProjection(embedding, dtype=dtype)


def test_logits_by_hand():
    # (1, 2) . (3, 4) = 11, (1, 2) . (0, -1) = -2, (1, 2) . (5, 0) = 5.
    embedding, projection = tied(3, 2)
    embedding.token_table.assign([[3.0, 4.0], [0.0, -1.0], [5.0, 0.0]])
    assert numpy(projection(np.array([[[1.0, 2.0]]], "float32"))).tolist() == [[[11.0, -2.0, 5.0]]]
    assert numpy(projection.kernel).tolist() == [[3.0, 0.0, 5.0], [4.0, -1.0, 0.0]]


@pytest.mark.parametrize("positions", ["sinusoidal", "tensor2tensor", "learned"])
def test_equals_numpy_and_has_no_weights_of_its_own(positions):
    embedding, projection = tied(10, 6, positions=positions, max_length=4)
    expected = HIDDEN @ reference.array(embedding.token_table).T
    np.testing.assert_allclose(numpy(projection(HIDDEN)), expected, atol=1e-5)
    np.testing.assert_array_equal(numpy(projection.kernel), numpy(embedding.token_table).T)
    assert [id(weight) for weight in projection.weights] == [
        id(weight) for weight in embedding.weights
    ]


def test_a_bias_is_added_and_begins_at_zero():
    embedding, _ = tied(3, 2)
    projection = TiedProjection(embedding, use_bias=True)
    plain = numpy(TiedProjection(embedding)(np.eye(2)[None]))
    np.testing.assert_array_equal(numpy(projection(np.eye(2)[None])), plain)
    assert {weight.name for weight in projection.trainable_variables} == {"tokens", "bias"}
    projection.bias.assign([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        numpy(projection(np.eye(2)[None])), plain + [1.0, -2.0, 0.5], atol=1e-6
    )
    assert TiedProjection(embedding).bias is None


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_the_kernel_follows_the_table(policy):
    # Both, whatever was computed before: nothing is remembered.
    embedding, projection = tied(10, 6, dtype=policy)
    before = numpy(ops.cast(projection(HIDDEN), "float32"))
    embedding.token_table.assign(embedding.token_table * 2.0)
    np.testing.assert_array_equal(numpy(ops.cast(projection(HIDDEN), "float32")), 2 * before)
    np.testing.assert_array_equal(numpy(projection.kernel), numpy(embedding.token_table).T)


@pytest.mark.parametrize("shape", [(6,), (2, 6), (2, 3, 6), (2, 3, 4, 6)])
def test_any_number_of_axes_may_stand_before_the_last(shape):
    embedding, projection = tied(10, 6)
    hidden = np.random.default_rng(1).normal(size=shape).astype("float32")
    logits = projection(hidden)
    assert tuple(logits.shape) == (*shape[:-1], 10)
    expected = hidden @ reference.array(embedding.token_table).T
    np.testing.assert_allclose(numpy(logits), expected, atol=1e-5)
    assert implicit_mask(logits) is None


@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16"]
)
def test_logits_have_the_precision_of_the_computation(policy):
    embedding, projection = tied(10, 6, dtype=policy)
    logits = projection(embedding(TOKEN_IDS))
    assert keras.backend.standardize_dtype(logits.dtype) == projection.compute_dtype
    symbolic = projection(embedding(keras.Input((None,), dtype="int32")))
    assert (symbolic.shape, symbolic.dtype) == ((None, None, 10), projection.compute_dtype)
    # Its own policy counts, not that of the embedding.
    logits = TiedProjection(embedding, dtype="float32")(embedding(TOKEN_IDS))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_bfloat16_logits_are_close_to_float32_ones(policy):
    d_model = 64
    embedding, projection = tied(50, d_model, dtype=policy)
    # A table that bfloat16 holds exactly, so that the two policies have the same one.
    table = numpy(ops.cast(ops.cast(embedding.token_table, "bfloat16"), "float32"))
    embedding.token_table.assign(table)
    hidden = np.random.default_rng(2).normal(size=(4, 7, d_model)).astype("float32")
    exact = hidden @ table.T
    rounded = numpy(ops.cast(projection(hidden), "float32"))
    assert np.any(rounded != exact)
    # bfloat16 keeps 8 binary digits, and rounding or truncating changes a number by at most 2^-8 of
    # it: first each hidden state, and with it one product of every sum, then each logit.
    bounds = 2**-8 * (np.abs(hidden) @ np.abs(table).T + np.abs(rounded))
    assert np.all(np.abs(rounded - exact) <= bounds)
    assert np.sqrt(np.mean((rounded - exact) ** 2)) < 0.01 * np.sqrt(np.mean(exact**2))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_hidden_states_may_have_any_precision(policy):
    embedding, projection = tied(10, 6, dtype=policy)
    hidden = ops.cast(np.eye(6)[None], "bfloat16")
    expected = ops.cast(ops.cast(embedding.token_table, projection.compute_dtype), "float32")
    for dtype in ("float32", "bfloat16"):
        logits = ops.cast(projection(ops.cast(hidden, dtype)), "float32")
        np.testing.assert_array_equal(numpy(logits)[0], numpy(expected).T)


def test_gradients_of_both_uses_meet_in_the_one_table():
    embedding, projection = tied(3, 2)
    token_ids = keras.Input((None,), dtype="int32")
    model = keras.Model(token_ids, projection(embedding(token_ids)))
    assert len(model.trainable_variables) == 1
    model.compile(keras.optimizers.SGD(0.1), loss=lambda labels, logits: ops.mean(logits))
    before = numpy(embedding.token_table).copy()
    model.train_on_batch(np.array([[1]]), np.array([[0]]))
    # The loss is the mean of three logits, h . row r with h = sqrt(2) * row 1 + (0, 1).
    # Its gradient is h / 3 for each row (output); for row 1 also sqrt(2) / 3 * sum of rows (input).
    hidden = np.sqrt(2) * before[1] + [0.0, 1.0]
    gradient = np.tile(hidden / 3, (3, 1))
    gradient[1] += np.sqrt(2) / 3 * before.sum(axis=0)
    np.testing.assert_allclose(numpy(embedding.token_table), before - 0.1 * gradient, atol=1e-6)


@pytest.mark.parametrize(
    "embedding", [PositionalEmbedding(10, 6), keras.layers.Embedding(10, 6)], ids=repr
)
def test_inputs_of_another_width_are_refused(embedding):
    # Twice the width would become twice as many rows, where the size of the batch is not known.
    embedding.build((None, None))
    for inputs in (
        np.ones((2, 3, 12), "float32"),
        keras.Input((3, 12)),
        np.ones((2, 3), "float32"),
    ):
        with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
            TiedProjection(embedding)(inputs)


def test_the_embedding_must_be_built_before_the_call():
    projection = TiedProjection(PositionalEmbedding(10, 6))
    with pytest.raises(ValueError, match="embedding must be built before the projection is called"):
        projection(HIDDEN)


def by_file(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        return keras.saving.load_model(f"{folder}/model.keras")


def by_json(model):
    return keras.models.model_from_json(model.to_json())


each_way = pytest.mark.parametrize("copied", [keras.models.clone_model, by_json, by_file])
each_embedding = pytest.mark.parametrize(
    "make_embedding", [PositionalEmbedding, keras.layers.Embedding]
)


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
@each_embedding
@each_way
def test_a_copied_model_still_shares_the_table(copied, make_embedding, use_bias, sequential):
    token_ids = keras.Input((None,), dtype="int32")
    embedding = make_embedding(10, 6, name="tokens")
    if sequential:
        embedding.build((None, None))
        model = keras.Sequential(
            [token_ids, embedding, TiedProjection(embedding, use_bias, name="logits")]
        )
    else:
        # Another embedding, which is not the projection's.
        hidden = embedding(token_ids) + make_embedding(10, 6)(token_ids)
        model = keras.Model(token_ids, TiedProjection(embedding, use_bias, name="logits")(hidden))
    reference.randomize(model)
    copy = copied(model)
    assert copy.get_layer("logits").embedding is copy.get_layer("tokens") is not embedding
    assert model.get_layer("logits").embedding is embedding
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]
    assert [id(layer) for layer in copy.get_layer("logits")._layers] == [
        id(copy.get_layer("tokens"))
    ]
    if copied is not by_file:
        copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(copy(TOKEN_IDS)), numpy(model(TOKEN_IDS)))


@each_way
@pytest.mark.parametrize("depth", [1, 2])
@each_embedding
def test_a_copied_model_shares_the_table_of_an_inner_model(make_embedding, depth, copied):
    embedding = make_embedding(10, 6, name="tokens")
    inner = embedding
    for level in range(depth):
        token_ids = keras.Input((None,), dtype="int32")
        inner = keras.Model(token_ids, inner(token_ids), name=f"inner_{level}")
    token_ids = keras.Input((None,), dtype="int32")
    model = keras.Model(token_ids, TiedProjection(embedding, name="logits")(inner(token_ids)))
    copy = copied(model)
    inner = copy
    for level in reversed(range(depth)):
        inner = inner.get_layer(f"inner_{level}")
    assert copy.get_layer("logits").embedding is inner.get_layer("tokens") is not embedding
    assert len(copy.weights) == 1
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(copy(TOKEN_IDS)), numpy(model(TOKEN_IDS)))


def test_a_copy_does_not_guess_between_inner_models():
    # Both have a layer of that name: the copy keeps an embedding of its own.
    models = []
    for _ in range(2):
        token_ids = keras.Input((None,), dtype="int32")
        models.append(keras.Model(token_ids, PositionalEmbedding(10, 6, name="tokens")(token_ids)))
    token_ids = keras.Input((None,), dtype="int32")
    hidden = models[0](token_ids) + models[1](token_ids)
    model = keras.Model(
        token_ids, TiedProjection(models[1].get_layer("tokens"), name="logits")(hidden)
    )
    copy = keras.models.clone_model(model)
    assert copy.get_layer("logits").embedding not in [
        inner.get_layer("tokens") for inner in copy.layers[1:3]
    ]


@pytest.mark.parametrize(
    "options",
    [{}, dict(scale_embedding=False, padding_id=3), dict(positions=None, padding_id=None)],
)
def test_what_the_embedding_does_to_its_outputs_does_not_change_the_logits(options):
    embedding, projection = tied(10, 6, **options)
    expected = HIDDEN @ reference.array(embedding.token_table).T
    np.testing.assert_allclose(numpy(projection(HIDDEN)), expected, atol=1e-5)
    mask = implicit_mask(projection(embedding(TOKEN_IDS)))
    if embedding.padding_id is None:
        assert mask is None
    else:
        np.testing.assert_array_equal(numpy(mask), np.not_equal(TOKEN_IDS, embedding.padding_id))


def stock_model(**arguments):
    """Functional: a stock embedding, and logits from its table."""
    token_ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(10, 6, name="tokens", **arguments)
    model = keras.Model(
        token_ids, TiedProjection(embedding, use_bias=True, name="logits")(embedding(token_ids))
    )
    return reference.randomize(model)


def stock_logits(model, token_ids):
    table, bias = (numpy(weight) for weight in model.weights)
    return table[token_ids] @ table.T + bias


def test_a_stock_embedding_equals_numpy():
    model = stock_model(mask_zero=True)
    assert model.output_shape == (None, None, 10) and len(model.weights) == 2
    logits = model(TOKEN_IDS)
    np.testing.assert_allclose(numpy(logits), stock_logits(model, TOKEN_IDS), atol=1e-5)
    np.testing.assert_array_equal(numpy(implicit_mask(logits)), TOKEN_IDS != 0)
    np.testing.assert_array_equal(
        numpy(model.get_layer("logits").kernel), numpy(model.weights[0]).T
    )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_stock_embedding_under_a_mixed_policy(policy):
    model = stock_model(dtype=policy)
    logits = model(TOKEN_IDS)
    # The projection has the global policy, float32.
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = stock_logits(model, TOKEN_IDS)
    np.testing.assert_allclose(numpy(logits), exact, atol=2**-7 * np.abs(exact).max())


def test_a_stock_embedding_with_lora_is_the_sum():
    model = stock_model()
    embedding = model.get_layer("tokens")
    embedding.enable_lora(2)
    embedding.lora_embeddings_b.assign(np.ones(embedding.lora_embeddings_b.shape))
    table = numpy(embedding.embeddings)
    assert np.any(table != numpy(embedding._embeddings))
    expected = table[TOKEN_IDS] @ table.T + numpy(model.get_layer("logits").bias)
    np.testing.assert_allclose(numpy(model(TOKEN_IDS)), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_quantized_stock_embedding_is_scaled(mode):
    model = stock_model()
    embedding, projection = model.get_layer("tokens"), model.get_layer("logits")
    embedding.quantize(mode)
    table = numpy(embedding(np.arange(10)))  # Each of ten tokens as the layer itself gives it.
    expected = table[TOKEN_IDS] @ table.T + numpy(projection.bias)
    np.testing.assert_allclose(numpy(projection(embedding(TOKEN_IDS))), expected, atol=1e-5)


@pytest.mark.parametrize("embedding", [None, "tokens", keras.layers.Dense(3)])
def test_what_has_no_table_is_refused_in_one_line(embedding):
    with pytest.raises(ValueError) as error:
        TiedProjection(embedding)
    message = (
        "embedding must be a PositionalEmbedding or a keras.layers.Embedding; received embedding="
    )
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_a_projection_alone_goes_round_with_an_embedding_of_its_own():
    embedding, projection = tied(10, 6, positions="learned", max_length=4, dtype="mixed_bfloat16")
    copy = TiedProjection.from_config(projection.get_config())
    assert copy.get_config() == projection.get_config()
    assert type(copy.embedding) is PositionalEmbedding and copy.embedding is not embedding
    assert copy.embedding.get_config() == embedding.get_config()
