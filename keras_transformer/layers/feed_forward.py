"""The position-wise feed-forward network (section 3.3 of the paper)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..checks import boolean, integer, positive_int, rate
from ..masks import refuse_ragged
from ..tensors import Shape, Tensor, reshape_inferring
from .argument_hints import ArgumentHints
from .children import child_initializer, saved_dtype
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(ArgumentHints, keras.layers.Layer):
    """Position-wise feed-forward network, `activation(x W1 + b1) W2 + b2` (section 3.3).

    This is equation 2 of the paper. With `gated`, the network is a gated linear unit,
    `(activation(x Wg + bg) * (x W1 + b1)) W2 + b2` (Shazeer 2020, arXiv 2002.05202): SwiGLU with
    the activation "silu", GEGLU with "gelu". A gated network has 1.5 times as many weights; reduce
    `d_ff` to two thirds to keep the number of weights the same.

    Args:
        d_ff: int. Width of the hidden layer.
        activation: str or callable. Activation function. Defaults to "relu", as in the paper.
        dropout: float. Dropout rate on the hidden layer; the paper has none here. Defaults to 0.
        use_bias: bool. Whether the projections add a bias, as in the paper. Defaults to True.
        gated: bool. Whether to multiply the hidden layer by a gate, a second projection of the
            inputs. The activation is then applied to the gate only. Defaults to False.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to each kernel.
            Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to each bias.
            Defaults to None.
        seed: int or None. Seed for dropout. Defaults to None.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Raises:
        ConfigError: An argument is invalid. A ConfigError is a ValueError.

    Example:
        >>> FeedForward(d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> swiglu = FeedForward(d_ff=1365, activation="silu", gated=True, use_bias=False)
        >>> swiglu(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    other_names = {
        "dff": "d_ff",
        "dim_feedforward": "d_ff",
        "dropout_rate": "dropout",
        "ff_dim": "d_ff",
        "intermediate_dim": "d_ff",
        "rate": "dropout",
    }

    def __init__(
        self,
        d_ff: int,
        activation: str | Callable[..., Any] = "relu",
        dropout: float = 0.0,
        *,
        use_bias: bool = True,
        gated: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_ff = positive_int("d_ff", d_ff)
        self.activation = keras.activations.get(activation)
        self.dropout = rate("dropout", dropout)
        self.use_bias = boolean("use_bias", use_bias)
        self.gated = boolean("gated", gated)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.seed = integer("seed", seed, optional=True)
        self.input_spec = keras.InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        d_model = input_shape[-1]
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: d_model})
        hidden_activation = None if self.gated else self.activation
        self.hidden_dense = self.make_projection("hidden", self.d_ff, hidden_activation)
        self.gate_dense: Any = None
        if self.gated:
            self.gate_dense = self.make_projection("gate", self.d_ff, self.activation)
        self.hidden_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        self.output_dense = self.make_projection("output", d_model)
        self.hidden_dense.build(input_shape)
        if self.gate_dense is not None:
            self.gate_dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.d_ff))

    def make_projection(
        self, name: str, units: int | None, activation: Callable[..., Any] | None = None
    ) -> keras.layers.Layer:
        """Creates the projection "hidden", "gate" or "output".

        Override it to use another layer. The layer is called with a matrix (batch * length, width).
        """
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

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        refuse_ragged("inputs", inputs)
        # TensorFlow fuses the product, bias and activation into one operation if the input is a
        # matrix.
        rows = ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))
        hidden = self.hidden_dense(rows)  # (rows, d_ff)
        if self.gate_dense is not None:
            hidden = ops.multiply(self.gate_dense(rows), hidden)
        hidden = self.hidden_dropout(hidden, training=training)
        outputs = self.output_dense(hidden)  # (rows, d_model)
        return reshape_inferring(outputs, ops.shape(inputs))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": saved_dtype(self),
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
