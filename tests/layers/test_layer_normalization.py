"""Layer normalization and its custom gradient, against Keras and NumPy."""

import keras
import numpy as np
import pytest

from keras_transformer.layers.layer_normalization import LayerNormalization

rng = np.random.default_rng(5)
INPUTS = rng.normal(1, 3, (4, 3, 6)).astype("float32")
UPSTREAM = rng.normal(size=(4, 3, 5)).astype("float32")
GAMMA, BETA = rng.normal(size=(2, 5)).astype("float32")
KERNEL = rng.normal(size=(6, 5)).astype("float32")


def gradients(layer_class, policy):
    """Those of the normalization's weights, and of the product before it: what one step of descent
    takes away."""
    taken = []
    # One layer at a time: TensorFlow's graph optimizer was seen to update gamma before the other
    # gradient had read it.
    for trained in (0, 1):
        layers = [
            keras.layers.Dense(5, use_bias=False, dtype=policy),
            layer_class(epsilon=1e-3, dtype=policy),
        ]
        model = keras.Sequential(layers)
        model.build(INPUTS.shape)
        layers[1 - trained].trainable = False
        # Copies: TensorFlow may keep the memory it is given, and train in it.
        for layer, weights in zip(layers, ([KERNEL], [GAMMA, BETA])):
            layer.set_weights([weight.copy() for weight in weights])
        model.compile(
            keras.optimizers.SGD(1.0),
            loss=lambda upstream, outputs: keras.ops.sum(upstream * outputs, axis=(1, 2)),
        )
        model.train_on_batch(INPUTS, UPSTREAM)
        before = [[KERNEL], [GAMMA, BETA]][trained]
        taken += [old - new for old, new in zip(before, layers[trained].get_weights())]
    return taken


def test_gradients_are_those_of_keras():
    ours, others = (
        gradients(layer, "float32")
        for layer in (LayerNormalization, keras.layers.LayerNormalization)
    )
    for one, other in zip(ours, others, strict=True):
        assert np.abs(one).max() > 0.1
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_under_a_mixed_policy_gradients_are_those_of_float32_but_for_rounding():
    exact, rounded = (
        gradients(LayerNormalization, policy) for policy in ("float32", "mixed_bfloat16")
    )
    for one, other in zip(exact, rounded, strict=True):
        # Eight binary digits, and sums of a dozen.
        np.testing.assert_allclose(other, one, rtol=0, atol=0.03 * np.abs(one).max())


@pytest.mark.parametrize("training", (False, True))
def test_outputs_by_hand(training):
    # Mean 3, variance 8 / 3.
    norm = LayerNormalization(epsilon=1 / 3)
    norm.build((None, 3))
    norm.set_weights([np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])])
    outputs = keras.ops.convert_to_numpy(norm(np.array([[1.0, 3.0, 5.0]]), training=training))
    root = 3**0.5
    # The mean may be rounded, and so the middle not quite 0.
    np.testing.assert_allclose(outputs, [[-2 / root, 0.0, 6 / root + 1]], rtol=1e-6, atol=1e-6)


def test_the_config_makes_the_same_layer():
    layer = LayerNormalization(epsilon=0.5, name="norm", trainable=False, dtype="mixed_bfloat16")
    config = layer.get_config()
    assert (config["epsilon"], config["name"], config["trainable"]) == (0.5, "norm", False)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is LayerNormalization and copy.get_config() == config


@pytest.mark.parametrize("training", (False, True))
def test_outputs_have_the_policys_precision(training):
    outputs = LayerNormalization(dtype="mixed_bfloat16")(INPUTS, training=training)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
