"""SimCut: its loss by NumPy, and which tokens are cut off."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
import tensorflow as tf
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.step import crossentropy as module
from keras_transformer.training.step.crossentropy import projected_crossentropy
from keras_transformer.training.step.model import TrainingModel

from keras_transformer import TransformerConfig, build_transformer
from keras_transformer.errors import ConfigError
from keras_transformer.layers import PositionalEmbedding
from keras_transformer.losses import token_crossentropy

CUT = 39


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def simcut(plain, cut, labels, label_smoothing, weight):
    """The loss summed over tokens, by NumPy, in float64."""
    log_p, log_q = (log_softmax(np.asarray(each, np.float64)) for each in (plain, cut))
    own = np.take_along_axis(log_p, labels[:, None], axis=-1)[:, 0]
    crossentropy = -(1 - label_smoothing) * own - label_smoothing * log_p.mean(axis=-1)
    return np.sum(crossentropy + weight * np.sum(np.exp(log_p) * (log_p - log_q), axis=-1))


@pytest.mark.parametrize("rows_at_once", [10, 1000])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_loss_by_numpy_and_gradients_by_tensorflow(with_bias, label_smoothing, rows_at_once, monkeypatch):
    random = np.random.default_rng(3)
    weights = {"hidden": random.normal(size=(2, 53, 6)), "kernel": random.normal(size=(6, 11))}
    if with_bias:
        weights["bias"] = random.normal(size=11)
    weights = {name: tf.constant(value, tf.float32) for name, value in weights.items()}
    labels = tf.constant(random.integers(0, 11, 53), tf.int32)
    monkeypatch.setattr(module, "_LOGITS", rows_at_once * 2 * 11)

    def by_tensorflow(hidden, kernel, bias=0.0):
        log_p, log_q = tf.unstack(tf.nn.log_softmax(tf.matmul(hidden, kernel) + bias))
        logits = tf.matmul(hidden[0], kernel) + bias
        return tf.reduce_sum(token_crossentropy(labels, logits, label_smoothing)) + 3 * tf.reduce_sum(
            tf.exp(log_p) * (log_p - log_q)
        )

    results = []
    for loss_of in (
        lambda **weights: projected_crossentropy(
            **weights, labels=labels, label_smoothing=label_smoothing, cutoff_consistency=3.0
        ),
        by_tensorflow,
    ):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = 0.3 * loss_of(**weights)
        results.append(tape.gradient(loss, weights))
    for name in weights:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-4, atol=1e-5)
    logits = np.asarray(weights["hidden"]) @ np.asarray(weights["kernel"]) + np.asarray(weights.get("bias", 0.0))
    expected = simcut(*logits, np.asarray(labels), label_smoothing, 3)
    np.testing.assert_allclose(loss, 0.3 * expected, rtol=1e-5)


def training_model(*overrides):
    config = load_recipe("demo", ["model.dropout=0", *overrides]).training
    keras.utils.set_random_seed(1)
    sizes = TransformerConfig(40, 40, num_layers=1, d_model=8, d_ff=16, num_heads=2, dropout=0.0)
    transformer = reference.randomize(build_transformer(sizes))
    table = transformer.source_embedding.token_table
    rows = np.array(table)
    rows[CUT] = 0
    table.assign(rows)
    model = TrainingModel(transformer, config, strategy=make_strategy(1))
    model.compile(optimizer=keras.optimizers.SGD(), auto_scale_loss=False)
    return model


def batch():
    source, target, labels = np.random.default_rng(0).integers(4, CUT, (3, 6, 9)).astype("int32")
    source[:2, 7:] = target[1:3, 6:] = labels[1:3, 6:] = 0
    return {"source": tf.constant(source), "target": tf.constant(target)}, tf.constant(labels)


def test_the_step_has_the_loss_of_a_text_without_the_tokens_that_are_cut_off():
    model = training_model("training.cutoff_consistency=3", "training.cutoff=0.3", "training.label_smoothing=0.1")
    inputs, labels = batch()
    kept = {name: np.asarray(each) for name, each in model._kept_tokens(1, inputs).items()}
    assert all(each.shape == (12, 9) and each[:6].all() for each in kept.values())
    # The embedding of this token is zero, and its position is added as to any other.
    cut = {name: np.where(kept[name][6:], ids, CUT) for name, ids in inputs.items()}
    cut = {name: np.where(np.asarray(inputs[name]) == 0, 0, ids) for name, ids in cut.items()}
    real = np.asarray(labels) != 0
    logits = [np.asarray(model.transformer(each))[real] for each in (inputs, cut)]
    expected = simcut(*logits, np.asarray(labels)[real], 0.1, 3)
    loss, gradients = model._gradients_of_part(1, inputs, labels, model.transformer.trainable_variables)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    other_loss, _ = model._gradients_of_part(2, inputs, labels, model.transformer.trainable_variables)
    assert abs(float(other_loss) - expected) > 1e-3


def test_if_nothing_is_cut_off_it_is_one_pass():
    inputs, labels = batch()
    results = []
    for overrides in (["training.cutoff_consistency=3", "training.cutoff=0"], ["training.cutoff=0.5"]):
        model = training_model(*overrides)
        results.append(model._gradients_of_part(0, inputs, labels, model.transformer.trainable_variables))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_what_is_cut_off_depends_on_seed_step_part_and_side():
    ids = {"source": tf.ones((100, 50), tf.int32), "target": tf.ones((100, 50), tf.int32)}

    def cut(model, number=0):
        return {name: ~np.asarray(kept)[100:] for name, kept in model._kept_tokens(number, ids).items()}

    model = training_model("training.cutoff_consistency=1", "training.cutoff=0.2")
    first = cut(model)
    found = [*first.values(), cut(model, 1)["source"]]
    model.optimizer.iterations.assign_add(1)
    found += cut(model).values()
    found.append(
        cut(training_model("training.cutoff_consistency=1", "training.cutoff=0.2", "training.seed=2"))["source"]
    )
    assert all(abs(each.mean() - 0.2) < 0.03 for each in found)
    # Independent ones agree in 0.2² + 0.8² of the places.
    agreements = [(one == other).mean() for place, one in enumerate(found) for other in found[:place]]
    assert all(abs(agreement - 0.68) < 0.04 for agreement in agreements)
    again = cut(training_model("training.cutoff_consistency=1", "training.cutoff=0.2"))
    assert all((again[name] == first[name]).all() for name in first)


def test_a_token_that_is_not_kept_leaves_its_position():
    embedding = PositionalEmbedding(7, 4)
    ids = np.array([[1, 2, 3]])
    whole, part = embedding(ids), embedding(ids, kept=np.array([[True, False, True]]))
    np.testing.assert_array_equal(part[:, ::2], whole[:, ::2])
    np.testing.assert_array_equal(part[0, 1], embedding.encode_positions(np.array([1]))[0])


def test_one_of_both_kinds_of_consistency():
    with pytest.raises(ConfigError, match=r"training.cutoff_consistency must be 0 if consistency=3.0; received"):
        load_recipe("demo", ["training.consistency=3", "training.cutoff_consistency=3"])
