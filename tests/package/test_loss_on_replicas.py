"""The loss in `compile`, `fit` and `evaluate` under a `tf.distribute` strategy."""

import subprocess
import sys

REPLICAS = """
import keras, numpy as np, tensorflow as tf
from keras_transformer import MaskedLabelSmoothedCrossentropy
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
# Two real tokens in each row: as many for either replica.
token_ids = np.array([[3, 1, 0], [2, 4, 0], [5, 1, 0], [6, 2, 0]])
sample_weight = np.array([1.0, 0.5, 2.0, 0.0])
def train(strategy):
    results = {}
    for reduction in ("sum_over_batch_size", "sum"):
        with strategy.scope():
            layers = [keras.layers.Embedding(7, 8, mask_zero=True), keras.layers.Dense(20, kernel_initializer="zeros")]
            model = keras.Sequential([keras.Input((3,), dtype="int32"), *layers])
            model.compile(keras.optimizers.SGD(0.5), MaskedLabelSmoothedCrossentropy(0.1, reduction))
        model.layers[0].set_weights([np.random.default_rng(0).normal(size=(7, 8))])
        evaluated = model.evaluate(token_ids, token_ids, batch_size=4, verbose=0)
        history = model.fit(token_ids, token_ids, sample_weight=sample_weight, batch_size=4, verbose=0).history
        results[reduction] = evaluated, history["loss"][0], *model.get_weights()
    return results
one = train(tf.distribute.get_strategy())
# All logits are 0: ln 20 for each of 8 tokens, which are weighted 2 (1 + 1/2 + 2) = 7.
np.testing.assert_allclose(one["sum_over_batch_size"][:2], [np.log(20), 7 / 8 * np.log(20)], rtol=1e-6)
np.testing.assert_allclose(one["sum"][:2], [8 * np.log(20), 7 * np.log(20)], rtol=1e-6)
two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
for reduction, values in one.items():
    for on_one, on_two in zip(values, two[reduction], strict=True):
        np.testing.assert_allclose(on_two, on_one, rtol=1e-6, atol=1e-6, err_msg=reduction)
"""


def test_two_replicas_have_the_loss_and_take_the_step_of_one():
    run = subprocess.run([sys.executable, "-c", REPLICAS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
