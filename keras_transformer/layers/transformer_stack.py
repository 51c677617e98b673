"""The layers that the encoder and the decoder are made of, and the layer normalization after them."""

from collections.abc import Callable

import keras

from ..tensors import Shape, Tensor
from .layer_normalization import LayerNormalization
from .transformer_layer import TransformerLayer


class TransformerStack(keras.layers.Layer):
    """Base class of `Encoder` and `Decoder`: builds their layers.

    The attributes are the arguments of their constructors.
    """

    num_layers: int
    num_heads: int
    d_ff: int
    key_dim: int | None
    value_dim: int | None
    dropout: float
    attention_dropout: float
    activation_dropout: float
    activation: Callable[[Tensor], Tensor]
    norm_first: bool
    neighborhood: int | None
    epsilon: float
    attention_bias: bool

    def _build_layers(
        self, layer_class: Callable[..., TransformerLayer], input_shape: Shape, *other_shapes: Shape | None
    ) -> None:
        self.layers = [
            layer_class(
                num_heads=self.num_heads,
                d_ff=self.d_ff,
                key_dim=self.key_dim,
                value_dim=self.value_dim,
                dropout=self.dropout,
                attention_dropout=self.attention_dropout,
                activation_dropout=self.activation_dropout,
                activation=self.activation,
                norm_first=self.norm_first,
                neighborhood=self.neighborhood,
                epsilon=self.epsilon,
                attention_bias=self.attention_bias,
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(input_shape, *other_shapes)
        # Pre-norm layers do not normalize their sums; the stack does so once, at its end.
        self.final_norm = None
        if self.norm_first:
            self.final_norm = LayerNormalization(self.epsilon, dtype=self.dtype_policy, name="final_norm")
            self.final_norm.build(input_shape)

    def _normalize(self, hidden: Tensor) -> Tensor:
        return hidden if self.final_norm is None else self.final_norm(hidden)
