"""The position-wise feed-forward network (section 3.3 of the paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras
from keras import ops

from ..config.rules import Rate, Size, check_attributes
from ..shapes import reshape_inferring
from ..tensors import Shape, Tensor
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """`activation(x W1 + b1) W2 + b2`, the same at every position (section 3.3, equation 2).

    Args:
        d_ff: int. Width between the two products.
        activation: str or callable. The paper's is ReLU. Defaults to "relu".
        dropout: float. Rate of dropout on the activations; the paper has none here. Defaults to 0.

    Call arguments:
        inputs: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Raises:
        ValueError: An argument breaks its rule.

    Example:
        >>> FeedForward(d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        d_ff: Size,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        dropout: Rate = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        check_attributes(self, FeedForward)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.hidden_dense = keras.layers.Dense(
            self.d_ff, activation=self.activation, dtype=self.dtype_policy, name="hidden"
        )
        self.hidden_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.output_dense = keras.layers.Dense(input_shape[-1], dtype=self.dtype_policy, name="output")
        self.hidden_dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.d_ff))

    def call(
        self, inputs: Annotated[Tensor, "(..., d_model)"], training: bool | None = None
    ) -> Annotated[Tensor, "(..., d_model)"]:
        # In two dimensions TensorFlow fuses product, bias and activation into one operation.
        rows = ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))
        outputs = self.output_dense(self.hidden_dropout(self.hidden_dense(rows), training=training))
        return reshape_inferring(outputs, ops.shape(inputs))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }
