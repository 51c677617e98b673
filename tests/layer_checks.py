"""What every public layer owes Keras and its users; run on each layer, on TensorFlow and on JAX."""

import inspect
import json

import keras
import numpy as np

import keras_transformer
from keras_transformer import MaskedLabelSmoothedCrossentropy

BATCH, LENGTH, D_MODEL = 4, 5, 8

# Every layer with a value other than the default for every argument, and how many inputs it takes.
SIZES = dict(
    num_heads=2,
    d_ff=12,
    key_dim=3,
    value_dim=5,
    dropout=0.2,
    attention_dropout=0.1,
    activation="gelu",
    norm_first=True,
    epsilon=1e-5,
)
LAYERS = {
    "MultiHeadAttention": (
        dict(
            num_heads=2,
            key_dim=3,
            value_dim=5,
            dropout=0.1,
            use_bias=True,
            kernel_initializer="he_normal",
        ),
        2,
    ),
    "PositionalEmbedding": (
        dict(vocab_size=9, d_model=D_MODEL, positions="learned", max_length=6, dropout=0.2),
        0,
    ),
    "FeedForward": (dict(d_ff=12, activation="gelu"), 1),
    "EncoderLayer": (SIZES, 1),
    "DecoderLayer": (SIZES, 2),
    "Encoder": ({"num_layers": 2, **SIZES}, 1),
    "Decoder": ({"num_layers": 2, **SIZES}, 2),
}


def make(name, dtype=None):
    arguments, _ = LAYERS[name]
    return getattr(keras_transformer, name)(**arguments, dtype=dtype)


def constructor_arguments(layer_class):
    names = set()
    for base in layer_class.__mro__[: layer_class.__mro__.index(keras.layers.Layer)]:
        if "__init__" in vars(base):
            names.update(inspect.signature(base.__init__).parameters)
    return names - {"self", "kwargs"}


def check_arguments_are_attributes_and_config_keys(name):
    arguments, _ = LAYERS[name]
    layer = make(name)
    config = layer.get_config()
    assert set(arguments) == constructor_arguments(type(layer))
    assert set(config) == set(arguments) | set(keras.layers.Layer().get_config())
    for argument, value in arguments.items():
        attribute = getattr(layer, argument)
        if argument == "activation":
            assert attribute is keras.activations.get(value)
        elif argument == "kernel_initializer":
            assert type(attribute) is type(keras.initializers.get(value))
        else:
            assert attribute == value
            assert config[argument] == value
    copy = type(layer).from_config(json.loads(json.dumps(config)))
    assert copy.get_config() == config


def classifier(name, dtype=None):
    """Somebody's model: the layer between stock ones."""
    _, num_inputs = LAYERS[name]
    token_ids = keras.Input((LENGTH,), dtype="int32")
    layer = make(name, dtype)
    if num_inputs == 0:
        hidden = layer(token_ids)
    else:
        embedding = keras.layers.Embedding(9, D_MODEL, mask_zero=True, dtype=dtype)
        hidden = layer(*[embedding(token_ids)] * num_inputs)
    return keras.Model(token_ids, keras.layers.Dense(9, dtype=dtype)(hidden)), layer


def token_ids():
    ids = np.random.default_rng(0).integers(1, 9, size=(BATCH, LENGTH))
    ids[:2, -2:] = 0
    return ids


def check_fit(name, dtype, jit_compile):
    """One step of `fit` changes every weight, and leaves it finite."""
    keras.utils.set_random_seed(0)
    model, layer = classifier(name, dtype)
    assert {weight.dtype for weight in layer.trainable_variables} == {"float32"}
    assert layer.compute_dtype == ("bfloat16" if dtype == "mixed_bfloat16" else "float32")
    for sublayer in layer._flatten_layers(include_self=False):
        assert sublayer.dtype_policy == layer.dtype_policy
    before = [keras.ops.convert_to_numpy(weight).copy() for weight in layer.trainable_variables]
    model.compile("adam", MaskedLabelSmoothedCrossentropy(), jit_compile=jit_compile)
    history = model.fit(token_ids(), token_ids(), verbose=0).history
    assert np.all(np.isfinite(history["loss"]))
    for weight, old in zip(layer.trainable_variables, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new)), weight.path
        assert np.any(new != old), weight.path
    return model


def check_save_and_load(model, path):
    """The file needs no custom objects, and no policy of its own around it."""
    expected = model.predict(token_ids(), verbose=0)
    model.save(path)
    for policy in ("float32", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        try:
            loaded = keras.saving.load_model(path)
        finally:
            keras.config.set_dtype_policy("float32")
        np.testing.assert_array_equal(loaded.predict(token_ids(), verbose=0), expected)
        assert loaded.get_config() == model.get_config()
