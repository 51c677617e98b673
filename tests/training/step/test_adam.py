"""Adam in one operation is the Adam of the paper."""

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.training.step.optimizer import Adam


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
        weights = weights - rate * (m / (1 - beta_1**step)) / (
            np.sqrt(v / (1 - beta_2**step)) + epsilon
        )
        optimizer.apply_sum([tf.constant(gradient, "float32")], [variable])
        np.testing.assert_allclose(variable.numpy(), weights, rtol=1e-5)
