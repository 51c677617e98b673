"""The moving average of weights: its formula, its use, and that interruptions do not change it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_training import load_model, logged, pairs, train_here
from training_runs import differences

from keras_transformer import Translator
from keras_transformer.training.run.interruption import Interruption
from keras_transformer.training.step.optimizer import update_average

EMA = "training.ema=0.6"
OVERRIDES = (
    *(
        "training.steps=9",
        "training.validate_every=3",
        "training.keep_checkpoints=3",
        "training.average_last=0",
    ),
    *("training.warmup_steps=3", "training.decay=inverse_sqrt", "training.peak_learning_rate=0.01"),
)


def decays(number, decay):
    """By hand: the first average is the first weights, and the tenth step's decay is at most
    1/2."""
    return [min(decay, step / (step + 9)) for step in range(number)]


def test_the_average_of_a_few_steps_worked_out_by_hand():
    average, weight = keras.Variable([5.0, 5.0]), keras.Variable([0.0, 0.0])
    expected, averages = np.array([5.0, 5.0]), []
    update = tf.function(lambda step: update_average([average], [weight], 0.25, step))
    for step, decay in enumerate(decays(6, 0.25)):
        weight.assign([step + 1.0, -2.0 * step])
        expected = decay * expected + (1 - decay) * weight.numpy()
        update(tf.constant(step))
        averages.append(average.numpy())
        np.testing.assert_allclose(averages[-1], expected, rtol=1e-6)
    np.testing.assert_array_equal(averages[0], [1, 0])
    assert decays(6, 0.25) == [0, 0.1, 2 / 11, 0.25, 0.25, 0.25]


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """A training, and what its raw weights were after each step."""
    raw = []

    class KeepWeights(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs):
            raw.append(self.model.transformer.get_weights())

    directory = tmp_path_factory.mktemp("averaged") / "model"
    return train_here(directory, *OVERRIDES, EMA, callbacks=[KeepWeights()]), raw


@pytest.mark.slow
def test_what_is_saved_to_translate_with_is_the_average(averaged):
    model_dir, raw = averaged
    model = load_model(model_dir)
    expected = [0 * weight for weight in raw[0]]
    for number, (decay, weights) in enumerate(zip(decays(9, 0.6), raw, strict=True), start=1):
        expected = [
            decay * average + (1 - decay) * weight for average, weight in zip(expected, weights)
        ]
        if number % 3 == 0:
            model.load_weights(model_dir.checkpoint_path(number))
            for average, weight in zip(expected, model.get_weights(), strict=True):
                np.testing.assert_allclose(weight, average, rtol=0, atol=1e-6)
    # Training goes on from the raw weights, which the state has.
    with np.load(model_dir.training_state_path) as state:
        shapes = [weight.shape for weight in raw[-1]]
        kept = {
            name: [state[f"{name}.{i}"] for i in range(len(shapes))]
            for name in ("model", "averaged")
        }
    for weights, name in ((raw[-1], "model"), (model.get_weights(), "averaged")):
        assert sorted(array.tobytes() for array in kept[name]) == sorted(
            array.tobytes() for array in weights
        )
    assert max(np.abs(one - other).max() for one, other in zip(raw[-1], expected)) > 1e-3


@pytest.mark.slow
def test_validations_are_those_of_the_average(averaged, tmp_path):
    model_dir, _ = averaged
    best = int(logged(model_dir, "step")[int(np.argmin(logged(model_dir, "val_perplexity")))])
    model, translator = load_model(model_dir), Translator.load(model_dir.path)
    model.load_weights(model_dir.best_path)
    translator.model.load_weights(model_dir.checkpoint_path(best))
    for one, other in zip(model.get_weights(), translator.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    text = pairs(360, 400)
    num_tokens = sum(translator.num_tokens(list(text.target)))
    perplexity = np.exp(-sum(translator.score(list(text.source), list(text.target))) / num_tokens)
    assert perplexity == pytest.approx(min(logged(model_dir, "val_perplexity")), rel=1e-4)


@pytest.mark.slow
def test_training_itself_is_the_same_without_an_average(averaged, tmp_path):
    without = train_here(tmp_path / "model", *OVERRIDES)
    assert logged(without, "loss") == logged(averaged[0], "loss")
    assert logged(without, "val_loss") != logged(averaged[0], "val_loss")


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [4, 6])
def test_a_run_that_is_stopped_goes_on_with_its_average_bit_for_bit(averaged, tmp_path, stop_at):
    interruption = Interruption()

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs):
            if int(self.model.optimizer.iterations.numpy()) == stop_at:
                interruption.signal = 15  # as if SIGTERM had come in this step

    with pytest.raises(KeyboardInterrupt):
        train_here(
            tmp_path / "model", *OVERRIDES, EMA, callbacks=[Stop()], interruption=interruption
        )
    assert interruption.saved_step == stop_at
    train_here(tmp_path / "model", *OVERRIDES, EMA)
    assert differences(tmp_path / "model", averaged[0].path) == []
