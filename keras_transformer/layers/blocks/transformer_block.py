"""The arguments that encoder and decoder, and the layers that they are made of, have in common."""

import inspect
from typing import Any, Literal, Unpack

import keras

from ...rules import OddSize, Positive, Rate, Size, check_attributes, require
from ..layer_arguments import Activation, LayerArguments
from ..normalization import Normalization
from ..rematerialization import Layer

RelativePositions = Literal["rotary", "alibi", "t5"]


class TransformerBlock(Layer):
    """Base class of `EncoderLayer`, `DecoderLayer`, `Encoder` and `Decoder`, which describe the arguments."""

    def __init__(
        self,
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
        self.feed_forward_bias = feed_forward_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.seed = seed
        self.normalization = normalization
        self.gated = gated
        self.num_key_value_heads = num_key_value_heads
        self.query_key_norm = query_key_norm
        self.relative_positions = relative_positions
        self.flash_attention = flash_attention
        check_attributes(self, TransformerBlock)
        require(
            num_key_value_heads is None or num_heads % num_key_value_heads == 0,
            "num_key_value_heads",
            f"a divisor of num_heads={num_heads}",
            num_key_value_heads,
        )
        self.input_spec = keras.InputSpec(ndim=3)
        self.supports_masking = True

    def compute_output_spec(
        self, *args: Any, return_attention_scores: bool = False, **kwargs: Any
    ) -> keras.KerasTensor | tuple[Any, ...]:
        if return_attention_scores:
            # The shape of the output says nothing about the scores; running the call does.
            return keras.Operation.compute_output_spec(self, *args, return_attention_scores=True, **kwargs)
        return super().compute_output_spec(*args, **kwargs)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _ARGUMENTS}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **self._arguments(),
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
        }


# Each is an attribute of the same name.
_ARGUMENTS = [name for name in inspect.signature(TransformerBlock).parameters if name != "kwargs"]
