"""What Keras users do with any model works with our layers, on the backend that is used.

The model has all kinds of layers, so that a test fails if one of them cannot be copied, traced,
exported, and so on.
"""

import copy
import pickle
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MaskedLabelSmoothedCrossentropy,
    MultiHeadAttention,
    PositionalEmbedding,
    PositionalEncoding,
    TiedProjection,
    TransformerConfig,
    build_transformer,
)

BACKEND = keras.backend.backend()
VOCAB_SIZE, WIDTH, LENGTH = 9, 8, 6
RANDOM = np.random.default_rng(0)
TOKEN_IDS = RANDOM.integers(1, VOCAB_SIZE, size=(4, LENGTH)).astype("int32")
TOKEN_IDS[::2, -2:] = 0
FEATURES = RANDOM.normal(size=(4, LENGTH, WIDTH)).astype("float32")


def make_model(dropout=0.0, dtype=None):
    """From token ids (batch, length) to logits (batch, length, VOCAB_SIZE)."""
    arguments = dict(num_heads=2, d_ff=12, dropout=dropout, seed=3, dtype=dtype)
    token_ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(VOCAB_SIZE, WIDTH, dtype=dtype)
    hidden = EncoderLayer(sliding_window=2, relative_positions="rotary", **arguments)(
        embedding(token_ids)
    )
    source = Encoder(2, norm_first=True, activation="silu", **arguments)(hidden)
    decoded = Decoder(1, query_key_norm=True, **arguments)(hidden, source)
    model = keras.Model(token_ids, TiedProjection(embedding, dtype=dtype)(decoded))
    # Biases and scales differ from 0 and 1.
    random = np.random.default_rng(1)
    model.set_weights(
        [weight + random.normal(scale=0.1, size=weight.shape) for weight in model.get_weights()]
    )
    return model


@pytest.fixture(scope="module")
def model():
    """For tests that do not change it."""
    return make_model()


def numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def train(model, **compiled):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, **compiled)
    model.fit(TOKEN_IDS, TOKEN_IDS, batch_size=2, shuffle=False, verbose=0)
    return model.get_weights()


def by_weights_file(model, path):
    other = make_model()
    model.save_weights(path / "model.weights.h5")
    other.load_weights(path / "model.weights.h5")
    return other


def by_keras_file(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


COPIES = {
    "clone_model": lambda model, path: keras.models.clone_model(model),
    "to_json": lambda model, path: keras.models.model_from_json(model.to_json()),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "weights file": by_weights_file,
    "keras file": by_keras_file,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_computes_the_same_with_as_many_weights(name, model, tmp_path):
    copied = COPIES[name](model, tmp_path)
    if name in ("clone_model", "to_json"):
        copied.set_weights(model.get_weights())
    assert len(copied.weights) == len(model.weights)
    np.testing.assert_allclose(numpy(copied(TOKEN_IDS)), numpy(model(TOKEN_IDS)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepcopy", "pickle"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiHeadAttention(
            2, 4, query_key_norm=True, use_gate=True, relative_positions="t5"
        ),
        lambda: FeedForward(12, "silu", gated=True),
        lambda: Decoder(2, 2, 12, norm_first=True, normalization="rms"),
        lambda: PositionalEncoding("learned", max_length=LENGTH),
    ],
    ids=["MultiHeadAttention", "FeedForward", "Decoder", "PositionalEncoding"],
)
def test_a_copy_of_a_layer_is_the_same_and_apart(make, name):
    layer = make()
    inputs = [FEATURES] * (2 if isinstance(layer, (MultiHeadAttention, Decoder)) else 1)
    outputs = numpy(layer(*inputs))
    copied = COPIES[name](layer, None)
    assert type(copied) is type(layer) and copied.get_config() == layer.get_config()
    np.testing.assert_array_equal(numpy(copied(*inputs)), outputs)
    assert len(copied.weights) == len(layer.weights) > 0
    for weight in copied.weights:
        weight.assign(numpy(weight) + 1)
    np.testing.assert_array_equal(numpy(layer(*inputs)), outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepcopy", "pickle"])
def test_a_copied_transformer_decodes(name):
    transformer = build_transformer(
        TransformerConfig(9, 9, num_layers=1, d_model=8, d_ff=12, num_heads=2)
    )
    copied = COPIES[name](transformer, None)
    assert len(copied.weights) == len(transformer.weights)
    logits = []
    for model in (transformer, copied):
        step, state = model.start_decoding(TOKEN_IDS, 1, 4)
        logits.append(numpy(step(np.full((4, 1), 3), np.zeros((4, 1), "int32"), 0, state)[0]))
    np.testing.assert_array_equal(*logits)


def test_masks_are_passed_on_and_padding_changes_nothing(model):
    outputs = model(TOKEN_IDS)
    is_token = TOKEN_IDS != 0
    np.testing.assert_array_equal(ops.convert_to_numpy(outputs._keras_mask), is_token)
    longer = numpy(model(np.pad(TOKEN_IDS, ((0, 0), (0, 3)))))[:, :LENGTH]
    np.testing.assert_allclose(longer[is_token], numpy(outputs)[is_token], atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize(
    "layer_class, arguments, num_inputs",
    [
        (MultiHeadAttention, (2, 4), 2),
        (FeedForward, (12,), 1),
        (EncoderLayer, (2, 12), 1),
        (DecoderLayer, (2, 12), 2),
        (Encoder, (1, 2, 12), 1),
        (Decoder, (1, 2, 12), 2),
        (PositionalEmbedding, (VOCAB_SIZE, WIDTH), 0),
    ],
)
def test_the_symbolic_output_is_like_the_real_one(layer_class, arguments, num_inputs, policy):
    layer = layer_class(*arguments, dtype=policy)
    inputs = [FEATURES] * num_inputs or [TOKEN_IDS]
    real = layer(*inputs)
    symbolic = layer.compute_output_spec(
        *[keras.KerasTensor(array.shape, str(array.dtype)) for array in inputs]
    )
    assert (
        symbolic.shape
        == layer.compute_output_shape(*[array.shape for array in inputs])
        == tuple(real.shape)
    )
    assert symbolic.dtype == keras.backend.standardize_dtype(real.dtype) == layer.compute_dtype


def test_a_layer_may_be_applied_to_every_time_step():
    layer = EncoderLayer(2, 12)
    inputs = np.stack([FEATURES] * 3, axis=1)
    outputs = keras.layers.TimeDistributed(layer)(inputs)
    np.testing.assert_allclose(numpy(outputs[:, 1]), numpy(layer(FEATURES)), atol=1e-5)


@pytest.mark.slow
def test_adapted_layers_learn_and_their_kernels_stay():
    model = make_model()
    adapted = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dense)]
    for layer in adapted:
        layer.enable_lora(2)
    before = [numpy(layer._kernel) for layer in adapted]
    train(model, run_eagerly=True)
    assert len(adapted) == 28
    for layer, kernel in zip(adapted, before):
        np.testing.assert_array_equal(numpy(layer._kernel), kernel)
        assert np.any(numpy(layer.lora_kernel_b) != 0)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "bfloat16", "float64"])
def test_a_model_of_any_dtype_policy_learns(policy):
    if BACKEND == "jax" and policy == "float64":
        pytest.skip("JAX has no float64 unless it is told to")
    model = make_model(dtype=policy)
    before = model.get_weights()
    after = train(model, run_eagerly=BACKEND != "jax")
    assert {weight.dtype for weight in model.weights} == {keras.DTypePolicy(policy).variable_dtype}
    assert all(np.isfinite(weight.astype("float32")).all() for weight in after)
    assert any(np.any(new != old) for new, old in zip(after, before, strict=True))


# ---- The others compile a model, or train it twice
# ------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_repeats_a_training_with_dropout():
    trainings = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        trainings.append(train(make_model(dropout=0.5)))
    for first, second in zip(*trainings, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.skipif(
    BACKEND == "tensorflow", reason="differentiates what runs under a tape, as `fit` does"
)
def test_the_gradient_of_a_pure_function_is_that_of_fit():
    model = make_model()
    loss = MaskedLabelSmoothedCrossentropy(0.1)
    others = [variable.value for variable in model.non_trainable_variables]
    values = [variable.value for variable in model.trainable_variables]

    def loss_of(values):
        logits, _ = model.stateless_call(values, others, TOKEN_IDS, training=True)
        return loss(TOKEN_IDS, logits)

    if BACKEND == "jax":
        import jax

        gradients = jax.jit(jax.grad(loss_of))(values)
    else:
        import torch

        gradients = torch.func.grad(loss_of)([value.detach() for value in values])
    expected = [numpy(value) - 0.1 * numpy(gradient) for value, gradient in zip(values, gradients)]
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.train_on_batch(TOKEN_IDS, TOKEN_IDS)
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(numpy(variable), value, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode, largest_error", [("int8", 0.1), ("int4", 0.5), ("float8", 0.15)])
def test_a_quantized_model_computes_nearly_the_same(mode, largest_error):
    model = make_model()
    exact = numpy(model(TOKEN_IDS))
    model.quantize(mode)
    error = np.linalg.norm(numpy(model(TOKEN_IDS)) - exact) / np.linalg.norm(exact)
    assert 0 < error < largest_error
    if mode == "float8":
        assert all(np.isfinite(weights).all() for weights in train(model))


def run_saved_model(path):
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    return lambda token_ids: loaded.serve(token_ids)


def run_onnx(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path)
    (given,) = session.get_inputs()
    return lambda token_ids: session.run(None, {given.name: token_ids})[0]


def run_litert(path):
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(path)
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not {operation for operation in operations if operation.startswith("Flex")}
    (given,), (returned,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(token_ids):
        interpreter.resize_tensor_input(given["index"], token_ids.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], token_ids)
        interpreter.invoke()
        return interpreter.get_tensor(returned["index"])

    return run


EXPORTS = {
    "saved_model": ("tf_saved_model", run_saved_model),
    "onnx": ("onnx", run_onnx),
    "litert": ("litert", run_litert),
}


@pytest.mark.slow
@pytest.mark.skipif(
    BACKEND != "tensorflow", reason="other backends need further packages to export"
)
@pytest.mark.parametrize("name", EXPORTS)
def test_an_exported_model_takes_batches_and_lengths_of_any_size(name, model, tmp_path):
    format, runner = EXPORTS[name]
    model(TOKEN_IDS)
    path = str(tmp_path / f"model.{'tflite' if name == 'litert' else name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(path, format=format, verbose=False)
    run = runner(path)
    for batch_size, length in ((4, LENGTH), (2, 3), (1, 8)):
        token_ids = np.pad(TOKEN_IDS, ((0, 0), (0, 2)), constant_values=3)[:batch_size, :length]
        np.testing.assert_allclose(np.asarray(run(token_ids)), numpy(model(token_ids)), atol=1e-5)
