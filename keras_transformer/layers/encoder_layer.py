"""One layer of the encoder (section 3.1 of the paper)."""

from typing import Any

import keras

from ..masks import implicit_mask
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection (section 3.1).

    d_model is read from the inputs.

    Args:
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
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def build(self, input_shape: Any) -> None:
        self.attention, self.attention_residual = self._build_attention(
            "attention", input_shape, input_shape, self.neighborhood
        )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(input_shape)

    def call(self, inputs: Any, mask: Any = None, attention_mask: Any = None, training: bool | None = None) -> Any:
        mask = implicit_mask(inputs) if mask is None else mask
        hidden = self.attention_residual.sublayer_input(inputs)
        hidden = self.attention(hidden, hidden, value_mask=mask, attention_mask=attention_mask, training=training)
        inputs = self.attention_residual(inputs, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(inputs), training=training)
        return self.feed_forward_residual(inputs, hidden, training=training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape
