"""Loss, gradients and metrics in `fit`, `evaluate` and plain loops on several devices: those of one
device."""

import concurrent.futures
import json

import pytest
from fresh_process import run_python
from training_runs import free_addresses

# Nine sentences of 0 to 5 tokens: replicas have different numbers of them, and in the last batch
# one has no row.
MODEL = """
import keras, numpy as np
from keras_transformer import MaskedAccuracy, MaskedLabelSmoothedCrossentropy, Perplexity
random = np.random.default_rng(0)
token_ids = random.integers(1, 7, (9, 5)) * (np.arange(5) < np.array([1, 0, 5, 4, 1, 5, 2, 3, 4])[:, None])
weights = random.random((9, 5)).astype("float32")
def make_model(outputs=1, reduction="sum_over_batch_size", model_class=keras.Model, **kwargs):
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Embedding(7, 8, mask_zero=True)(inputs)
    logits = [keras.layers.Dense(7, name=f"logits_{i}")(hidden) for i in range(outputs)]
    model = model_class(inputs, logits if outputs > 1 else logits[0])
    # The second output counts each position but those of class 3, in the Keras mask.
    losses = [
        MaskedLabelSmoothedCrossentropy(0.1, reduction=reduction),
        MaskedLabelSmoothedCrossentropy(0.0, reduction=reduction, padding_id=None, ignore_class=3),
    ][:outputs]
    metrics = [[MaskedAccuracy(), Perplexity()], [MaskedAccuracy(padding_id=None)]][:outputs]
    model.compile(keras.optimizers.SGD(0.5), losses, weighted_metrics=metrics, **kwargs)
    model.set_weights([np.random.default_rng(0).normal(size=weight.shape) for weight in model.get_weights()])
    model.optimizer.build(model.trainable_variables)
    return model
def fit(model, sample_weight=None, num_rows=9):
    x = token_ids[:num_rows]
    y = [x] * len(model.outputs)
    if sample_weight is not None:
        sample_weight = [sample_weight[:num_rows]] * len(model.outputs)
    if len(model.outputs) == 1:
        y, sample_weight = x, None if sample_weight is None else sample_weight[0]
    data = dict(y=y, sample_weight=sample_weight, batch_size=4, verbose=0)
    before = model.evaluate(x, **data, return_dict=True)
    during = model.fit(x, **data, shuffle=False).history
    return {"before": before, "during": during, "weights": dict(enumerate(model.get_weights()))}
def assert_equal(several, single, case):
    for name, expected in single.items():
        assert several[name].keys() == expected.keys() and len(expected) > 0
        for key in expected:
            message = f"{case}: {name} {key}"
            np.testing.assert_allclose(several[name][key], expected[key], rtol=1e-6, atol=1e-6, err_msg=message)
"""

TRAINING = """
import tensorflow as tf
def train(strategy, sample_weight=None, **kwargs):
    with strategy.scope():
        model = make_model(**kwargs)
    return fit(model, sample_weight)
def train_in_a_loop(strategy, reduction="sum_over_batch_size"):
    with strategy.scope():
        model = make_model()
    loss = MaskedLabelSmoothedCrossentropy(0.1, reduction=reduction)
    def replica_step(x, y, sample_weight):
        with tf.GradientTape() as tape:
            value = loss(y, model(x), sample_weight)
        model.optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return tf.reduce_sum(value)
    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(replica_step, batch), axis=None)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((token_ids, token_ids, weights)).batch(4).with_options(options)
    losses = [step(batch).numpy() for batch in strategy.experimental_distribute_dataset(data)]
    return {"losses": dict(enumerate(losses)), "weights": dict(enumerate(model.get_weights()))}
"""

REPLICAS = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
one_device = tf.distribute.get_strategy()
replicas = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
def train_on_one_batch(strategy):
    with strategy.scope():
        model = make_model()
    # Either replica has the whole batch.
    before = model.test_on_batch(token_ids, token_ids, return_dict=True)
    during = model.train_on_batch(token_ids, token_ids, return_dict=True)
    return {"before": before, "during": during, "weights": dict(enumerate(model.get_weights()))}
for run, kwargs in [
    (train, dict(sample_weight=weights, outputs=2, loss_weights=[1.0, 0.3])),
    (train, {}),
    (train, dict(sample_weight=weights[:, 0])),
    (train, dict(sample_weight=weights[:, :1], reduction="sum")),
    (train, dict(sample_weight=weights, run_eagerly=True)),
    (train_on_one_batch, {}),
    (train_in_a_loop, {}),
    (train_in_a_loop, dict(reduction=None)),
]:
    assert_equal(run(replicas, **kwargs), run(one_device, **kwargs), (run.__name__, kwargs))
# The value that all replicas have, where they meet: that of the whole batch.
with replicas.scope():
    outside = float(MaskedLabelSmoothedCrossentropy(0.1)(token_ids, np.ones((9, 5, 7), "float32")))
np.testing.assert_allclose(outside, np.log(7), rtol=1e-6)
"""

# Before anything else of TensorFlow.
WORKERS = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""

# What Keras 3.15 needs to train on several workers: its `_maybe_symbolic_build` cannot read their
# first batch, and it averages logs over their first axis.
WORKER = """
class WorkersModel(keras.Model):
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass
    def train_step(self, data):
        return {name: tf.reshape(value, (1,)) for name, value in super().train_step(data).items()}
    def test_step(self, data):
        return {name: tf.reshape(value, (1,)) for name, value in super().test_step(data).items()}
two_workers = train(strategy, weights, model_class=WorkersModel), train_in_a_loop(strategy)
one_device = tf.distribute.get_strategy()
assert_equal(two_workers[0], train(one_device, weights), "fit")
assert_equal(two_workers[1], train_in_a_loop(one_device), "loop")
"""

DATA_PARALLEL = """
import jax
def train(distribution, **kwargs):
    keras.distribution.set_distribution(distribution)
    return fit(make_model(), **kwargs, num_rows=8)
assert len(jax.devices()) == 2
data_parallel = keras.distribution.DataParallel(devices=keras.distribution.list_devices())
for kwargs in ({}, dict(sample_weight=weights[:, 0]), dict(sample_weight=weights)):
    assert_equal(train(data_parallel, **kwargs), train(None, **kwargs), kwargs)
"""

# Whatever happens, no test waits for ever.
SECONDS = 900


def run(*scripts, environments=({},)):
    """Runs a script in as many processes at once as there are environments."""
    code = "\n".join(scripts)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda env: run_python("-c", code, env=env, timeout=SECONDS), environments))


@pytest.mark.slow
def test_two_replicas_equal_one_device():
    run(MODEL, TRAINING, REPLICAS)


@pytest.mark.slow
def test_two_workers_equal_one_device():
    addresses = free_addresses(2)
    run(
        *(WORKERS, MODEL, TRAINING, WORKER),
        environments=[
            {
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                )
            }
            for index in range(2)
        ],
    )


@pytest.mark.slow
def test_data_parallel_on_jax_equals_one_device():
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    environment = {"KERAS_BACKEND": "jax", "XLA_FLAGS": flags}
    run(MODEL, DATA_PARALLEL, environments=[environment])
