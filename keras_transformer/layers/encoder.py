"""The encoder: a stack of layers (section 3.1 of the paper)."""

from typing import Any

import keras

from ..masks import implicit_mask
from .encoder_layer import EncoderLayer
from .transformer_layer import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(TransformerStack):
    """`num_layers` encoder layers; with `norm_first`, layer normalization after the last one.

    Args:
        num_layers: int. N, the number of layers.
        {arguments}

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

    def build(self, input_shape: Any) -> None:
        self._build_layers(EncoderLayer, input_shape)

    def call(self, inputs: Any, mask: Any = None, attention_mask: Any = None, training: bool | None = None) -> Any:
        mask = implicit_mask(inputs) if mask is None else mask
        for layer in self.layers:
            inputs = layer(inputs, mask=mask, attention_mask=attention_mask, training=training)
        return self._normalize(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape
