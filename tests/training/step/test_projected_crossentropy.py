"""The training loss without logits: same values and gradients as the loss with logits, with little
memory."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.losses import token_crossentropy
from keras_transformer.training.step import crossentropy as module
from keras_transformer.training.step.crossentropy import projected_crossentropy


def inputs(passes, num_tokens=53, d_model=6, vocab_size=11, scale=1.0):
    random = np.random.default_rng(passes)
    hidden = tf.constant(scale * random.normal(size=(passes, num_tokens, d_model)), tf.float32)
    kernel = tf.constant(scale * random.normal(size=(d_model, vocab_size)), tf.float32)
    return hidden, kernel, tf.constant(random.integers(0, vocab_size, num_tokens), tf.int32)


def with_logits(hidden, kernel, labels, label_smoothing, consistency, bias=None):
    """The same by the public loss, and R-Drop's formula as its paper writes it."""
    logits = tf.matmul(hidden, kernel)
    logits = logits if bias is None else logits + bias
    passes = hidden.shape[0]
    total = sum(
        tf.reduce_sum(token_crossentropy(labels, logits[i], label_smoothing)) for i in range(passes)
    )
    if passes == 2:
        log_p, log_q = tf.unstack(tf.nn.log_softmax(logits))
        p, q = tf.exp(log_p), tf.exp(log_q)
        divergence = tf.reduce_sum(p * (log_p - log_q)) + tf.reduce_sum(q * (log_q - log_p))
        total += consistency / 2 * divergence
    return total / passes


@pytest.mark.parametrize("rows_at_once", [1, 10, 53, 1000])
@pytest.mark.parametrize("label_smoothing", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("passes, consistency", [(1, 0.0), (2, 0.0), (2, 5.0)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_loss_and_gradients_are_those_of_the_logits(
    with_bias, passes, consistency, label_smoothing, rows_at_once, monkeypatch
):
    hidden, kernel, labels = inputs(passes)
    weights = {"hidden": hidden, "kernel": kernel}
    if with_bias:
        weights["bias"] = tf.constant(
            np.random.default_rng(7).normal(size=kernel.shape[1]), tf.float32
        )
    monkeypatch.setattr(module, "_LOGITS", rows_at_once * passes * kernel.shape[1])
    results = []
    for function in (projected_crossentropy, with_logits):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = 0.3 * function(
                **weights, labels=labels, label_smoothing=label_smoothing, consistency=consistency
            )
        results.append((loss, *tape.gradient(loss, list(weights.values()))))
    assert len(results[0]) == 1 + len(weights)
    for ours, expected in zip(*results):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_one_token_by_hand():
    # Logits 1 and 0: p = e / (e + 1). Half of the smoothing goes to either token.
    hidden, kernel = tf.constant([[[1.0]]]), tf.constant([[1.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([hidden, kernel])
        loss = projected_crossentropy(hidden, kernel, tf.constant([0]), label_smoothing=0.2)
    p = np.e / (np.e + 1)
    # A few units of the last place of a probability, which differences of probabilities keep.
    rounding = 5e-7
    assert float(loss) == pytest.approx(-0.9 * np.log(p) - 0.1 * np.log(1 - p), abs=rounding)
    of_hidden, of_kernel = tape.gradient(loss, [hidden, kernel])
    assert float(of_hidden[0, 0, 0]) == pytest.approx(p - 0.9, abs=rounding)
    np.testing.assert_allclose(of_kernel[0], [p - 0.9, 0.9 - p], rtol=0, atol=rounding)


def test_huge_logits_stay_finite_and_the_gradient_exact():
    hidden, kernel, labels = inputs(1, scale=30.0)
    with tf.GradientTape() as tape:
        tape.watch([hidden, kernel])
        loss = projected_crossentropy(hidden, kernel, labels)
    of_hidden = tape.gradient(loss, hidden)
    assert np.isfinite(loss)
    p = tf.nn.softmax(tf.matmul(hidden, kernel)) - tf.one_hot(labels, kernel.shape[1])
    np.testing.assert_allclose(
        of_hidden, tf.matmul(p, kernel[None], transpose_b=True), rtol=1e-4, atol=1e-4
    )


def test_bfloat16_stays_near_float32():
    hidden, kernel, labels = inputs(1, num_tokens=500)
    exact = float(projected_crossentropy(hidden, kernel, labels, 0.1))
    rounded = float(projected_crossentropy(tf.cast(hidden, tf.bfloat16), kernel, labels, 0.1))
    assert rounded == pytest.approx(exact, rel=5e-3)


def test_nothing_in_the_graph_is_as_large_as_tokens_times_vocabulary(monkeypatch):
    num_tokens, vocab_size = 4096, 512
    monkeypatch.setattr(module, "_LOGITS", 64 * vocab_size)

    @tf.function
    def gradients(hidden, kernel, labels):
        loss = projected_crossentropy(hidden, kernel, labels, 0.1)
        return tf.gradients(loss, [hidden, kernel])

    traced = gradients.get_concrete_function(
        tf.TensorSpec((1, num_tokens, 8)),
        tf.TensorSpec((8, vocab_size)),
        tf.TensorSpec((num_tokens,), tf.int32),
    )
    sizes, graphs = [], [traced.graph]
    while graphs:
        graph = graphs.pop()
        graphs += [
            graph._get_function(name).graph
            for name in graph._functions
            if graph._get_function(name).graph
        ]
        for operation in graph.get_operations():
            sizes += [out.shape.num_elements() or 0 for out in operation.outputs if out.shape.rank]
    assert max(sizes) < num_tokens * vocab_size / 10
