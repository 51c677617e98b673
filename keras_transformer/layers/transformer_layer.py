"""What encoder and decoder layers and their stacks share: their hyperparameters, and how sublayers are made."""

import inspect
from typing import Any

import keras

from ..config.rules import OddSize, Positive, Rate, Size, checked
from .feed_forward import FeedForward
from .layer_normalization import LayerNormalization
from .multi_head_attention import MultiHeadAttention
from .residual import Residual

_ARGUMENTS = """\
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
            False."""


def _own_arguments(cls: type) -> tuple[str, ...]:
    parameters = inspect.signature(cls).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD)


class TransformerLayer(keras.layers.Layer):
    """Base class of encoder and decoder layers and of their stacks.

    The signature of its constructor is where each hyperparameter of a layer is declared; `_ARGUMENTS` describes
    them. A subclass writes `{arguments}` in its docstring to have them described there.

    Attributes:
        hyperparameters: tuple of str. The names of the constructor's own arguments, which are attributes and keys
            of `get_config` too.
    """

    hyperparameters: tuple[str, ...]

    @checked
    def __init__(
        self,
        num_heads: Size,
        d_ff: Size,
        key_dim: Size | None = None,
        value_dim: Size | None = None,
        dropout: Rate = 0.1,
        attention_dropout: Rate = 0.0,
        activation_dropout: Rate = 0.0,
        activation: Any = "relu",
        norm_first: bool = False,
        neighborhood: OddSize | None = None,
        epsilon: Positive = 1e-6,
        attention_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        arguments = locals()
        super().__init__(**kwargs)
        for name in TransformerLayer.hyperparameters:
            setattr(self, name, arguments[name])
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.hyperparameters = _own_arguments(cls)
        cls.__doc__ = (cls.__doc__ or "").replace("        {arguments}", _ARGUMENTS)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in self.hyperparameters},
            "activation": keras.activations.serialize(self.activation),
        }

    def _build_attention(
        self, name: str, query_shape: Any, value_shape: Any, neighborhood: int | None = None
    ) -> tuple[MultiHeadAttention, Residual]:
        d_model = query_shape[-1]
        if self.key_dim is None and d_model % self.num_heads:
            raise ValueError(
                f"num_heads must divide d_model={d_model} unless key_dim is given; received num_heads={self.num_heads}"
            )
        attention = MultiHeadAttention(
            self.num_heads,
            self.key_dim or d_model // self.num_heads,
            self.value_dim,
            dropout=self.attention_dropout,
            use_bias=self.attention_bias,
            neighborhood=neighborhood,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build(query_shape, value_shape)
        return attention, self._build_residual(name, query_shape)

    def _build_feed_forward(self, input_shape: Any) -> tuple[FeedForward, Residual]:
        feed_forward = FeedForward(
            self.d_ff, self.activation, self.activation_dropout, dtype=self.dtype_policy, name="feed_forward"
        )
        feed_forward.build(input_shape)
        return feed_forward, self._build_residual("feed_forward", input_shape)

    def _build_residual(self, sublayer_name: str, input_shape: Any) -> Residual:
        residual = Residual(
            self.dropout, self.norm_first, self.epsilon, dtype=self.dtype_policy, name=f"{sublayer_name}_residual"
        )
        residual.build(input_shape)
        return residual


class TransformerStack(TransformerLayer):
    """Base class of `Encoder` and `Decoder`: `num_layers` layers with the same hyperparameters."""

    @checked
    def __init__(self, num_layers: Size, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_layers = num_layers

    def _build_layers(self, layer_class: type[TransformerLayer], *shapes: Any) -> None:
        arguments = {name: getattr(self, name) for name in TransformerLayer.hyperparameters}
        self.layers = [
            layer_class(**arguments, dtype=self.dtype_policy, name=f"layer_{i}") for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(*shapes)
        # Pre-norm layers do not normalize their sums; the stack does so once, at its end.
        self.final_norm = None
        if self.norm_first:
            self.final_norm = LayerNormalization(self.epsilon, dtype=self.dtype_policy, name="final_norm")
            self.final_norm.build(shapes[0])

    def _normalize(self, hidden: Any) -> Any:
        return hidden if self.final_norm is None else self.final_norm(hidden)


def _with_num_layers() -> inspect.Signature:
    self, *arguments = inspect.signature(TransformerLayer.__init__).parameters.values()
    num_layers = inspect.signature(TransformerStack.__init__).parameters["num_layers"]
    return inspect.Signature([self, num_layers, *arguments])


TransformerLayer.hyperparameters = _own_arguments(TransformerLayer)
# What `help` and editors show of a stack's arguments.
TransformerStack.__init__.__signature__ = _with_num_layers()  # type: ignore[attr-defined]
