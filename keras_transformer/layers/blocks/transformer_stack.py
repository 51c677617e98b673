"""The layers that the encoder and the decoder are made of, and the normalization after them."""

from collections.abc import Callable
from typing import Any, Unpack

import keras

from ...rules import OddSize, Positive, Rate, Size, check_attributes
from ...tensors import Shape, Tensor
from ..children import child_initializer, child_seed
from ..layer_arguments import Activation, LayerArguments
from ..normalization import Normalization, make_normalization
from .transformer_block import RelativePositions, TransformerBlock
from .transformer_layer import TransformerLayer


class TransformerStack(TransformerBlock):
    """Base class of `Encoder` and `Decoder`: builds their layers."""

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
        activation: Activation = "relu",
        norm_first: bool = False,
        neighborhood: OddSize | None = None,
        epsilon: Positive = 1e-6,
        attention_bias: bool = False,
        feed_forward_bias: bool = True,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        seed: int | None = None,
        normalization: Normalization = "layer",
        gated: bool = False,
        num_key_value_heads: Size | None = None,
        query_key_norm: bool = False,
        relative_positions: RelativePositions | None = None,
        flash_attention: bool | None = None,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        super().__init__(
            num_heads,
            d_ff,
            key_dim,
            value_dim,
            dropout,
            attention_dropout,
            activation_dropout,
            activation,
            norm_first,
            neighborhood,
            epsilon,
            attention_bias,
            feed_forward_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            seed,
            normalization,
            gated,
            num_key_value_heads,
            query_key_norm,
            relative_positions,
            flash_attention,
            **kwargs,
        )
        self.num_layers = num_layers
        check_attributes(self, TransformerStack)

    def _build_layers(
        self, layer_class: Callable[..., TransformerLayer], input_shape: Shape, *other_shapes: Shape | None
    ) -> None:
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: input_shape[-1]})
        self.layers = [
            layer_class(
                **{
                    **self._arguments(),
                    "kernel_initializer": child_initializer(self.kernel_initializer, name),
                    "bias_initializer": child_initializer(self.bias_initializer, name),
                    "seed": child_seed(self.seed, name),
                },
                dtype=self.dtype_policy,
                name=name,
            )
            for name in (f"layer_{i}" for i in range(self.num_layers))
        ]
        for layer in self.layers:
            layer.build(input_shape, *other_shapes)
        # Pre-norm layers do not normalize their sums; the stack does so once, at its end.
        self.final_norm = None
        if self.norm_first:
            self.final_norm = make_normalization(self.normalization, self.epsilon, self.dtype_policy, "final_norm")
            self.final_norm.build(input_shape)

    def rematerialized_call(self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if self._remat_mode is not None and self._remat_mode.mode in ("full", "larger_than"):
            # Its layers are computed again one by one, which needs memory for one of them at a time.
            return layer_call
        return super().rematerialized_call(layer_call, *args, **kwargs)

    def _normalize(self, hidden: Tensor) -> Tensor:
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers}
