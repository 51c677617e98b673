"""Training in float16: its numbers are float32's to float16's rounding, and a step that overflows
changes nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from fresh_process import run_python
from test_training import ROOT, TINY, logged, train_here
from training_runs import differences

from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.step import model as training_model
from keras_transformer.training.step import optimizer as module
from keras_transformer.training.step.crossentropy import projected_crossentropy
from keras_transformer.training.step.model import build_training_step
from keras_transformer.training.step.optimizer import Adam, LossScale

FLOAT16 = "training.precision=float16"
# Every step has its loss.
SHORT = (
    *(
        "training.steps=4",
        "training.validate_every=1",
        "training.average_last=0",
        "model.dropout=0.0",
    ),
    *("training.clip_norm=0.5", "training.consistency=3", "training.warmup_steps=2"),
    "training.peak_learning_rate=0.01",
)


def scale_of(value):
    return float(keras.ops.convert_to_numpy(value.variables[0]))


@pytest.fixture
def overflow_once(monkeypatch):
    """The first scale is one at which every gradient overflows, all others are one at which none
    does."""
    monkeypatch.setattr(module, "_FIRST_OF_MEAN", 2.0**60)
    monkeypatch.setattr(module, "_HIGHEST", 1.0)


def test_the_first_scale_is_the_usual_one_of_the_mean_loss():
    assert [scale_of(LossScale(tokens)) for tokens in (2**15, 25_000, 500, 2**18)] == [
        1,
        1,
        64,
        1 / 8,
    ]


def test_the_scale_doubles_after_good_steps_in_a_row_and_is_halved_after_a_bad_one(monkeypatch):
    monkeypatch.setattr(module, "_GOOD_STEPS", 3)
    scale = LossScale(2**15)
    good, infinite, nan = (
        [tf.constant([1.0, number]), tf.constant(2.0)] for number in (1.0, np.inf, np.nan)
    )
    scales = []
    for gradients in (good, good, infinite, good, good, good, good, nan, nan):
        updated = scale.update(gradients)
        scales.append(scale_of(scale))
        if gradients is good:
            assert all(np.array_equal(*pair) for pair in zip(updated, good, strict=True))
        else:
            assert all(np.isnan(gradient).all() for gradient in updated)
    assert scales == [1, 1, 0.5, 0.5, 0.5, 1, 1, 0.5, 0.25]
    assert scale.skipped_steps == 3


def test_the_scale_has_bounds():
    scale = LossScale(2**15)
    steps = 0
    while not scale.is_exhausted():
        scale.update([tf.constant(np.nan)])
        steps += 1
    assert steps == 15
    scale.update([tf.constant(np.nan)])
    assert scale_of(scale) == 2.0**-15
    scale.variables[0].assign(2.0**15)
    scale.variables[1].assign(1999)
    scale.update([tf.constant(1.0)])
    assert scale_of(scale) == 2.0**15


def test_adam_skips_a_gradient_of_nan_bit_for_bit():
    values = np.linspace(-1, 1, 6).astype("float32")
    variables, usual = [keras.Variable(values), keras.Variable(values[:2])], keras.Variable(values)
    optimizer, other = Adam(0.1, skip_nan=True), Adam(0.1)
    optimizer.build(variables)
    other.build([usual])
    for _ in range(2):
        optimizer.apply_sum([tf.sin(5.0 * values), tf.constant([1.0, 2.0])], variables)
        other.apply_sum([tf.sin(5.0 * values)], [usual])
    np.testing.assert_array_equal(variables[0].numpy(), usual.numpy())
    before = [variable.numpy() for variable in (*variables, *optimizer.variables)]
    optimizer.apply_sum([tf.constant([np.nan] * 6), tf.constant([np.nan] * 2)], variables)
    after = [variable.numpy() for variable in (*variables, *optimizer.variables)]
    assert after[2] == before[2] + 1  # The step counts: the order of the text follows from it.
    for one, other in zip(before[:2] + before[3:], after[:2] + after[3:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_are_scaled_before_they_are_rounded():
    # The label is almost certain: what is left of its gradient is near the smallest number of
    # float16.
    hidden, labels = tf.constant([[[14.0]]]), tf.constant([0])
    kernel = tf.constant([[1.0, 0.0, 0.01, 0.02, 0.03]])
    gradients = {}
    for dtype, scale in (
        ("float32", None),
        ("float32", 1024.0),
        ("float16", 1024.0),
        ("float16", None),
    ):
        rounded = tf.cast(hidden, dtype)
        with tf.GradientTape() as tape:
            tape.watch([rounded, kernel])
            factor = None if scale is None else tf.constant(scale)
            loss = projected_crossentropy(rounded, kernel, labels, 0.0, 0.0, factor)
        of_both = tape.gradient(loss, [rounded, kernel])
        gradients[dtype, scale] = np.concatenate(
            [np.ravel(tf.cast(gradient, tf.float32)) for gradient in of_both]
        )
    expected = 1024 * gradients["float32", None]
    np.testing.assert_allclose(gradients["float32", 1024.0], expected, rtol=1e-5)
    errors = {
        scale: np.abs(factor * gradients["float16", scale] - expected).sum()
        / np.abs(expected).sum()
        for scale, factor in ((None, 1024), (1024.0, 1))
    }
    assert errors[1024.0] < 0.01 and errors[1024.0] < errors[None] / 3


@pytest.mark.slow
def test_a_step_that_overflows_changes_no_weight_and_the_next_one_trains():
    config = load_recipe("demo", [*TINY, FLOAT16, "training.warmup_steps=1", "model.max_length=16"])
    model = build_training_step(config.model, config.training, tf.distribute.get_strategy())
    random = np.random.default_rng(1)
    source, target, labels = (random.integers(4, 500, (6, 9)).astype("int32") for _ in range(3))
    batches = iter(
        tf.data.Dataset.from_tensors(({"source": source, "target": target}, labels)).repeat()
    )

    def values():
        variables = (*model.transformer.trainable_variables, *model.optimizer.variables[2:])
        return [variable.numpy() for variable in variables]

    for _ in range(2):
        model.update(batches)
    model.loss_scale.variables[0].assign(2.0**40)
    before = values()
    assert np.isfinite(model.update(batches).loss)
    assert model.loss_scale.skipped_steps == 1 and scale_of(model.loss_scale) == 2.0**15
    for one, other in zip(before, values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(model.optimizer.iterations.numpy()) == 3
    model.loss_scale.variables[0].assign(64.0)
    model.update(batches)
    assert model.loss_scale.skipped_steps == 1
    assert all((one != other).any() for one, other in zip(before, values(), strict=True))


@pytest.mark.slow
def test_a_batch_in_parts_skips_the_same_steps_and_has_the_same_losses(
    tmp_path, overflow_once, capsys
):
    def train(name, *overrides, **options):
        return train_here(tmp_path / name, *SHORT, FLOAT16, *overrides, **options)

    whole = train("whole")
    assert ", 1 step skipped, " in capsys.readouterr().err
    assert logged(whole, "skipped_steps") == [1] * 4
    parts = train("parts", "training.accumulate_steps=2", parallel_parts=2)
    assert logged(parts, "skipped_steps") == [1] * 4
    np.testing.assert_allclose(logged(parts, "loss"), logged(whole, "loss"), rtol=1e-3)


@pytest.mark.slow
def test_without_overflow_losses_are_those_of_float32(tmp_path):
    float32 = logged(train_here(tmp_path / "float32", *SHORT), "loss")
    trained = train_here(tmp_path / "float16", *SHORT, FLOAT16)
    assert logged(trained, "skipped_steps") == [0] * 4
    np.testing.assert_allclose(logged(trained, "loss"), float32, rtol=1e-3)
    assert "skipped" not in ModelDir(tmp_path / "float32").log_path.read_text()


REPLICAS = """
import sys
from keras_transformer.training.run.devices import make_strategy
two_replicas = make_strategy(2)
sys.path[:0] = ["tests", "tests/training/run"]
import numpy as np
import tensorflow as tf
import test_float16, test_training
from test_float16 import FLOAT16, SHORT, module
module._FIRST_OF_MEAN, module._HIGHEST = 2.0**60, 1.0
one_device = tf.distribute.get_strategy()

def trained(name, strategy, *overrides):
    test_training.make_strategy = lambda: strategy
    model_dir = test_training.train_here(f"{sys.argv[1]}/{name}", *SHORT, FLOAT16, *overrides)
    assert set(test_training.logged(model_dir, "skipped_steps")) == {1}
    weights = test_training.load_model(model_dir).get_weights()
    return test_training.logged(model_dir, "loss"), np.concatenate([weight.ravel() for weight in weights])

losses_of_two, two = trained("two", two_replicas)
losses_of_one, one = trained("one", one_device)
# The only step of this training is the one that is skipped.
_, start = trained("start", one_device, "training.steps=1")
np.testing.assert_allclose(losses_of_two, losses_of_one, rtol=1e-3)
# Adam takes large steps also for gradients of rounding errors: only all weights together can be compared.
assert 1 < np.linalg.norm(one - start) and np.linalg.norm(two - one) < 0.02 * np.linalg.norm(one - start)
"""


@pytest.mark.slow
def test_two_replicas_skip_the_same_steps_as_one(tmp_path):
    run_python("-c", REPLICAS, tmp_path, cwd=ROOT)


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_scale_bit_for_bit(
    tmp_path, monkeypatch, overflow_once, capsys
):
    # Two good steps double the scale: the run stops between them.
    monkeypatch.setattr(module, "_HIGHEST", 16.0)
    monkeypatch.setattr(module, "_GOOD_STEPS", 2)
    overrides = ("training.decay=inverse_sqrt", FLOAT16)
    straight, resumed = (tmp_path / name for name in ("straight", "resumed"))
    train_here(straight, *SHORT, *overrides)
    assert ", 1 step skipped, " in capsys.readouterr().err
    train_here(resumed, *SHORT, *overrides, "training.steps=2")
    train_here(resumed, *SHORT, *overrides)
    assert differences(straight, resumed) == []


@pytest.mark.slow
def test_gradients_that_are_nan_at_every_scale_end_the_training(tmp_path, monkeypatch):
    def with_nan_gradient(hidden, *arguments):
        return projected_crossentropy(hidden, *arguments) + tf.cast(
            tf.sqrt(0 * tf.reduce_sum(hidden)), tf.float32
        )

    monkeypatch.setattr(training_model, "projected_crossentropy", with_nan_gradient)
    overrides = (
        "training.steps=40",
        "training.validate_every=10",
        "training.average_last=0",
        FLOAT16,
    )
    lines = (
        "training diverged in step 15, .*: the gradient is NaN or infinite, even at the "
        "lowest scale of the loss"
    )
    with pytest.raises(FloatingPointError, match=lines):
        train_here(tmp_path / "model", *overrides)


@pytest.mark.slow
def test_a_training_in_another_precision_is_resumed_in_float16(tmp_path):
    train_here(tmp_path / "model", *SHORT, "training.steps=2")
    model_dir = train_here(tmp_path / "model", *SHORT, FLOAT16)
    assert len(logged(model_dir, "loss")) == 4
