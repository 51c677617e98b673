"""What Keras users do with any layer, tried with ours, Keras' own and KerasHub's.

python tests/layers/keras_idioms.py FAMILY [IDIOM...] [--layers NAME...]
    the results on KERAS_BACKEND, each as a line of JSON with the seconds that processors worked for it;
    FAMILY is ours, stock or keras_hub
python tests/layers/keras_idioms.py --table [FILE...]
    a table of such lines; without files of all families on all backends, each in a process of its own
"""

import argparse
import contextlib
import copy
import functools
import importlib.util
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import time
import warnings

BACKENDS = ("tensorflow", "jax", "torch")
FAMILIES = {"stock": "Keras", "keras_hub": "KerasHub", "ours": "ours"}
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")

if __name__ == "__main__":
    # Before the backend is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=2")
    # Results alone go to the standard output: what exporters print, also from C++, joins the errors.
    OUTPUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

import keras  # noqa: E402
import numpy as np  # noqa: E402
from idiom_subjects import (  # noqa: E402
    FEATURES,
    LENGTH,
    OURS,
    STOCK,
    TOKEN_IDS,
    VOCAB_SIZE,
    WIDTH,
    keras_hub_subjects,
)
from keras import ops  # noqa: E402

if BACKEND == "jax":
    import jax
elif BACKEND == "torch":
    import torch
else:
    import tensorflow as tf

IDIOMS = {}


class NotApplicable(Exception):
    """The idiom means nothing for this layer or backend, or needs a package that is not installed."""


def idiom(title):
    """Registers a function of a subject that raises an exception if the idiom does not work."""

    def register(function):
        IDIOMS[function.__name__] = (title, function)
        return function

    return register


def numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def assert_close(one, other, atol=1e-5):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=atol)


def assert_same_model(copied, model, inputs=TOKEN_IDS, atol=1e-5):
    assert len(copied.weights) == len(model.weights), "weights are no longer shared, or are missing"
    assert_close(numpy(copied(inputs)), numpy(model(inputs)), atol)


def scaled(model):
    """A model whose logits are not all alike, since biases and scales differ from 0 and 1."""
    generator = np.random.default_rng(1)
    model.set_weights([weight + generator.normal(scale=0.1, size=weight.shape) for weight in model.get_weights()])
    return model


def trained(model, x=TOKEN_IDS, y=TOKEN_IDS, **compiled):
    compiled = {"optimizer": keras.optimizers.SGD(0.1), **compiled}
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **compiled)
    history = model.fit(x, y, batch_size=2, epochs=1, shuffle=False, verbose=0).history
    assert np.isfinite(history["loss"]).all(), "the loss is not finite"
    return model


def needs(*packages):
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise NotApplicable(f"needs {', '.join(missing)}")


# Configurations, copies and files


@idiom("`get_config`, `from_config`, JSON")
def config_round_trip(subject):
    layer = subject.make(name="layer")
    config = json.loads(json.dumps(layer.get_config()))
    assert json.loads(json.dumps(type(layer).from_config(config).get_config())) == config


@idiom("`to_json`, `model_from_json`")
def to_json(subject):
    model = scaled(subject.model())
    copied = keras.models.model_from_json(model.to_json())
    copied.set_weights(model.get_weights())
    assert_same_model(copied, model)


@idiom("`clone_model`")
def clone_model(subject):
    model = scaled(subject.model())
    copied = keras.models.clone_model(model)
    copied.set_weights(model.get_weights())
    assert_same_model(copied, model)


@idiom("`copy.deepcopy`")
def deepcopy(subject):
    model = scaled(subject.model())
    assert_same_model(copy.deepcopy(model), model)


@idiom("`pickle`")
def pickled(subject):
    model = scaled(subject.model())
    assert_same_model(pickle.loads(pickle.dumps(model)), model)


@idiom("`.keras` files")
def keras_file(subject, directory):
    model = scaled(subject.model())
    model.save(directory / "model.keras")
    assert_same_model(keras.saving.load_model(directory / "model.keras"), model)


@idiom("`.weights.h5` into another instance")
def weights_file(subject, directory):
    model, other = scaled(subject.model()), subject.model()
    model.save_weights(directory / "model.weights.h5")
    other.load_weights(directory / "model.weights.h5")
    assert_same_model(other, model)


@idiom("`state_dict` into another instance (PyTorch)")
def state_dict(subject):
    if BACKEND != "torch":
        raise NotApplicable("PyTorch only")
    model, other = scaled(subject.model()), subject.model()
    other.load_state_dict(model.state_dict())
    assert_same_model(other, model)


# Where a layer stands


@idiom("`Sequential`")
def sequential(subject):
    if subject.inputs > 1:
        raise NotApplicable("several inputs")
    first = [keras.layers.Dense(WIDTH)] if subject.inputs else []
    model = keras.Sequential([*first, subject.make()])
    assert model(subject.example()).shape[:2] == (4, LENGTH)


@idiom("`TimeDistributed`")
def time_distributed(subject):
    if subject.inputs > 1:
        raise NotApplicable("several inputs")
    layer = subject.make()
    example = np.stack([subject.example()] * 3, axis=1)  # (batch, 3, length, ...)
    outputs = keras.layers.TimeDistributed(layer)(example)
    assert_close(numpy(outputs[:, 1]), numpy(layer(subject.example())))
    symbolic = keras.layers.TimeDistributed(subject.make())(keras.Input(example.shape[1:], dtype=str(example.dtype)))
    assert symbolic.shape == (None, *outputs.shape[1:]), f"shape {symbolic.shape}"


@idiom("KerasTensor operations in between")
def keras_tensor_operations(subject):
    if not subject.inputs:
        token_ids = keras.Input((None,), dtype="int32")
        model = keras.Model(token_ids, ops.tanh(subject.make()(ops.maximum(token_ids, 1)) * 2.0))
        assert model(TOKEN_IDS).shape == (4, LENGTH, WIDTH)
        return
    features = keras.Input((None, WIDTH))
    model = keras.Model(features, ops.tanh(subject.call(subject.make(), features * 0.5 + 1.0)))
    assert_close(numpy(model(FEATURES)), numpy(model(FEATURES.copy())))


@idiom("symbolic batch and length")
def symbolic_sizes(subject):
    model = subject.model()
    assert model.output_shape == (None, None, VOCAB_SIZE), f"output shape {model.output_shape}"
    for batch, length in ((4, LENGTH), (2, 3), (1, 1)):
        assert model.predict(TOKEN_IDS[:batch, :length], verbose=0).shape == (batch, length, VOCAB_SIZE)


@idiom("a model inside a model")
def nested_model(subject, directory):
    inner = scaled(subject.model())
    token_ids = keras.Input((None,), dtype="int32")
    model = trained(keras.Model(token_ids, keras.layers.Dense(VOCAB_SIZE)(inner(token_ids))))
    model.save(directory / "model.keras")
    assert_same_model(keras.saving.load_model(directory / "model.keras"), model)


@keras.saving.register_keras_serializable("keras_idioms")
class Subclassed(keras.Model):
    def __init__(self, family, name, **kwargs):
        super().__init__(**kwargs)
        self.family, self.subject_name = family, name
        self.subject = subjects_of(family)[name]
        self.embedding = keras.layers.Embedding(VOCAB_SIZE, WIDTH, mask_zero=True)
        self.layer = self.subject.make()
        self.logits = keras.layers.Dense(VOCAB_SIZE)

    def call(self, token_ids):
        return self.logits(
            self.subject.call(self.layer, self.embedding(token_ids) if self.subject.inputs else token_ids)
        )

    def get_config(self):
        return {**super().get_config(), "family": self.family, "name": self.subject_name}


# How it is called


@idiom("arguments by place and by name")
def arguments_by_name(subject):
    layer, example = subject.make(), ops.convert_to_tensor(subject.example())
    expected = numpy(subject.call(layer, example))
    names = [name for name in layer._call_signature.parameters if name not in ("args", "kwargs")]
    by_name = layer(**dict.fromkeys(names[: max(subject.inputs, 1)], example))
    assert_close(numpy(by_name), expected)


@idiom("`compute_output_shape`, `compute_output_spec`")
def output_specs(subject):
    for policy in ("float32", "mixed_float16"):
        layer = subject.make(dtype=policy)
        real = subject.call(layer, subject.example())
        symbolic = keras.KerasTensor(subject.example().shape, dtype=str(subject.example().dtype))
        spec = layer.compute_output_spec(*[symbolic] * max(subject.inputs, 1))
        dtype = keras.backend.standardize_dtype(real.dtype)
        assert (spec.shape, spec.dtype) == (tuple(real.shape), dtype), f"{spec} for {tuple(real.shape)} {dtype}"
        shape = layer.compute_output_shape(*[symbolic.shape] * max(subject.inputs, 1))
        assert shape == tuple(real.shape), f"{shape} for {tuple(real.shape)}"


@idiom("`count_params`, `summary`")
def count_params(subject):
    model, lines = subject.model(), []
    model.summary(print_fn=lambda line, **_: lines.append(line), expand_nested=True)
    assert model.count_params() == sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert f"{model.count_params():,}" in "\n".join(lines)
    layer = subject.make()
    layer.build(*[subject.example().shape] * max(subject.inputs, 1))
    assert layer.count_params() == sum(int(np.prod(weight.shape)) for weight in layer.weights)


@idiom("masks are passed on; padding changes nothing")
def masks(subject):
    model = scaled(subject.model())
    expected = TOKEN_IDS != 0
    outputs = model(TOKEN_IDS)
    mask = getattr(outputs, "_keras_mask", None)
    assert mask is not None, "the mask is lost"
    np.testing.assert_array_equal(ops.convert_to_numpy(mask), expected)
    longer = numpy(model(np.pad(TOKEN_IDS, ((0, 0), (0, 3)))[:, : LENGTH + 3]))[:, :LENGTH]
    assert_close(longer[expected], numpy(outputs)[expected])


@idiom("seeds")
def seeds(subject):
    kwargs = {"dropout": 0.5} if subject.has_dropout else {}
    results = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        results.append(trained(subject.model(**kwargs)).get_weights())
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


# Training


@idiom("`fit` with validation data, `evaluate`, `predict`")
def fit(subject):
    model = subject.model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    validation = (TOKEN_IDS, TOKEN_IDS, np.ones(TOKEN_IDS.shape, "float32"))
    history = model.fit(TOKEN_IDS, TOKEN_IDS, validation_data=validation, epochs=2, verbose=0).history
    assert np.isfinite(history["val_loss"]).all()
    assert np.isclose(model.evaluate(TOKEN_IDS, TOKEN_IDS, verbose=0)[0], history["val_loss"][-1], rtol=0.5)
    assert model.predict(TOKEN_IDS, verbose=0).shape == (4, LENGTH, VOCAB_SIZE)


@idiom("subclassed model: `fit`, `.keras`")
def subclassed_model(subject, directory):
    model = trained(Subclassed(*subject_key(subject)))
    model.save(directory / "model.keras")
    assert_same_model(keras.saving.load_model(directory / "model.keras"), model)


@idiom("`compile(jit_compile=True)`, `run_eagerly`")
def jit_compile(subject):
    if BACKEND == "torch":
        raise NotApplicable("see torch.compile")
    model = scaled(subject.model())
    copied = keras.models.clone_model(model)
    copied.set_weights(model.get_weights())
    trained(model, jit_compile=True)
    trained(copied, run_eagerly=True)
    assert_same_model(copied, model)


@idiom("`trainable = False`")
def freezing(subject):
    model = subject.model()
    frozen = [layer for layer in model.layers if layer.name not in ("logits", "token_ids")]
    for layer in frozen:
        layer.trainable = False
        assert not layer.trainable_weights
    before = [layer.get_weights() for layer in frozen]
    logits = model.get_layer("logits").get_weights()
    trained(model)
    for layer, weights in zip(frozen, before, strict=True):
        for new, old in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(new, old)
    assert np.any(model.get_layer("logits").get_weights()[0] != logits[0])


@idiom("LoRA")
def lora(subject, directory):
    def with_lora():
        model = subject.model()
        adapted = [one for one in model._flatten_layers() if hasattr(one, "enable_lora") and one.name != "logits"]
        for one in adapted:
            one.enable_lora(2)
        return model, adapted

    model, adapted = with_lora()
    if not adapted:
        raise NotApplicable("no Dense or Embedding layer inside")
    kernels = [numpy(one._kernel if hasattr(one, "_kernel") else one._embeddings) for one in adapted]
    before = numpy(model(TOKEN_IDS))
    trained(model)
    for one, kernel in zip(adapted, kernels, strict=True):
        np.testing.assert_array_equal(numpy(one._kernel if hasattr(one, "_kernel") else one._embeddings), kernel)
        assert np.any(numpy(one.lora_kernel_b if hasattr(one, "lora_kernel_b") else one.lora_embeddings_b) != 0)
    assert np.any(numpy(model(TOKEN_IDS)) != before)
    model.save(directory / "model.keras")
    loaded = keras.saving.load_model(directory / "model.keras")
    assert_close(numpy(loaded(TOKEN_IDS)), numpy(model(TOKEN_IDS)))


# Derivatives


def loss_function(model, training=True):
    """The mean square of the logits as a pure function of the trainable variables, for JAX and PyTorch."""
    others = [variable.value for variable in model.non_trainable_variables]

    def loss(values):
        outputs, _ = model.stateless_call(values, others, TOKEN_IDS, training=training)
        return ops.mean(ops.square(ops.cast(outputs, "float32")))

    return loss, [variable.value for variable in model.trainable_variables]


def gradients(model, training=True):
    if BACKEND == "tensorflow":
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(TOKEN_IDS, training=training)))
        values = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        return [numpy(tf.convert_to_tensor(value)) for value in values]
    loss, values = loss_function(model, training)
    if BACKEND == "jax":
        return [np.asarray(value) for value in jax.grad(loss)(values)]
    return [value.numpy() for value in torch.autograd.grad(loss(values), values)]


def directions(model, seed=2):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=variable.shape).astype("float32") for variable in model.trainable_variables]


def dot(ones, others):
    return sum(float(np.sum(one * other)) for one, other in zip(ones, others, strict=True))


@idiom("`RematScope`: full, larger_than, list_of_layers, activations")
def remat_scope(subject):
    model = scaled(subject.model())
    weights, expected = model.get_weights(), gradients(model)
    scopes = (
        dict(mode="full"),
        dict(mode="larger_than", output_size_threshold=8),
        dict(mode="list_of_layers", layer_names=["layer"]),
        dict(mode="activations"),
    )
    for arguments in scopes:
        model = subject.model(keras.RematScope(**arguments), name="layer")
        model.set_weights(weights)
        for one, other in zip(gradients(model), expected, strict=True):
            assert_close(one, other)


@idiom("`RematScope`: `fit` with dropout")
def remat_scope_fit(subject):
    kwargs = {"dropout": 0.5} if subject.has_dropout else {}
    results = []
    for scope in (contextlib.nullcontext(), keras.RematScope(mode="full")):
        keras.utils.set_random_seed(7)
        results.append(trained(subject.model(scope, **kwargs)).get_weights())
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@idiom("forward mode: `jax.jvp`, `torch.func.jvp`, `ForwardAccumulator`")
def forward_mode(subject):
    model = scaled(subject.model())
    tangents = directions(model)
    expected = dot(gradients(model), tangents)
    if BACKEND == "tensorflow":
        values = [variable.value for variable in model.trainable_variables]
        with tf.autodiff.ForwardAccumulator(values, [tf.constant(tangent) for tangent in tangents]) as accumulator:
            loss = tf.reduce_mean(tf.square(model(TOKEN_IDS, training=True)))
        derivative = accumulator.jvp(loss)
    else:
        loss, values = loss_function(model)
        tangents = [ops.convert_to_tensor(tangent) for tangent in tangents]
        if BACKEND == "torch":
            values = [value.detach() for value in values]
        _, derivative = (jax.jvp if BACKEND == "jax" else torch.func.jvp)(loss, (values,), (tangents,))
        derivative = ops.convert_to_numpy(derivative)
    np.testing.assert_allclose(float(derivative), expected, rtol=1e-3)


@idiom("functional gradients: `jax.grad`, `torch.func.grad`, `tf.GradientTape` in `tf.function`")
def functional_gradient(subject):
    model = scaled(subject.model())
    expected = gradients(model)
    if BACKEND == "tensorflow":
        found = tf.function(lambda: gradients_in_graph(model))()
        found = [numpy(tf.convert_to_tensor(one)) for one in found]
    elif BACKEND == "jax":
        loss, values = loss_function(model)
        found = jax.jit(jax.grad(loss))(values)
    else:
        loss, values = loss_function(model)
        found = [one.detach().numpy() for one in torch.func.grad(loss)([value.detach() for value in values])]
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def gradients_in_graph(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(TOKEN_IDS, training=True)))
    return tape.gradient(loss, [variable.value for variable in model.trainable_variables])


@idiom("second derivatives")
def second_derivatives(subject):
    """The matrix of second derivatives is symmetric: one that takes a part of a gradient as constant is not."""
    model = scaled(subject.model())
    one, other = directions(model, seed=2), directions(model, seed=3)
    expected = dot(second_derivatives_along(model, one), other)
    assert expected != 0
    np.testing.assert_allclose(dot(second_derivatives_along(model, other), one), expected, rtol=1e-3)


def second_derivatives_along(model, direction):
    if BACKEND == "tensorflow":
        values = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            first = map(tf.convert_to_tensor, gradients_in_graph(model))
            along = sum(tf.reduce_sum(one * other) for one, other in zip(first, direction, strict=True))
        return [numpy(tf.convert_to_tensor(one)) for one in tape.gradient(along, values)]
    loss, values = loss_function(model)
    if BACKEND == "jax":
        along = lambda values: sum(ops.sum(one * other) for one, other in zip(jax.grad(loss)(values), direction))
        return [np.asarray(one) for one in jax.grad(along)(values)]
    first = torch.autograd.grad(loss(values), values, create_graph=True)
    along = sum((one * torch.tensor(other)).sum() for one, other in zip(first, direction, strict=True))
    return [one.numpy() for one in torch.autograd.grad(along, values)]


@idiom("`jax.vmap`, `torch.func.vmap`, `tf.vectorized_map`")
def vmap(subject):
    model = scaled(subject.model())
    expected = numpy(model(TOKEN_IDS))
    one = lambda row: model(row[None])[0]
    if BACKEND == "tensorflow":
        found = tf.vectorized_map(one, tf.constant(TOKEN_IDS))
    elif BACKEND == "jax":
        found = jax.vmap(one)(TOKEN_IDS)
    else:
        found = torch.func.vmap(one)(torch.tensor(TOKEN_IDS)).detach()
    assert_close(numpy(found), expected)


@idiom("compiled calls: `tf.function` with XLA, `jax.jit`, `torch.compile`")
def compiled_call(subject):
    model = scaled(subject.model())
    expected = numpy(model(TOKEN_IDS))
    if BACKEND == "tensorflow":
        found = tf.function(model, jit_compile=True)(tf.constant(TOKEN_IDS))
    elif BACKEND == "jax":
        found = jax.jit(lambda token_ids: model(token_ids))(TOKEN_IDS)
    else:
        torch.compiler.reset()
        # Without generated code, which takes minutes to compile.
        found = torch.compile(model, backend="aot_eager", fullgraph=False)(torch.tensor(TOKEN_IDS)).detach()
    assert_close(numpy(found), expected)


# Precision


def with_policy(policy):
    def check(subject):
        keras.config.set_dtype_policy(policy)
        if BACKEND == "jax":
            jax.config.update("jax_enable_x64", policy == "float64")
        try:
            layer, example = subject.make(), subject.example()
            # Token ids stay integers.
            outputs = subject.call(layer, ops.cast(example, layer.input_dtype) if subject.inputs else example)
            model = trained(subject.model())
        finally:
            keras.config.set_dtype_policy("float32")
            if BACKEND == "jax":
                jax.config.update("jax_enable_x64", False)
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == layer.compute_dtype, f"outputs are {dtype}"
        assert np.isfinite(numpy(outputs)).all()
        assert keras.backend.standardize_dtype(model.weights[0].dtype) == layer.variable_dtype
        assert np.isfinite(np.asarray(model.predict(TOKEN_IDS, verbose=0), "float32")).all()

    check.__name__ = f"policy_{policy}"
    return check


for name in ("float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16"):
    idiom(f"policy `{name}`")(with_policy(name))


def quantization(mode):
    def check(subject):
        model = scaled(subject.model())
        exact = numpy(model(TOKEN_IDS))
        model.quantize(mode)
        quantized = numpy(model(TOKEN_IDS))
        error = np.linalg.norm(quantized - exact) / np.linalg.norm(exact)
        assert error < (0.5 if mode == "int4" else 0.1), f"the relative error is {error:.3f}"
        if mode == "float8":
            trained(model)

    check.__name__ = f"quantize_{mode}"
    return check


for name in ("int8", "int4", "float8"):
    idiom(f'`quantize("{name}")`')(quantization(name))


def quantized_file(mode):
    def check(subject, directory):
        model = scaled(subject.model())
        model.quantize(mode)
        model.save(directory / "model.keras")
        assert_same_model(keras.saving.load_model(directory / "model.keras"), model)

    check.__name__ = f"quantized_file_{mode}"
    return check


for name in ("int8", "int4", "float8"):
    idiom(f'`.keras` file after `quantize("{name}")`')(quantized_file(name))


# Other programs

OTHER_SIZES = ((4, LENGTH), (2, 3), (1, 8))


def ids_of(batch, length):
    return np.pad(TOKEN_IDS, ((0, 0), (0, 2)), constant_values=3)[:batch, :length]


def exported(model, directory, name, **kwargs):
    model(TOKEN_IDS)
    path = str(directory / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(path, verbose=False, **kwargs)
    return path


@idiom("`export`: SavedModel, any sizes")
def saved_model(subject, directory):
    needs("tensorflow")
    import tensorflow as tf

    model = scaled(subject.model())
    loaded = tf.saved_model.load(exported(model, directory, "saved_model"))
    for sizes in OTHER_SIZES:
        assert_close(loaded.serve(tf.constant(ids_of(*sizes))).numpy(), numpy(model(ids_of(*sizes))))


@idiom("`export`: ONNX, any sizes, in onnxruntime")
def onnx(subject, directory):
    needs("onnxruntime", *{"tensorflow": ["tf2onnx"], "jax": ["jax2onnx"], "torch": ["onnxscript"]}[BACKEND])
    import onnxruntime

    model = scaled(subject.model())
    session = onnxruntime.InferenceSession(exported(model, directory, "model.onnx", format="onnx"))
    (given,) = session.get_inputs()
    for sizes in OTHER_SIZES:
        (found,) = session.run(None, {given.name: ids_of(*sizes)})
        assert_close(found, numpy(model(ids_of(*sizes))))


@idiom("`export`: LiteRT, any sizes, without Flex")
def litert(subject, directory):
    if BACKEND == "jax":
        raise NotApplicable("Keras exports LiteRT from TensorFlow and PyTorch")
    if BACKEND == "torch":
        needs("litert_torch")
    import tensorflow as tf

    model = scaled(subject.model())
    interpreter = tf.lite.Interpreter(exported(model, directory, "model.tflite", format="litert"))
    flex = {one["op_name"] for one in interpreter._get_ops_details() if one["op_name"].startswith("Flex")}
    assert not flex, f"needs {', '.join(sorted(flex))}"
    (given,), (returned,) = interpreter.get_input_details(), interpreter.get_output_details()
    for sizes in OTHER_SIZES:
        interpreter.resize_tensor_input(given["index"], sizes)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], ids_of(*sizes))
        interpreter.invoke()
        assert_close(interpreter.get_tensor(returned["index"]), numpy(model(ids_of(*sizes))))


@idiom("`torch.export`, one size")
def torch_export(subject, directory):
    if BACKEND != "torch":
        raise NotApplicable("PyTorch only")
    model = scaled(subject.model())
    expected = numpy(model(TOKEN_IDS))
    model.eval()
    program = torch.export.export(model, (torch.tensor(TOKEN_IDS),), strict=False)
    torch.export.save(program, directory / "model.pt2")
    found = torch.export.load(directory / "model.pt2").module()(torch.tensor(TOKEN_IDS))
    assert_close(numpy(found.detach()), expected)


# Several devices


def distributed(make_distribution):
    def check(subject):
        if BACKEND != "jax":
            raise NotApplicable("`keras.distribution` runs on JAX")
        keras.utils.set_random_seed(5)
        expected = trained(subject.model())
        keras.utils.set_random_seed(5)
        devices = keras.distribution.list_devices()
        assert len(devices) == 2
        keras.distribution.set_distribution(make_distribution(devices))
        try:
            model = trained(subject.model())
            for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
                assert_close(one, other)
        finally:
            keras.distribution.set_distribution(None)

    return check


def model_parallel(devices):
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices)
    layout = keras.distribution.LayoutMap(mesh)
    layout[r"^(?!.*output).*(query|key|value|hidden|intermediate|dense).*kernel"] = (None, "model")
    layout[r".*output.*kernel"] = ("model", None)
    layout[r".*(embeddings|tokens)"] = (None, "model")
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def data_parallel(subject):
    distributed(lambda devices: keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))(subject)


def tensor_parallel(subject):
    distributed(model_parallel)(subject)


idiom("`keras.distribution.DataParallel`, 2 devices")(data_parallel)
idiom("`keras.distribution.ModelParallel` with a `LayoutMap`, 2 devices")(tensor_parallel)


# The program


@functools.cache
def subjects_of(family):
    return {"ours": lambda: OURS, "stock": lambda: STOCK, "keras_hub": keras_hub_subjects}[family]()


def subject_key(subject):
    return next((family, name) for family in FAMILIES for name, one in subjects_of(family).items() if one is subject)


def result_of(function, subject):
    """Returns "yes", "–: why it does not apply", or "no: the error"."""
    keras.utils.set_random_seed(0)
    try:
        with tempfile.TemporaryDirectory() as directory:
            if function.__code__.co_argcount == 2:
                function(subject, pathlib.Path(directory))
            else:
                function(subject)
        return "yes"
    except NotApplicable as reason:
        return f"–: {reason}"
    except Exception as error:
        if os.environ.get("TRACEBACK"):
            import traceback

            traceback.print_exc()
        without_colours = re.sub(r"\x1b\[\d*m", "", str(error))
        lines = [line.strip() for line in without_colours.splitlines() if line.strip()]
        return f"no: {type(error).__name__}: {' '.join(lines)[:300]}"


def run(family, idioms, layers):
    for idiom_name in idioms or IDIOMS:
        for name, subject in subjects_of(family).items():
            if layers and name not in layers:
                continue
            start = time.process_time()
            result = result_of(IDIOMS[idiom_name][1], subject)
            keras.backend.clear_session(free_memory=False)
            line = dict(
                backend=BACKEND,
                family=family,
                idiom=idiom_name,
                layer=name,
                result=result,
                seconds=round(time.process_time() - start, 2),
            )
            print(json.dumps(line, ensure_ascii=False), file=OUTPUT, flush=True)


def run_all():
    """The lines of all families on all backends."""
    for backend in BACKENDS:
        for family in FAMILIES:
            finished = subprocess.run(
                [sys.executable, "-W", "ignore", __file__, family],
                env={**os.environ, "KERAS_BACKEND": backend},
                stdout=subprocess.PIPE,
                text=True,
            )
            yield from finished.stdout.splitlines()


def print_table(lines):
    """Prints a row for each idiom, a column for each backend and family, and below it why something fails.

    "–" is what no line tells, "n/a" what means nothing there, such as `state_dict` on other backends than PyTorch.
    """
    results = {}
    for line in map(json.loads, lines):
        cell = results.setdefault((line["idiom"], line["backend"], line["family"]), {})
        cell[line["layer"]] = line["result"]
    columns = [(backend, family) for backend in BACKENDS for family in FAMILIES]
    print("| | " + " | ".join(f"{FAMILIES[family]}, {backend}" for backend, family in columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    reasons = {}
    for name, (title, _) in IDIOMS.items():
        cells = [cell_text(results.get((name, *column), {}), reasons) for column in columns]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print()
    for reason, number in reasons.items():
        print(f"{number}. {reason}")


def cell_text(results, reasons):
    failed = {layer: result for layer, result in results.items() if result.startswith("no")}
    if not results:
        return "–"
    if not failed:
        return "yes" if "yes" in results.values() else "n/a"
    by_error = {}
    for layer, result in failed.items():
        by_error.setdefault(result.removeprefix("no: ")[:160], []).append(layer)
    notes = [
        str(reasons.setdefault(f"{', '.join(layers)}: {error}", len(reasons) + 1)) for error, layers in by_error.items()
    ]
    return f"{'not all' if 'yes' in results.values() else 'no'} ({', '.join(notes)})"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        paths = map(pathlib.Path, sys.argv[2:])
        lines = [line for path in paths for line in path.read_text().splitlines()] or run_all()
        with OUTPUT, contextlib.redirect_stdout(OUTPUT):
            print_table(lines)
    else:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("family", choices=FAMILIES)
        parser.add_argument("idioms", nargs="*")
        parser.add_argument("--layers", nargs="*")
        options = parser.parse_args()
        run(options.family, options.idioms, options.layers)
