"""Loss, metrics and schedule against numbers worked out by hand and the plain formulas in NumPy."""

import inspect
import math
import re
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    MaskedAccuracy,
    MaskedLabelSmoothedCrossentropy,
    Perplexity,
    WarmupInverseSqrt,
)

LABELS = np.array([[3, 1, 4, 0], [2, 0, 0, 0], [5, 1, 2, 6]])
LOGITS = np.random.default_rng(0).normal(scale=3.0, size=(3, 4, 7)).astype("float32")
NUM_TOKENS = 8


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def token_losses(labels, logits, label_smoothing):
    """The definition: cross-entropy against smoothed one-hot rows; 0 at padding."""
    vocab_size = logits.shape[-1]
    targets = (1 - label_smoothing) * np.eye(vocab_size)[labels] + label_smoothing / vocab_size
    return np.where(labels != 0, -(targets * log_softmax(logits)).sum(axis=-1), 0.0)


def mean_loss(labels, logits, label_smoothing):
    return token_losses(labels, logits, label_smoothing).sum() / max(1, (labels != 0).sum())


def gradient(function, x):
    """The gradient of a scalar function of one tensor, by the backend's automatic
    differentiation."""
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(function)(x))
    if keras.backend.backend() == "torch":
        x = ops.convert_to_tensor(x).requires_grad_()
        function(x).backward()
        return ops.convert_to_numpy(x.grad)
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


# The loss.


def test_loss_by_hand():
    # Logits (0, ln 2, 0, 0): probabilities (1, 2, 1, 1) / 5. Smoothed by 0.1 over four tokens,
    # label 1 has 0.925 and each other 0.025. Loss: 0.925 ln(5/2) + 3 * 0.025 ln 5 = 0.9682768.
    # The second token is padding and counts nothing.
    logits = np.log([[[1.0, 2.0, 1.0, 1.0], [9.0, 1.0, 1.0, 1.0]]]).astype("float32")
    loss = MaskedLabelSmoothedCrossentropy(label_smoothing=0.1)
    assert float(loss(np.array([[1, 0]]), logits)) == pytest.approx(0.9682768, abs=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
def test_loss_equals_numpy_with_smoothed_one_hot_labels_and_every_reduction(label_smoothing):
    expected = token_losses(LABELS, LOGITS, label_smoothing)
    for reduction, value in (
        (None, expected),
        ("none", expected),
        ("sum", expected.sum()),
        ("sum_over_batch_size", expected.sum() / NUM_TOKENS),
    ):
        loss = MaskedLabelSmoothedCrossentropy(label_smoothing, reduction=reduction)
        np.testing.assert_allclose(
            ops.convert_to_numpy(loss(LABELS, LOGITS)), value, rtol=1e-5, atol=1e-6
        )


def test_sample_weights_multiply_sentences_or_tokens():
    expected = token_losses(LABELS, LOGITS, 0.1)
    loss = MaskedLabelSmoothedCrossentropy(0.1)
    of_sentences = np.array([1.0, 0.0, 2.5], "float32")
    of_tokens = np.random.default_rng(0).random(LABELS.shape).astype("float32")
    for weights, broadcast in (
        (of_sentences, of_sentences[:, None]),
        (of_sentences[:, None], of_sentences[:, None]),
        (of_tokens, of_tokens),
    ):
        assert float(loss(LABELS, LOGITS, sample_weight=weights)) == pytest.approx(
            (expected * broadcast).sum() / NUM_TOKENS, rel=1e-5
        )


def test_one_label_for_each_row():
    # A classifier: (batch,) and (batch, vocab_size), and a weight for each row.
    labels, logits, weights = LABELS[:, 0], LOGITS[:, 0], np.array([1.0, 0.0, 2.5], "float32")
    expected = (token_losses(labels, logits, 0.1) * weights).sum() / 3
    assert float(MaskedLabelSmoothedCrossentropy()(labels, logits, weights)) == pytest.approx(
        expected, rel=1e-6
    )
    perplexity = Perplexity()
    perplexity.update_state(labels, logits, weights)
    expected = np.exp((token_losses(labels, logits, 0.0) * weights).sum() / 3.5)
    assert float(perplexity.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_equals_automatic_and_numerical_differentiation(label_smoothing):
    loss = MaskedLabelSmoothedCrossentropy(label_smoothing)
    by_hand = gradient(lambda logits: loss(LABELS, logits), LOGITS)

    vocab_size = LOGITS.shape[-1]
    targets = (1 - label_smoothing) * np.eye(vocab_size)[LABELS] + label_smoothing / vocab_size
    targets = (targets * (LABELS != 0)[..., None]).astype("float32")

    def plain_formula(logits):
        return -ops.sum(ops.multiply(targets, ops.log_softmax(logits))) / NUM_TOKENS

    np.testing.assert_allclose(by_hand, gradient(plain_formula, LOGITS), atol=1e-7)

    numerical = np.zeros(LOGITS.shape)
    for index in np.ndindex(LOGITS.shape):
        change = np.zeros(LOGITS.shape)
        change[index] = 1e-5
        above, below = LOGITS.astype("float64") + change, LOGITS.astype("float64") - change
        difference = mean_loss(LABELS, above, label_smoothing) - mean_loss(
            LABELS, below, label_smoothing
        )
        numerical[index] = difference / 2e-5
    np.testing.assert_allclose(by_hand, numerical, atol=1e-7)


def test_the_gradient_carries_the_weights_of_tokens():
    weights = np.random.default_rng(1).random(LABELS.shape).astype("float32")
    losses = MaskedLabelSmoothedCrossentropy(0.1, reduction=None)
    mean = MaskedLabelSmoothedCrossentropy(0.1)
    np.testing.assert_allclose(
        gradient(lambda logits: mean(LABELS, logits, sample_weight=weights), LOGITS),
        gradient(
            lambda logits: ops.sum(ops.multiply(weights, losses(LABELS, logits))) / NUM_TOKENS,
            LOGITS,
        ),
        atol=1e-7,
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_extreme_logits_give_the_right_loss_and_gradient(label_smoothing, size):
    # Sure and right, sure and wrong, all alike.
    logits = np.array([[[-size, size, -size], [-size, size, -size], [size] * 3]], "float32")
    labels = np.array([[1, 2, 1]])
    loss = MaskedLabelSmoothedCrossentropy(label_smoothing, reduction=None)
    losses = ops.convert_to_numpy(loss(labels, logits))
    np.testing.assert_allclose(losses, token_losses(labels, logits, label_smoothing), rtol=1e-5)
    mean = MaskedLabelSmoothedCrossentropy(label_smoothing)
    targets = (1 - label_smoothing) * np.eye(3)[labels] + label_smoothing / 3
    expected = (np.exp(log_softmax(logits)) - targets) / 3
    by_hand = gradient(lambda logits: mean(labels, logits), logits)
    np.testing.assert_allclose(by_hand, expected, atol=1e-6)


def test_padding_counts_nothing():
    loss = MaskedLabelSmoothedCrossentropy(0.1)
    changed = np.where((LABELS == 0)[..., None], 50.0, LOGITS).astype("float32")
    assert float(loss(LABELS, changed)) == float(loss(LABELS, LOGITS))
    assert np.all(gradient(lambda logits: loss(LABELS, logits), LOGITS)[LABELS == 0] == 0)
    longer = np.pad(LABELS, ((0, 0), (0, 3)))
    padded = np.pad(LOGITS, ((0, 0), (0, 3), (0, 0)), constant_values=1.0)
    assert float(loss(longer, padded)) == pytest.approx(float(loss(LABELS, LOGITS)), rel=1e-6)


def test_a_batch_of_padding_has_no_loss_and_no_gradient():
    loss = MaskedLabelSmoothedCrossentropy(0.1)
    labels = np.zeros_like(LABELS)
    assert float(loss(labels, LOGITS)) == 0.0
    assert np.all(gradient(lambda logits: loss(labels, logits), LOGITS) == 0.0)


@pytest.mark.parametrize("label", [-1, -100])
def test_labels_below_0_are_left_out_like_padding(label):
    labels = np.where(LABELS == 0, label, LABELS)
    labels[0, 3] = 0
    weights = np.random.default_rng(1).random(LABELS.shape).astype("float32")
    for reduction in ("sum_over_batch_size", "sum", None):
        loss = MaskedLabelSmoothedCrossentropy(0.1, reduction=reduction)
        for sample_weight in (None, weights):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(loss(labels, LOGITS, sample_weight)),
                ops.convert_to_numpy(loss(LABELS, LOGITS, sample_weight)),
            )
    loss = MaskedLabelSmoothedCrossentropy(0.1)
    assert float(loss(labels, LOGITS)) == pytest.approx(mean_loss(LABELS, LOGITS, 0.1), rel=1e-6)
    by_hand = gradient(lambda logits: loss(labels, logits), LOGITS)
    np.testing.assert_array_equal(by_hand, gradient(lambda logits: loss(LABELS, logits), LOGITS))
    assert np.all(np.isfinite(by_hand)) and np.all(by_hand[LABELS == 0] == 0)
    only = np.full_like(LABELS, label)
    assert float(loss(only, LOGITS)) == 0.0
    assert np.all(gradient(lambda logits: loss(only, logits), LOGITS) == 0.0)


def test_logits_of_low_precision_are_lifted_to_float32():
    logits = ops.cast(LOGITS, "bfloat16")
    value = MaskedLabelSmoothedCrossentropy(0.1)(LABELS, logits)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    rounded = ops.convert_to_numpy(ops.cast(logits, "float32"))
    assert float(value) == pytest.approx(mean_loss(LABELS, rounded, 0.1), rel=1e-6)


def test_a_reduction_that_the_loss_does_not_have_is_refused():
    with pytest.raises(ValueError) as error:
        MaskedLabelSmoothedCrossentropy(reduction="mean")
    message = "reduction must be 'sum_over_batch_size', 'sum' or None; received reduction='mean'"
    assert str(error.value) == message


def test_the_loss_has_no_dtype_but_float32():
    floatx = keras.config.floatx()
    keras.config.set_floatx("float16")
    try:
        loss = MaskedLabelSmoothedCrossentropy()
        value = loss(LABELS, LOGITS.astype("float16"))
    finally:
        keras.config.set_floatx(floatx)
    assert loss.dtype == keras.backend.standardize_dtype(value.dtype) == "float32"
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtype'"):
        MaskedLabelSmoothedCrossentropy(dtype="float64")


# The metrics.


def logits_of(predictions, vocab_size=5):
    return 3 * np.eye(vocab_size, dtype="float32")[np.array(predictions)]


def test_accuracy_is_a_share_of_tokens_not_of_batches():
    accuracy = MaskedAccuracy()
    # 1 of 3 tokens, then 1 of 1: 2 of 4, where the mean over batches would be 2/3.
    accuracy.update_state(np.array([[1, 2, 3, 0]]), logits_of([[1, 4, 4, 0]]))
    assert float(accuracy.result()) == pytest.approx(1 / 3)
    accuracy.update_state(np.array([[4, 0], [0, 0]]), logits_of([[4, 2], [0, 0]]))
    assert float(accuracy.result()) == 0.5
    accuracy.reset_state()
    accuracy.update_state(np.array([[2]]), logits_of([[2]]))
    assert float(accuracy.result()) == 1.0


def test_perplexity_by_hand_over_batches_of_different_size():
    # Uniform over 4 tokens: ln 4 each, three of them; then one of probability 1/2, beside padding.
    # exp((3 ln 4 + ln 2) / 4) = 2^(7/4) = 3.3635857.
    perplexity = Perplexity()
    perplexity.update_state(np.array([[1, 2, 3]]), np.zeros((1, 3, 4), "float32"))
    assert float(perplexity.result()) == pytest.approx(4.0, rel=1e-6)
    logits = np.log([[[1.0, 2.0, 0.5, 0.5], [9.0, 1.0, 1.0, 1.0]]]).astype("float32")
    perplexity.update_state(np.array([[1, 0]]), logits)
    assert float(perplexity.result()) == pytest.approx(2**1.75, rel=1e-6)


def test_metrics_weigh_by_sentence_or_token():
    accuracy = MaskedAccuracy()
    labels, logits = np.array([[1, 2], [3, 0]]), logits_of([[1, 4], [3, 0]])
    accuracy.update_state(labels, logits, sample_weight=np.array([1.0, 4.0]))
    assert float(accuracy.result()) == pytest.approx((1 + 4) / (1 + 1 + 4))
    accuracy.reset_state()
    accuracy.update_state(labels, logits, sample_weight=np.array([[1.0, 2.0], [0.5, 9.0]]))
    assert float(accuracy.result()) == pytest.approx((1 + 0.5) / (1 + 2 + 0.5))


# What is left out, in the loss and in the metrics.

LOSS_AND_METRICS = (MaskedLabelSmoothedCrossentropy, MaskedAccuracy, Perplexity)
# Probabilities (1, 2, 1, 1) / 5 and (4, 2, 1, 1) / 8 of four tokens.
PROBABILITIES = np.array([[[0.2, 0.4, 0.2, 0.2], [0.5, 0.25, 0.125, 0.125]]], "float32")


@pytest.mark.parametrize(
    ("padding_id", "ignore_class", "labels", "mean_loss", "accuracy"),
    [
        # Label 1 costs ln(5/2), and label 0 costs ln 2; both are right.
        (0, None, (1, 0), math.log(5 / 2), 1.0),
        (None, None, (1, 0), math.log(5) / 2, 1.0),
        (1, None, (1, 0), math.log(2), 1.0),
        (None, 1, (1, 0), math.log(2), 1.0),
        (None, 0, (1, 0), math.log(5 / 2), 1.0),
        # Label 2 costs ln 8 and is wrong.
        (3, None, (1, 2), math.log(20) / 2, 0.5),
        (0, 2, (1, 2), math.log(5 / 2), 1.0),
        # Labels that no vocabulary has.
        (0, 255, (255, 2), math.log(8), 0.0),
        (99, None, (99, 2), math.log(8), 0.0),
        (None, -100, (1, -100), math.log(5 / 2), 1.0),
        (None, None, (-100, 2), math.log(8), 0.0),
        # Nothing is left.
        (1, 0, (1, 0), 0.0, 0.0),
    ],
)
def test_padding_and_an_ignored_class_by_hand(
    padding_id, ignore_class, labels, mean_loss, accuracy
):
    labels, logits = np.array([labels]), np.log(PROBABILITIES)
    kwargs = dict(padding_id=padding_id, ignore_class=ignore_class)
    loss = MaskedLabelSmoothedCrossentropy(0.0, **kwargs)
    assert float(loss(labels, logits)) == pytest.approx(mean_loss, abs=1e-6)
    assert np.all(np.isfinite(gradient(lambda logits: loss(labels, logits), logits)))
    for from_logits, predictions in ((True, logits), (False, PROBABILITIES)):
        for metric, expected in (
            (MaskedAccuracy(**kwargs, from_logits=from_logits), accuracy),
            (Perplexity(**kwargs, from_logits=from_logits), math.exp(mean_loss)),
        ):
            metric.update_state(labels, predictions)
            assert float(metric.result()) == pytest.approx(expected, rel=1e-6)


def test_a_label_of_probability_0_has_a_finite_perplexity():
    # One token in a hundred counts as of probability 1.2e-38; the others are sure.
    perplexity = Perplexity(padding_id=None, from_logits=False)
    probabilities = np.tile(np.array([1.0, 0.0], "float32"), (1, 100, 1))
    perplexity.update_state(np.eye(1, 100, dtype="int32"), probabilities)
    assert float(perplexity.result()) == pytest.approx(1.2e-38**-0.01, rel=1e-5)


def test_without_a_padding_id_the_keras_mask_says_what_is_padding():
    # Inputs 0 are masked; labels 0 are a class. With a padding id, labels alone decide.
    layers = [keras.layers.Embedding(7, 8, mask_zero=True), keras.layers.Dense(7)]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
    labels = np.array([[0, 1, 5, 5], [0, 0, 1, 5], [1, 0, 6, 1]])
    logits = model.predict(LABELS, verbose=0)
    for padding_id, counted in ((None, LABELS != 0), (0, labels != 0)):
        model.compile(
            loss=MaskedLabelSmoothedCrossentropy(0.0, padding_id=padding_id),
            metrics=[MaskedAccuracy(padding_id=padding_id), Perplexity(padding_id=padding_id)],
        )
        logs = model.evaluate(LABELS, labels, verbose=0, return_dict=True)
        expected = -np.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)[..., 0][
            counted
        ].mean()
        assert logs["loss"] == pytest.approx(expected, rel=1e-6)
        assert logs["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
        assert logs["masked_accuracy"] == pytest.approx(
            (logits.argmax(-1) == labels)[counted].mean()
        )


# The rules themselves are those of config/test_checks.py.
@pytest.mark.parametrize(
    ("cls", "argument", "value", "rule"),
    [
        *(
            (MaskedLabelSmoothedCrossentropy, "label_smoothing", value, "at least 0 and below 1")
            for value in (-0.1, 1)
        ),
        (MaskedLabelSmoothedCrossentropy, "label_smoothing", None, "of type float"),
        *((cls, "padding_id", -1, "at least 0") for cls in LOSS_AND_METRICS),
        *(
            (cls, name, "0", "of type int or null")
            for cls in LOSS_AND_METRICS
            for name in ("padding_id", "ignore_class")
        ),
        *((cls, "from_logits", 1, "of type bool") for cls in LOSS_AND_METRICS),
        *((WarmupInverseSqrt, argument, 0, "positive") for argument in ("d_model", "warmup_steps")),
        *(
            (WarmupInverseSqrt, argument, None, "of type int")
            for argument in ("d_model", "warmup_steps")
        ),
        *((WarmupInverseSqrt, "scale", value, "positive and finite") for value in (0, math.inf)),
        (WarmupInverseSqrt, "scale", "1", "of type float"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(cls, argument, value, rule):
    valid = cls(d_model=4) if cls is WarmupInverseSqrt else cls()
    config = {**valid.get_config(), argument: value}
    for make in (lambda: cls(**config), lambda: cls.from_config(config)):
        with pytest.raises(ValueError) as error:
            make()
        assert str(error.value) == f"{argument} must be {rule}; received {argument}={value!r}"


@pytest.mark.parametrize("cls", [*LOSS_AND_METRICS, WarmupInverseSqrt])
def test_arguments_are_documented_and_in_the_configuration(cls):
    names = [*inspect.signature(cls).parameters]
    text = inspect.getdoc(cls).partition("Args:\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^ {4}(\w+): ", text, re.MULTILINE)) == sorted(names)
    instance = cls(d_model=4) if cls is WarmupInverseSqrt else cls()
    assert sorted(instance.get_config()) == sorted(names)
    assert type(instance).from_config(instance.get_config()).get_config() == instance.get_config()


# What y_true, y_pred and sample_weight may be.


def test_lists_are_taken_as_arrays_are():
    weights = np.random.default_rng(1).random(LABELS.shape).astype("float32")
    loss = MaskedLabelSmoothedCrossentropy()
    lists = LABELS.tolist(), LOGITS.tolist(), weights.tolist()
    assert float(loss(*lists)) == float(loss(LABELS, LOGITS, weights))
    for metric in (MaskedAccuracy(), Perplexity()):
        metric.update_state(*lists)
        of_lists = float(metric.result())
        metric.reset_state()
        metric.update_state(LABELS, LOGITS, weights)
        assert of_lists == float(metric.result())


@pytest.mark.parametrize("cls", LOSS_AND_METRICS)
@pytest.mark.parametrize("name", ["y_true", "y_pred", "sample_weight"])
def test_a_ragged_tensor_is_refused(cls, name):
    if keras.backend.backend() != "tensorflow":
        return  # Other backends have no ragged tensors.
    import tensorflow as tf

    arguments = dict(y_true=LABELS, y_pred=LOGITS, sample_weight=np.ones(LABELS.shape, "float32"))
    arguments[name] = tf.RaggedTensor.from_tensor(arguments[name])
    call = cls() if cls is MaskedLabelSmoothedCrossentropy else cls().update_state
    with pytest.raises(ValueError) as error:
        call(**arguments)
    assert str(error.value) == (
        f"{name} must not be ragged: pad it first, with to_tensor(); received a RaggedTensor"
    )


# Predictions that come from a softmax.


def softmax_warnings(output, loss, metrics=(), **compile_arguments):
    """Fits a model twice; returns the warnings that are about a softmax."""
    inputs = keras.Input((4, 5))
    model = keras.Model(inputs, output(inputs))
    model.compile("sgd", loss, metrics=list(metrics), **compile_arguments)
    x = np.random.default_rng(0).normal(size=(6, 4, 5)).astype("float32")
    labels = np.resize([1, 2, 0], (6, 4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model.fit(x, labels, batch_size=3, epochs=2, validation_data=(x, labels), verbose=0)
    return [str(warning.message) for warning in caught if "softmax" in str(warning.message)]


SOFTMAX = (
    "%s expects logits, but the predictions come from a softmax: remove the softmax, or pass "
    "from_logits=False"
)
SHOWS_SOFTMAX = keras.backend.backend() in ("tensorflow", "torch")
SOFTMAX_OUTPUTS = {
    "Dense": lambda inputs: keras.layers.Dense(3, activation="softmax")(inputs),
    "Softmax": lambda inputs: keras.layers.Softmax()(keras.layers.Dense(3)(inputs)),
    "function": lambda inputs: ops.softmax(keras.layers.Dense(3)(inputs)),
    "mixed": lambda inputs: ops.cast(
        keras.layers.Dense(3, activation="softmax", dtype="mixed_bfloat16")(inputs), "float32"
    ),
}


@pytest.mark.parametrize("output", SOFTMAX_OUTPUTS.values(), ids=SOFTMAX_OUTPUTS)
def test_a_softmax_under_a_loss_of_logits_is_one_warning(output):
    expected = [SOFTMAX % "masked_label_smoothed_crossentropy"] if SHOWS_SOFTMAX else []
    assert softmax_warnings(output, MaskedLabelSmoothedCrossentropy()) == expected


def test_a_softmax_under_a_compiled_step_and_a_metric_is_one_warning_each():
    expected = {SOFTMAX % name for name in ("masked_label_smoothed_crossentropy", "perplexity")}
    received = softmax_warnings(
        SOFTMAX_OUTPUTS["Dense"],
        MaskedLabelSmoothedCrossentropy(),
        [Perplexity(), MaskedAccuracy()],
        jit_compile=keras.backend.backend() != "torch",
    )
    assert set(received) == (expected if SHOWS_SOFTMAX else set())
    assert len(received) == len(set(received))


def test_logits_and_declared_probabilities_are_no_warning():
    logits = lambda inputs: keras.layers.Dense(3)(inputs)
    assert softmax_warnings(logits, MaskedLabelSmoothedCrossentropy(), [Perplexity()]) == []
    declared = MaskedLabelSmoothedCrossentropy(from_logits=False), [Perplexity(from_logits=False)]
    assert softmax_warnings(SOFTMAX_OUTPUTS["Dense"], *declared) == []


# The schedule.


def test_schedule_by_hand():
    # d_model 4 gives 1/2, warmup_steps 4 gives 4^-1.5 = 1/8. The first update is step 1.
    schedule = WarmupInverseSqrt(d_model=4, warmup_steps=4)
    for iterations, rate in ((0, 1 / 16), (1, 2 / 16), (3, 1 / 4), (15, 1 / 8), (99, 1 / 20)):
        assert float(schedule(iterations)) == pytest.approx(rate, rel=1e-6)


def test_the_rate_of_the_paper_is_highest_at_the_end_of_warmup():
    schedule = WarmupInverseSqrt(d_model=512, warmup_steps=4000)
    rates = ops.convert_to_numpy(schedule(np.arange(20000)))
    assert rates.argmax() == 3999
    assert rates[3999] == pytest.approx(1 / np.sqrt(512 * 4000), rel=1e-6)
    assert np.all(np.diff(rates[:4000]) > 0) and np.all(np.diff(rates[3999:]) < 0)
    doubled = WarmupInverseSqrt(d_model=512, warmup_steps=4000, scale=2.0)
    assert float(doubled(123)) == pytest.approx(2 * rates[123])


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_an_optimizer_takes_the_steps_of_the_schedule(optimizer_class):
    # With a constant gradient of 1 SGD and Adam alike move by the rate itself.
    variable = keras.Variable(10.0)
    optimizer = optimizer_class(WarmupInverseSqrt(d_model=4, warmup_steps=4))
    for steps in range(1, 6):
        optimizer.apply([ops.ones(())], [variable])
        moved = sum(0.5 * min(step**-0.5, step / 8) for step in range(1, steps + 1))
        assert 10.0 - float(variable) == pytest.approx(moved, rel=1e-4)


# All of them in somebody's compile and fit.


def test_fit_with_loss_metrics_and_schedule_then_save_and_go_on(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(7, 8, mask_zero=True),
            keras.layers.Dense(7),
        ]
    )
    model.compile(
        keras.optimizers.Adam(WarmupInverseSqrt(d_model=8, warmup_steps=10)),
        MaskedLabelSmoothedCrossentropy(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
    )
    # Two batches of different numbers of tokens: metrics are means over tokens.
    token_ids = np.tile(LABELS, (2, 1))
    logs = model.evaluate(token_ids[:3], LABELS, verbose=0, return_dict=True)
    logits = model.predict(token_ids[:3], verbose=0)
    assert logs["loss"] == pytest.approx(mean_loss(LABELS, logits, 0.1), rel=1e-5)
    assert logs["perplexity"] == pytest.approx(np.exp(mean_loss(LABELS, logits, 0.0)), rel=1e-5)
    correct = (logits.argmax(-1) == LABELS)[LABELS != 0].mean()
    assert logs["masked_accuracy"] == pytest.approx(correct)
    history = model.fit(token_ids, token_ids, batch_size=2, epochs=30, verbose=0).history
    assert history["masked_accuracy"][-1] == 1.0
    assert history["perplexity"][-1] < history["perplexity"][0]

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == model.loss.get_config()
    schedule, loaded_schedule = model.optimizer._learning_rate, loaded.optimizer._learning_rate
    assert loaded_schedule.get_config() == schedule.get_config()
    assert float(loaded.optimizer.learning_rate) == float(model.optimizer.learning_rate)
    assert loaded.evaluate(token_ids, token_ids, verbose=0) == pytest.approx(
        model.evaluate(token_ids, token_ids, verbose=0)
    )


def test_the_loss_reads_probabilities_as_its_metrics_do():
    logits = np.random.default_rng(1).normal(size=(2, 3, 5)).astype("float32")
    labels = np.array([[1, 4, 0], [2, 0, 0]])
    expected = MaskedLabelSmoothedCrossentropy(0.1)(labels, logits)
    loss = MaskedLabelSmoothedCrossentropy.from_config(
        MaskedLabelSmoothedCrossentropy(0.1, from_logits=False).get_config()
    )
    np.testing.assert_allclose(float(loss(labels, ops.softmax(logits))), float(expected), rtol=1e-6)
    # What a softmax rounds to 0 has a loss that is finite.
    assert 80 < float(loss(np.array([[1]]), np.array([[[1.0, 0.0]]], "float32"))) < 88
