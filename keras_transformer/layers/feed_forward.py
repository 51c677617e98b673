"""The position-wise feed-forward network (section 3.3 of the paper)."""

import keras
from keras import ops

from ..shapes import reshape
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """`activation(x W1 + b1) W2 + b2` at every position alike (section 3.3, equation 2).

    Args:
        d_ff: width between the two products.
        activation: name of a Keras activation; the paper's is ReLU.
        dropout: rate of dropout on the activations; the paper has none here.

    Call arguments:
        inputs: (…, d_model).
        training: whether anything is dropped.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: `d_ff` is not positive.

    Example:
        >>> FeedForward(d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(self, d_ff, activation="relu", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        if d_ff < 1:
            raise ValueError(f"d_ff must be positive; received d_ff={d_ff}")
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.supports_masking = True

    def build(self, input_shape):
        self.hidden_dense = keras.layers.Dense(
            self.d_ff, activation=self.activation, dtype=self.dtype_policy, name="hidden"
        )
        self.hidden_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.output_dense = keras.layers.Dense(input_shape[-1], dtype=self.dtype_policy, name="output")
        self.hidden_dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.d_ff))

    def call(self, inputs, training=None):
        # As rows of a matrix, where TensorFlow joins product, bias and activation into one operation.
        rows = ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))
        outputs = self.output_dense(self.hidden_dropout(self.hidden_dense(rows), training=training))
        return reshape(outputs, ops.shape(inputs))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }
