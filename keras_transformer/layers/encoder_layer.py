"""One layer of the encoder (section 3.1 of the paper)."""

import keras

from ..masks import implicit_mask
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and a feed-forward network, each with its residual connection (section 3.1).

    d_model is read from the input.

    Args:
        num_heads: h, number of attention heads.
        d_ff: width inside the feed-forward network.
        key_dim: d_k; `d_model // num_heads` if None.
        value_dim: d_v; `key_dim` if None.
        dropout: rate of dropout on each sublayer's output.
        attention_dropout: rate of dropout on the attention weights; the paper has none.
        activation_dropout: rate of dropout inside the feed-forward network; the paper has none.
        activation: name of the feed-forward network's activation.
        norm_first: False normalises after the residual sum, as in the paper; True before each sublayer.
        neighborhood: r of restricted self-attention (section 4), odd: positions that each attends to; None for all.
        epsilon: added to the variance in layer normalisation.

    Call arguments:
        inputs: (batch, length, d_model).
        mask: bool (batch, length), True = a real token; Keras' implicit mask is taken where it is not given.
        attention_mask: bool, broadcast to (batch, length, length), True = attend; not with a neighborhood.

    Returns:
        The shape of the inputs, with their mask.

    Raises:
        ValueError: a size is not positive, or `num_heads` does not divide d_model where `key_dim` is None.

    Example:
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def build(self, input_shape):
        self.attention, self.attention_residual = self._build_attention(
            "attention", input_shape, input_shape, self.neighborhood
        )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(input_shape)

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, inputs, mask=None, attention_mask=None, training=None):
        mask = implicit_mask(inputs) if mask is None else mask
        hidden = self.attention_residual.enter(inputs)
        hidden = self.attention(
            hidden, hidden, value_mask=mask, attention_mask=attention_mask, training=training
        )
        inputs = self.attention_residual(inputs, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.enter(inputs), training=training)
        return self.feed_forward_residual(inputs, hidden, training=training)
