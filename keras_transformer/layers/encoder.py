"""The stack of encoder layers (section 3.1 of the paper)."""

import keras

from ..masks import implicit_mask
from .encoder_layer import EncoderLayer
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(TransformerLayer):
    """`num_layers` encoder layers; with `norm_first`, a layer normalisation after the last.

    Args:
        num_layers: N, number of layers; the others are those of `EncoderLayer`.

    Call arguments and Returns: those of `EncoderLayer`.

    Example:
        >>> Encoder(num_layers=6, num_heads=8, d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(self, num_layers, num_heads, d_ff, **kwargs):
        super().__init__(num_heads, d_ff, **kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers must be positive; received num_layers={num_layers}")
        self.num_layers = num_layers

    def build(self, input_shape):
        self.layers = [
            EncoderLayer(**self.sublayer_config(), dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(input_shape)
        self.final_norm = self._build_final_norm(input_shape)

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, inputs, mask=None, attention_mask=None, training=None):
        mask = implicit_mask(inputs) if mask is None else mask
        for layer in self.layers:
            inputs = layer(inputs, mask=mask, attention_mask=attention_mask, training=training)
        return inputs if self.final_norm is None else self.final_norm(inputs)

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
