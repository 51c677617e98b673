"""What surrounds every sublayer: residual connection, dropout and normalization."""

from typing import Annotated, Any

import keras

from ...rules import Positive, Rate, check_attributes
from ...tensors import Shape, Tensor
from ..dropout import Dropout
from ..normalization import Normalization, make_normalization
from ..rematerialization import Layer


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(Layer):
    """`LayerNorm(x + Dropout(sublayer(x)))` (sections 3.1 and 5.4), or `x + Dropout(sublayer(LayerNorm(x)))`.

    Used as `x = residual(x, sublayer(residual.sublayer_input(x)))`.

    Args:
        dropout: float. Rate of dropout on the sublayer's output. Defaults to 0.
        norm_first: bool. Whether to normalize the sublayer's input instead of the sum as in the paper. Defaults to
            False.
        epsilon: float. Added to the variance, or to the mean square, in normalization. Defaults to 1e-6.
        normalization: "layer", or "rms", root mean square normalization (Zhang and Sennrich 2019). Defaults to "layer".
        seed: int or None. Dropout with a seed draws the same numbers in every run. Defaults to None.

    Call arguments:
        inputs: (..., d_model), what the sublayer was applied to.
        sublayer_output: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Example:
        >>> residual, dense = Residual(norm_first=True), keras.layers.Dense(8)
        >>> x = keras.random.normal((2, 8))
        >>> residual.build(x.shape)
        >>> residual(x, dense(residual.sublayer_input(x))).shape
        (2, 8)
    """

    def __init__(
        self,
        dropout: Rate = 0.0,
        norm_first: bool = False,
        epsilon: Positive = 1e-6,
        normalization: Normalization = "layer",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.norm_first = norm_first
        self.epsilon = epsilon
        self.normalization = normalization
        self.seed = seed
        check_attributes(self, Residual)
        self.supports_masking = True

    def build(self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None) -> None:
        self.norm = make_normalization(self.normalization, self.epsilon, self.dtype_policy, "norm")
        self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)

    def sublayer_input(self, inputs: Annotated[Tensor, "(..., d_model)"]) -> Annotated[Tensor, "(..., d_model)"]:
        """Returns what the sublayer is applied to: the inputs, normalized if `norm_first`."""
        return self.norm(inputs) if self.norm_first else inputs

    def call(
        self,
        inputs: Annotated[Tensor, "(..., d_model)"],
        sublayer_output: Annotated[Tensor, "(..., d_model)"],
        training: bool | None = None,
    ) -> Annotated[Tensor, "(..., d_model)"]:
        total = inputs + self.output_dropout(sublayer_output, training=training)
        return total if self.norm_first else self.norm(total)

    def compute_output_shape(self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "epsilon": self.epsilon,
            "normalization": self.normalization,
            "seed": self.seed,
        }
