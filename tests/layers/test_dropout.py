"""Dropout from 16 random bits per element: how much is dropped, what is kept, and when it does
nothing."""

import keras
import numpy as np
import pytest

from keras_transformer.layers.dropout import Dropout

to_numpy = keras.ops.convert_to_numpy


@pytest.mark.parametrize("shape", [(400, 500), (199_999,), (3, 333, 201)])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_the_rate_is_dropped_and_the_rest_scaled(shape, rate):
    outputs = to_numpy(Dropout(rate, seed=1)(np.ones(shape, "float32"), training=True))
    assert outputs.shape == shape
    num_dropped = np.sum(outputs == 0)
    # Six standard deviations of a binomial distribution.
    expected = rate * outputs.size
    assert abs(num_dropped - expected) < 6 * np.sqrt(expected * (1 - rate))
    # PyTorch's own dropout takes any rate.
    exact_rate = rate if keras.backend.backend() == "torch" else round(rate * 2**16) / 2**16
    np.testing.assert_allclose(outputs[outputs != 0], 1 / (1 - exact_rate), rtol=1e-6)


def test_neighbours_are_dropped_independently():
    # Two elements come from one random word.
    kept = to_numpy(Dropout(0.5, seed=2)(np.ones((100_000, 2), "float32"), training=True)) != 0
    counts = np.array(
        [[np.sum((kept[:, 0] == a) & (kept[:, 1] == b)) for a in (0, 1)] for b in (0, 1)]
    )
    assert np.all(abs(counts - 25_000) < 6 * np.sqrt(100_000 * 0.25 * 0.75))


def test_every_call_draws_anew_and_a_seed_repeats():
    inputs = np.ones(1000, "float32")
    layer, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    first, second = (to_numpy(layer(inputs, training=True)) for _ in range(2))
    assert np.any(first != second)
    np.testing.assert_array_equal(to_numpy(again(inputs, training=True)), first)


def test_nothing_happens_outside_training_or_at_rate_0():
    inputs = np.arange(10.0, dtype="float32")
    np.testing.assert_array_equal(to_numpy(Dropout(0.5)(inputs)), inputs)
    np.testing.assert_array_equal(to_numpy(Dropout(0.0)(inputs, training=True)), inputs)
    assert not np.any(to_numpy(Dropout(1.0)(inputs, training=True)))


def test_the_config_makes_the_same_layer():
    layer = Dropout(0.25, seed=7, name="drop")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is Dropout and copy.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), "rate must be at least 0 and at most 1; received rate=-0.1"),
        ((1.1,), "rate must be at least 0 and at most 1; received rate=1.1"),
        ((float("nan"),), "rate must be at least 0 and at most 1; received rate=nan"),
        (("0.5",), "rate must be of type float; received rate='0.5'"),
        ((0.5, (1, 4)), "seed must be of type int or null; received seed=(1, 4)"),
    ],
)
def test_an_argument_that_breaks_its_rule_is_refused(arguments, message):
    with pytest.raises(ValueError) as error:
        Dropout(*arguments)
    assert str(error.value) == message
