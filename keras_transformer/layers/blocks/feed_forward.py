"""The position-wise feed-forward network (section 3.3 of the paper)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import keras
from keras import ops

from ...rules import Rate, Size, check_attributes
from ...shapes import reshape_inferring
from ...tensors import Shape, Tensor
from ..children import child_initializer
from ..dropout import Dropout
from ..layer_arguments import Activation, LayerArguments
from ..rematerialization import Layer


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(Layer):
    """`activation(x W1 + b1) W2 + b2`, the same at every position (section 3.3, equation 2).

    With `gated`, `(activation(x Wg + bg) * (x W1 + b1)) W2 + b2`, a gated linear unit (Shazeer 2020,
    arXiv 2002.05202): with the activation "silu" it is that paper's SwiGLU, with "gelu" its GEGLU. It has half as many
    weights again; with two thirds of the width, as many.

    Args:
        d_ff: int. Width between the two products.
        activation: str or callable. The paper's is ReLU. Defaults to "relu".
        dropout: float. Rate of dropout on the activations; the paper has none here. Defaults to 0.
        use_bias: bool. Whether the products add a bias, as those of the paper do. Defaults to True.
        gated: bool. Whether a second product of the inputs, with the activation, is multiplied with the first, which
            then has none. Defaults to False.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None, for each kernel. Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None, for each bias. Defaults to None.
        seed: int or None. Dropout with a seed draws the same numbers in every run. Defaults to None.

    Call arguments:
        inputs: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Raises:
        ValueError: An argument breaks its rule, or the inputs are of another width than those before.

    Example:
        >>> FeedForward(d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> swiglu = FeedForward(d_ff=1365, activation="silu", gated=True, use_bias=False)
        >>> swiglu(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        d_ff: Size,
        activation: Activation = "relu",
        dropout: Rate = 0.0,
        use_bias: bool = True,
        gated: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.gated = gated
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.seed = seed
        check_attributes(self, FeedForward)
        self.input_spec = keras.InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: input_shape[-1]})
        self.hidden_dense = self._make_dense(self.d_ff, "hidden", None if self.gated else self.activation)
        self.gate_dense = self._make_dense(self.d_ff, "gate", self.activation) if self.gated else None
        self.hidden_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        self.output_dense = self._make_dense(input_shape[-1], "output")
        self.hidden_dense.build(input_shape)
        if self.gate_dense is not None:
            self.gate_dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.d_ff))

    def _make_dense(
        self, units: int | None, name: str, activation: Callable[[Tensor], Tensor] | None = None
    ) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=child_initializer(self.kernel_initializer, name),
            bias_initializer=child_initializer(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self, inputs: Annotated[Tensor, "(..., d_model)"], training: bool | None = None
    ) -> Annotated[Tensor, "(..., d_model)"]:
        # In two dimensions TensorFlow fuses product, bias and activation into one operation.
        rows = ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))
        hidden = self.hidden_dense(rows)  # (rows, d_ff)
        if self.gate_dense is not None:
            hidden = ops.multiply(self.gate_dense(rows), hidden)
        outputs = self.output_dense(self.hidden_dropout(hidden, training=training))
        return reshape_inferring(outputs, ops.shape(inputs))

    if TYPE_CHECKING:
        # For users, to whom a tensor of Keras may have any type.
        def __call__(self, inputs: object, training: bool | None = None) -> Any: ...

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "gated": self.gated,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "seed": self.seed,
        }
