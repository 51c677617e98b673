"""The sublayers that encoder and decoder layers are made of."""

from collections.abc import Callable

import keras

from ..tensors import Shape, Tensor
from .feed_forward import FeedForward
from .multi_head_attention import MultiHeadAttention
from .residual import Residual


class TransformerLayer(keras.layers.Layer):
    """Base class of `EncoderLayer` and `DecoderLayer`: builds their sublayers.

    The attributes are the arguments of their constructors.
    """

    num_heads: int
    d_ff: int
    key_dim: int | None
    value_dim: int | None
    dropout: float
    attention_dropout: float
    activation_dropout: float
    activation: Callable[[Tensor], Tensor]
    norm_first: bool
    epsilon: float
    attention_bias: bool

    def _build_attention(
        self, name: str, query_shape: Shape, value_shape: Shape, neighborhood: int | None = None
    ) -> tuple[MultiHeadAttention, Residual]:
        d_model, key_dim = query_shape[-1], self.key_dim
        if key_dim is None:
            if d_model is None or d_model % self.num_heads:
                raise ValueError(
                    f"num_heads must divide d_model={d_model} unless key_dim is given; "
                    f"received num_heads={self.num_heads}"
                )
            key_dim = d_model // self.num_heads
        attention = MultiHeadAttention(
            self.num_heads,
            key_dim,
            self.value_dim,
            dropout=self.attention_dropout,
            use_bias=self.attention_bias,
            neighborhood=neighborhood,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(query_shape, value_shape)
        return attention, self._build_residual(name, query_shape)

    def _build_feed_forward(self, input_shape: Shape) -> tuple[FeedForward, Residual]:
        feed_forward = FeedForward(
            self.d_ff, self.activation, self.activation_dropout, dtype=self.dtype_policy, name="feed_forward"
        )
        feed_forward.build(input_shape)
        return feed_forward, self._build_residual("feed_forward", input_shape)

    def _build_residual(self, sublayer_name: str, input_shape: Shape) -> Residual:
        residual = Residual(
            self.dropout, self.norm_first, self.epsilon, dtype=self.dtype_policy, name=f"{sublayer_name}_residual"
        )
        residual.build(input_shape)
        return residual
