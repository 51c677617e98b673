"""What every public layer owes Keras and its users."""

import inspect
import json

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import MaskedLabelSmoothedCrossentropy

D_MODEL = 8
TOKEN_IDS = np.array([[3, 1, 4, 0, 0], [5, 2, 6, 0, 0], [7, 8, 5, 3, 1], [2, 6, 4, 8, 7]])

# Every layer with a value other than the default for every argument, and how many inputs it takes.
SIZES = dict(
    num_heads=2,
    d_ff=12,
    key_dim=3,
    value_dim=5,
    dropout=0.2,
    attention_dropout=0.1,
    activation_dropout=0.3,
    activation="gelu",
    norm_first=True,
    neighborhood=3,
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
            neighborhood=3,
        ),
        2,
    ),
    "PositionalEmbedding": (
        dict(vocab_size=9, d_model=D_MODEL, positions="learned", max_length=6, dropout=0.2),
        0,
    ),
    "FeedForward": (dict(d_ff=12, activation="gelu", dropout=0.2), 1),
    "EncoderLayer": (SIZES, 1),
    "DecoderLayer": (SIZES, 2),
    "Encoder": ({"num_layers": 1, **SIZES}, 1),
    "Decoder": ({"num_layers": 1, **SIZES}, 2),
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


every_layer = pytest.mark.parametrize("name", LAYERS)


def test_every_public_layer_is_here():
    public = {name: getattr(keras_transformer, name) for name in keras_transformer.__all__}
    layers = {
        name
        for name, value in public.items()
        if isinstance(value, type)
        and issubclass(value, keras.layers.Layer)
        and not issubclass(value, keras.Model)
    }
    assert layers == set(LAYERS)


@every_layer
def test_arguments_are_attributes_and_config_keys(name):
    arguments, _ = LAYERS[name]
    layer = make(name)
    config = layer.get_config()
    assert set(arguments) == constructor_arguments(type(layer))
    assert set(config) == set(arguments) | {"name", "trainable", "dtype"}
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
    token_ids = keras.Input((None,), dtype="int32")
    layer = make(name, dtype)
    if num_inputs == 0:
        hidden = layer(token_ids)
    else:
        embedding = keras.layers.Embedding(9, D_MODEL, mask_zero=True, dtype=dtype)
        hidden = layer(*[embedding(token_ids)] * num_inputs)
    return keras.Model(token_ids, keras.layers.Dense(9, dtype=dtype)(hidden)), layer


@every_layer
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_model_with_the_layer_trains_is_saved_and_loads(name, dtype, tmp_path):
    keras.utils.set_random_seed(0)
    model, layer = classifier(name, dtype)
    assert {weight.dtype for weight in layer.trainable_variables} == {"float32"}
    for sublayer in layer._flatten_layers():
        assert sublayer.dtype_policy.name == dtype

    # One step changes every weight: compiled by XLA in float32, and not compiled at all.
    before = layer.get_weights()
    compiled = {"jit_compile": True} if dtype == "float32" else {"run_eagerly": True}
    model.compile("adam", MaskedLabelSmoothedCrossentropy(), **compiled)
    model.fit(TOKEN_IDS, TOKEN_IDS, verbose=0)
    for weight, old in zip(layer.weights, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new)), weight.path
        assert np.any(new != old), weight.path

    # The file needs no custom objects, and brings its policy along, whatever the global one is.
    expected = keras.ops.convert_to_numpy(model(TOKEN_IDS))
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "float32" else "float32")
    try:
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(loaded(TOKEN_IDS)), expected)
