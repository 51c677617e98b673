"""Adam in one operation is Keras' Adam, on one device and on several."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from command_line import run_python
from keras_transformer.training.step.optimizer import Adam

CODE = """
import sys
import keras, numpy as np, tensorflow as tf
from keras_transformer.training.step.optimizer import Adam
from keras_transformer.training.run.devices import make_strategy

strategy = make_strategy(2)

def train(optimizer_class):
    with strategy.scope():
        values = np.linspace(-1, 1, 12).reshape(3, 4), np.ones(5)
        variables = [keras.Variable(value, dtype="float32") for value in values]
        optimizer = optimizer_class(0.01, 0.9, 0.98, 1e-9)
        optimizer.build(variables)

    @tf.function
    def step(k):
        def of_replica():
            context = tf.distribute.get_replica_context()
            replica = tf.cast(context.replica_id_in_sync_group, tf.float32)
            gradients = [tf.sin(variables[0].value * k) + replica, variables[1].value * k - replica]
            if optimizer_class is Adam:
                optimizer.apply_sum(context.all_reduce("SUM", gradients), variables)
            else:
                optimizer.apply(gradients, variables)

        strategy.run(of_replica)

    for k in range(1, 6):
        step(tf.constant(float(k)))
    assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == 5
    return np.concatenate([variable.numpy().ravel() for variable in variables])

np.testing.assert_allclose(train(Adam), train(keras.optimizers.Adam), rtol=0, atol=1e-6)
"""


def test_updates_are_those_of_the_paper():
    # Section 5.3 by hand, in double precision.
    rate, beta_1, beta_2, epsilon = 0.01, 0.9, 0.98, 1e-9
    weights = np.array([0.5, -1.0, 2.0])
    gradients = np.array([[0.1, -2.0, 0.0], [0.3, 1.0, 1e-3], [-0.2, 0.5, 4.0]])
    variable = keras.Variable(weights, dtype="float32")
    optimizer = Adam(rate, beta_1, beta_2, epsilon)
    optimizer.build([variable])
    m = v = np.zeros(3)
    for step, gradient in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        weights = weights - rate * (m / (1 - beta_1**step)) / (np.sqrt(v / (1 - beta_2**step)) + epsilon)
        optimizer.apply_sum([tf.constant(gradient, "float32")], [variable])
        np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-5)


@pytest.mark.slow
def test_two_replicas_add_up_their_gradients_as_keras_does():
    run_python(CODE)
