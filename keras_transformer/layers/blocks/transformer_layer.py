"""The sublayers that encoder and decoder layers are made of."""

from ...tensors import Shape
from ..attention.multi_head_attention import MultiHeadAttention
from ..children import child_initializer, child_seed
from .feed_forward import FeedForward
from .residual import Residual
from .transformer_block import RelativePositions, TransformerBlock


class TransformerLayer(TransformerBlock):
    """Base class of `EncoderLayer` and `DecoderLayer`: builds their sublayers."""

    def _build_attention(
        self,
        name: str,
        query_shape: Shape,
        value_shape: Shape,
        neighborhood: int | None = None,
        relative_positions: RelativePositions | None = None,
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
            flash_attention=self.flash_attention,
            kernel_initializer=child_initializer(self.kernel_initializer, name),
            bias_initializer=child_initializer(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            seed=child_seed(self.seed, name),
            neighborhood=neighborhood,
            num_key_value_heads=self.num_key_value_heads,
            query_key_norm=self.query_key_norm,
            relative_positions=relative_positions,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(query_shape, value_shape)
        return attention, self._build_residual(name, query_shape)

    def _build_feed_forward(self, input_shape: Shape) -> tuple[FeedForward, Residual]:
        name = "feed_forward"
        feed_forward = FeedForward(
            self.d_ff,
            self.activation,
            self.activation_dropout,
            use_bias=self.feed_forward_bias,
            gated=self.gated,
            kernel_initializer=child_initializer(self.kernel_initializer, name),
            bias_initializer=child_initializer(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            seed=child_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )
        feed_forward.build(input_shape)
        return feed_forward, self._build_residual(name, input_shape)

    def _build_residual(self, sublayer_name: str, input_shape: Shape) -> Residual:
        name = f"{sublayer_name}_residual"
        residual = Residual(
            self.dropout,
            self.norm_first,
            self.epsilon,
            self.normalization,
            seed=child_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )
        residual.build(input_shape)
        return residual
