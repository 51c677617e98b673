"""One layer of the decoder (section 3.1 of the paper)."""

import keras
from keras import ops

from ..masks import implicit_mask
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the source, and a feed-forward network (section 3.1).

    Called without a source the first time, the layer has no attention to a source: the layer of a language model.
    d_model is read from the target.

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
        target: (batch, target length, d_model).
        source: (batch, source length, any width), the encoder's output, or None.
        target_mask, source_mask: bool (batch, length), True = a real token; Keras' implicit masks are taken where
            they are not given.

    Returns:
        The shape of the target, with its implicit mask.

    One position after another, `init_cache` and `project_source` prepare what `step` attends to; the steps' outputs
    equal the rows of one call.

    Raises:
        ValueError: a size is not positive, `num_heads` does not divide d_model where `key_dim` is None, or a layer
            built with a source is called without one, or the reverse.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def build(self, target_shape, source_shape=None):
        self.attention, self.attention_residual = self._build_attention(
            "attention", target_shape, target_shape, self.neighborhood
        )
        self.source_attention = None
        if source_shape is not None:
            self.source_attention, self.source_attention_residual = self._build_attention(
                "source_attention", target_shape, source_shape
            )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(target_shape)

    def compute_output_shape(self, target_shape, source_shape=None):
        return target_shape

    def call(self, target, source=None, target_mask=None, source_mask=None, training=None):
        if (source is None) != (self.source_attention is None):
            raise ValueError(
                "source must be given in every call or in none; the layer was built "
                f"{'without' if self.source_attention is None else 'with'} one and "
                f"received {'None' if source is None else 'one'}"
            )
        target = self._attend_to_target(target, target_mask, training)
        if source is not None:
            hidden = self.source_attention(
                self.source_attention_residual.enter(target),
                source,
                value_mask=source_mask,
                training=training,
            )
            target = self.source_attention_residual(target, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.enter(target), training=training)
        return self.feed_forward_residual(target, hidden, training=training)

    def source_attention_scores(self, target, source, target_mask=None, source_mask=None):
        """How much every target position attends to every source position.

        Args: those of a call, all of them.

        Returns:
            (batch, num_heads, target length, source length).
        """
        target = self._attend_to_target(target, target_mask)
        queries = self.source_attention_residual.enter(target)
        _, scores = self.source_attention(
            queries, source, value_mask=source_mask, return_attention_scores=True
        )
        return scores

    def _attend_to_target(self, target, target_mask, training=None):
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        hidden = self.attention_residual.enter(target)
        hidden = self.attention(
            hidden, hidden, value_mask=target_mask, use_causal_mask=True, training=training
        )
        return self.attention_residual(target, hidden, training=training)

    def init_cache(self, batch_size, max_length):
        """An empty cache for the self-attention of `max_length` positions; the layer must be built."""
        return self.attention.init_cache(batch_size, max_length)

    def project_source(self, source):
        """Keys and values of the source, made once for all steps."""
        return self.source_attention.project_key_value(source)

    def step(self, target, cache, position, mask=None, source_cache=None, source_mask=None):
        """Computes new positions alone.

        Args:
            target: (batch, n, d_model): the next position or, in a beam search, that of n hypotheses.
            cache: from `init_cache` or the step before.
            position: int scalar, where in the cache the n entries go; None: after its end, and it gets longer.
            mask: bool, broadcast to (batch, n, max_length), True = attend: the written entries that each may see, of
                its neighborhood alone where the layer has one.
            source_cache: from `project_source`.
            source_mask: bool (batch, source length), True = a real token.

        Returns:
            (batch, n, d_model) and the cache, in which the n entries are written.
        """
        hidden = self.attention_residual.enter(target)
        cache = self.attention.write_cache(cache, hidden, position)
        target = self.attention_residual(target, self.attention.attend(hidden, cache, mask))
        if source_cache is not None:
            source_mask = None if source_mask is None else ops.expand_dims(source_mask, 1)
            hidden = self.source_attention_residual.enter(target)
            hidden = self.source_attention.attend(hidden, source_cache, source_mask)
            target = self.source_attention_residual(target, hidden)
        hidden = self.feed_forward(self.feed_forward_residual.enter(target))
        return self.feed_forward_residual(target, hidden), cache
