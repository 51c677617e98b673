"""What encoder and decoder layers share: their sizes, and how they make their sublayers."""

import keras

from .feed_forward import FeedForward
from .layer_normalization import LayerNormalization
from .multi_head_attention import MultiHeadAttention
from .residual import Residual


class TransformerLayer(keras.layers.Layer):
    """Base of `EncoderLayer`, `DecoderLayer` and their stacks; their docstrings explain the arguments."""

    def __init__(
        self,
        num_heads,
        d_ff,
        key_dim=None,
        value_dim=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation="relu",
        norm_first=False,
        neighborhood=None,
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (
            ("num_heads", num_heads),
            ("d_ff", d_ff),
            ("key_dim", key_dim),
            ("value_dim", value_dim),
        ):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be positive; received {name}={size}")
        for name, rate in (
            ("dropout", dropout),
            ("attention_dropout", attention_dropout),
            ("activation_dropout", activation_dropout),
        ):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be at least 0 and below 1; received {name}={rate}")
        if neighborhood is not None and (neighborhood < 1 or neighborhood % 2 == 0):
            raise ValueError(f"neighborhood must be positive and odd; received neighborhood={neighborhood}")
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
        self.supports_masking = True

    def sublayer_config(self):
        """The constructor arguments that every layer of a stack shares."""
        return {
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
        }

    def get_config(self):
        return {**super().get_config(), **self.sublayer_config()}

    def _build_attention(self, name, query_shape, value_shape, neighborhood=None):
        d_model = query_shape[-1]
        if self.key_dim is None and d_model % self.num_heads:
            raise ValueError(
                f"num_heads must divide d_model={d_model} where key_dim is not given; "
                f"received num_heads={self.num_heads}"
            )
        attention = MultiHeadAttention(
            self.num_heads,
            self.key_dim or d_model // self.num_heads,
            self.value_dim,
            dropout=self.attention_dropout,
            neighborhood=neighborhood,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(query_shape, value_shape)
        return attention, self._build_residual(name, query_shape)

    def _build_feed_forward(self, input_shape):
        feed_forward = FeedForward(
            self.d_ff,
            self.activation,
            self.activation_dropout,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        feed_forward.build(input_shape)
        return feed_forward, self._build_residual("feed_forward", input_shape)

    def _build_residual(self, name, input_shape):
        residual = Residual(
            self.dropout,
            self.norm_first,
            self.epsilon,
            dtype=self.dtype_policy,
            name=f"{name}_residual",
        )
        residual.build(input_shape)
        return residual

    def _build_final_norm(self, input_shape):
        # Pre-norm layers leave their sums unnormalised; a stack of them normalises once at its end.
        if not self.norm_first:
            return None
        norm = LayerNormalization(self.epsilon, dtype=self.dtype_policy, name="final_norm")
        norm.build(input_shape)
        return norm
