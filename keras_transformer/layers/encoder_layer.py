"""One layer of the encoder (section 3.1 of the paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras

from ..config.rules import OddSize, Positive, Rate, Size, check_attributes
from ..masks import implicit_mask
from ..tensors import Shape, Tensor
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection (section 3.1).

    d_model is read from the inputs.

    Args:
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
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
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
        check_attributes(self, EncoderLayer)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.attention, self.attention_residual = self._build_attention(
            "attention", input_shape, input_shape, self.neighborhood
        )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(input_shape)

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        mask: Annotated[Tensor, "bool (batch, length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., length, length)"] | None = None,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        mask = implicit_mask(inputs) if mask is None else mask
        hidden = self.attention_residual.sublayer_input(inputs)
        hidden = self.attention(hidden, hidden, value_mask=mask, attention_mask=attention_mask, training=training)
        inputs = self.attention_residual(inputs, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(inputs), training=training)
        return self.feed_forward_residual(inputs, hidden, training=training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
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
