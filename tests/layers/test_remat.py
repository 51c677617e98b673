"""`remat`: a stack computes its layers again for the gradient, and trains as it does without."""

import keras
import numpy as np
import pytest

from keras_transformer import Decoder, Encoder, PositionalEmbedding

TOKEN_IDS = np.array([[3, 1, 4, 0, 0], [5, 2, 6, 1, 0]])
OPTIONS = dict(num_heads=2, d_ff=12, dropout=0.3, attention_dropout=0.2, kernel_regularizer="l2")


def trained(remat, policy):
    """The weights and losses of a model with padding, dropout and regularizers after three
    steps."""
    keras.utils.set_random_seed(3)
    token_ids = keras.Input((None,), dtype="int32")
    hidden = PositionalEmbedding(9, 8, dtype=policy)(token_ids)
    encoded = Encoder(2, **OPTIONS, remat=remat, dtype=policy)(hidden)
    decoded = Decoder(1, **OPTIONS, remat=remat, dtype=policy)(hidden, encoded)
    model = keras.Model(token_ids, keras.layers.Dense(9, dtype=policy)(decoded))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    losses = model.fit(TOKEN_IDS, TOKEN_IDS, epochs=3, verbose=0).history["loss"]
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights], losses


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_training_is_the_same(policy):
    weights, losses = trained(False, policy)
    weights_with_remat, losses_with_remat = trained(True, policy)
    rtol, atol = (1e-5, 1e-6) if policy == "float32" else (2e-2, 2e-2)
    np.testing.assert_allclose(losses_with_remat, losses, rtol=rtol)
    for weight, expected in zip(weights_with_remat, weights, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=rtol, atol=atol)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads TensorFlow's graph")
def test_layers_are_computed_again_in_the_gradient():
    import tensorflow as tf

    def number_of_products(remat):
        encoder = Encoder(3, num_heads=2, d_ff=12, dropout=0.0, remat=remat)
        encoder.build((None, None, 8))

        @tf.function
        def gradients(rows):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(encoder(rows, training=True) ** 2)
            return tape.gradient(loss, [weight.value for weight in encoder.trainable_variables])

        graph = gradients.get_concrete_function(tf.TensorSpec((2, 5, 8))).graph
        return sum("MatMul" in operation.type for operation in graph.get_operations())

    assert number_of_products(True) > 1.2 * number_of_products(False)
