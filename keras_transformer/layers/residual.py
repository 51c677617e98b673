"""What surrounds every sublayer: residual connection, dropout and layer normalisation."""

import keras

from .dropout import Dropout
from .layer_normalization import LayerNormalization


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """`LayerNorm(x + Dropout(sublayer(x)))` (sections 3.1 and 5.4), or `x + Dropout(sublayer(LayerNorm(x)))`.

    A sublayer takes `enter(x)` and its result comes back by a call:
    `x = residual(x, sublayer(residual.enter(x)))`.

    Args:
        dropout: rate of dropout on the sublayer's output.
        norm_first: False normalises the sum, as in the paper; True the sublayer's input.
        epsilon: added to the variance before its root.

    Call arguments:
        inputs: (…, d_model), what went into the sublayer.
        sublayer_output: the same shape.

    Returns:
        The shape of the inputs.

    Example:
        >>> residual, dense = Residual(norm_first=True), keras.layers.Dense(8)
        >>> x = keras.random.normal((2, 8))
        >>> residual.build(x.shape)
        >>> residual(x, dense(residual.enter(x))).shape
        (2, 8)
    """

    def __init__(self, dropout=0.0, norm_first=False, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.norm_first = norm_first
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, inputs_shape, sublayer_output_shape=None):
        self.norm = LayerNormalization(self.epsilon, dtype=self.dtype_policy, name="norm")
        self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, dtype=self.dtype_policy)

    def enter(self, inputs):
        """What the sublayer takes."""
        return self.norm(inputs) if self.norm_first else inputs

    def call(self, inputs, sublayer_output, training=None):
        total = inputs + self.output_dropout(sublayer_output, training=training)
        return total if self.norm_first else self.norm(total)

    def compute_output_shape(self, inputs_shape, sublayer_output_shape=None):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "epsilon": self.epsilon,
        }
