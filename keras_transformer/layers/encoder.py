"""The encoder: a stack of layers (section 3.1 of the paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras

from ..config.rules import OddSize, Positive, Rate, Size, check_attributes
from ..masks import implicit_mask
from ..tensors import Shape, Tensor
from .encoder_layer import EncoderLayer
from .transformer_stack import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(TransformerStack):
    """`num_layers` encoder layers; with `norm_first`, layer normalization after the last one.

    Args:
        num_layers: int. N, the number of layers.
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
        key_dim: int or None. d_k, the width of each head's queries and keys. Defaults to `d_model // num_heads`.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate of dropout on each sublayer's output. Defaults to 0.1.
        attention_dropout: float. Rate of dropout on the attention weights; the paper has none. Defaults to 0.
        activation_dropout: float. Rate of dropout inside the feed-forward network; the paper has none. Defaults to
            0.
        activation: str or callable. Activation of the feed-forward network. Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer instead of after the residual sum as in the
            paper. Defaults to False.
        neighborhood: int or None. r of restricted self-attention (section 4), odd: each position attends to the r
            positions centred on itself. Defaults to None: all positions.
        epsilon: float. Added to the variance in layer normalization. Defaults to 1e-6.
        attention_bias: bool. Whether the projections of attention add a bias; those of the paper do not. Defaults to
            False.

    Call arguments:
        inputs: (batch, length, d_model).
        mask: bool (batch, length), True = a real token. Defaults to the implicit Keras mask of the inputs.
        attention_mask: bool, True = attend, of a shape that `MultiHeadAttention` takes; not with a neighborhood.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask.

    Raises:
        ValueError: An argument breaks its rule, or `num_heads` does not divide d_model and `key_dim` is None.

    Example:
        >>> Encoder(num_layers=6, num_heads=8, d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        num_layers: Size,
        num_heads: Size,
        d_ff: Size,
        key_dim: Size | None = None,
        value_dim: Size | None = None,
        dropout: Rate = 0.1,
        attention_dropout: Rate = 0.0,
        activation_dropout: Rate = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        norm_first: bool = False,
        neighborhood: OddSize | None = None,
        epsilon: Positive = 1e-6,
        attention_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.activation = keras.activations.get(activation)
        self.norm_first = norm_first
        self.neighborhood = neighborhood
        self.epsilon = epsilon
        self.attention_bias = attention_bias
        check_attributes(self, Encoder)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self._build_layers(EncoderLayer, input_shape)

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        mask: Annotated[Tensor, "bool (batch, length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., length, length)"] | None = None,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        mask = implicit_mask(inputs) if mask is None else mask
        for layer in self.layers:
            inputs = layer(inputs, mask=mask, attention_mask=attention_mask, training=training)
        return self._normalize(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "neighborhood": self.neighborhood,
            "epsilon": self.epsilon,
            "attention_bias": self.attention_bias,
        }
