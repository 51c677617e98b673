"""One layer of the decoder (section 3.1 of the paper)."""

from typing import Any

import keras
from keras import ops

from ..masks import implicit_mask, neighborhood_mask
from .key_value_cache import Cache, KeyValues
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the source, and a feed-forward network (section 3.1).

    A layer that is first called without a source has no attention to a source: the layer of a language model.
    d_model is read from the target.

    For decoding step by step, `init_cache` and `project_source` prepare what `step` attends to. Without a
    mask, the outputs of the steps equal the rows of one call.

    Args:
        {arguments}

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width), the encoder's output, or None.
        target_mask: bool (batch, target length), True = a real token. Defaults to the target's implicit Keras mask.
        source_mask: bool (batch, source length), True = a real token. Defaults to the source's implicit Keras mask.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, target length, d_model), with the target's implicit mask.

    Raises:
        ValueError: An argument breaks its rule; `num_heads` does not divide d_model and `key_dim` is None; or a
            layer that was built with a source is called without one, or the reverse.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def build(self, target_shape: Any, source_shape: Any = None) -> None:
        self.attention, self.attention_residual = self._build_attention(
            "attention", target_shape, target_shape, self.neighborhood
        )
        self.source_attention: Any = None
        if source_shape is not None:
            self.source_attention, self.source_attention_residual = self._build_attention(
                "source_attention", target_shape, source_shape
            )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(target_shape)

    def call(
        self,
        target: Any,
        source: Any = None,
        target_mask: Any = None,
        source_mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        if (source is None) != (self.source_attention is None):
            built = "without" if self.source_attention is None else "with"
            raise ValueError(
                f"source must be given in every call or in none; the layer was built {built} one and "
                f"received source={'None' if source is None else 'a tensor'}"
            )
        target = self._attend_to_target(target, target_mask, training)
        if source is not None:
            hidden = self.source_attention(
                self.source_attention_residual.sublayer_input(target),
                source,
                value_mask=source_mask,
                training=training,
            )
            target = self.source_attention_residual(target, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(target), training=training)
        return self.feed_forward_residual(target, hidden, training=training)

    def source_attention_scores(
        self, target: Any, source: Any, target_mask: Any = None, source_mask: Any = None
    ) -> Any:
        """Returns how much every target position attends to every source position.

        Args:
            target: as in a call.
            source: as in a call.
            target_mask: as in a call.
            source_mask: as in a call.

        Returns:
            (batch, num_heads, target length, source length).
        """
        target = self._attend_to_target(target, target_mask)
        queries = self.source_attention_residual.sublayer_input(target)
        _, scores = self.source_attention(queries, source, value_mask=source_mask, return_attention_scores=True)
        return scores

    def _attend_to_target(self, target: Any, target_mask: Any, training: bool | None = None) -> Any:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        hidden = self.attention_residual.sublayer_input(target)
        hidden = self.attention(hidden, hidden, value_mask=target_mask, use_causal_mask=True, training=training)
        return self.attention_residual(target, hidden, training=training)

    def init_cache(self, batch_size: Any, max_length: Any = None) -> Cache:
        """Returns an empty cache for the self-attention.

        Args:
            batch_size: int or int scalar.
            max_length: int or int scalar, the number of entries. Defaults to None: each step makes the cache longer.
        """
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        return self.attention.init_cache(batch_size, max_length)

    def project_source(self, source: Any) -> KeyValues:
        """Projects the source (batch, source length, any width) to keys and values, once for all steps."""
        return self.source_attention.project_key_value(source)

    def step(
        self,
        target: Any,
        cache: Cache,
        position: Any,
        mask: Any = None,
        source_key_values: KeyValues | None = None,
        source_mask: Any = None,
    ) -> tuple[Any, Cache]:
        """Computes new positions only.

        Args:
            target: (batch, n, d_model): the next position of n hypotheses in a beam search, or n next positions.
            cache: from `init_cache` or the previous step.
            position: int or int scalar, the place in a `FixedCache` where the n entries go.
            mask: bool, broadcasts to (batch, n, number of entries), True = attend: the entries that each of the n
                may attend to, within its neighborhood if the layer has one. Defaults to None: the n are next
                positions, and each sees itself and the entries before it, within its neighborhood.
            source_key_values: from `project_source`.
            source_mask: bool (batch, source length), True = a real token.

        Returns:
            (batch, n, d_model), and the cache with the n entries.

        Raises:
            ValueError: The n entries end after the `FixedCache`; only checked if the sizes and `position` are ints.
        """
        hidden = self.attention_residual.sublayer_input(target)
        first_entry = cache.next_entry(position)
        # Given twice, keys and values are projected by a product each: to join the kernels of the two would take
        # longer than it saves for so few positions.
        cache = cache.write(self.attention.project_key_value(hidden, hidden), position)
        mask = self._entries_to_attend_to(first_entry, target, cache) if mask is None else mask
        target = self.attention_residual(target, self.attention.attend(hidden, cache, mask))
        if source_key_values is not None:
            hidden = self.source_attention_residual.sublayer_input(target)
            source_mask = None if source_mask is None else ops.expand_dims(source_mask, 1)
            hidden = self.source_attention.attend(hidden, source_key_values, source_mask)
            target = self.source_attention_residual(target, hidden)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(target))
        return self.feed_forward_residual(target, hidden), cache

    def _entries_to_attend_to(self, first_entry: Any, target: Any, cache: Cache) -> Any:
        # What one call attends to: bool (1, n, number of entries)
        entries = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
        own_entries = ops.cast(first_entry, "int32") + ops.arange(ops.shape(target)[1], dtype="int32")
        if self.neighborhood is not None:
            return neighborhood_mask(own_entries, entries, self.neighborhood, use_causal_mask=True)
        return ops.expand_dims(own_entries[:, None] >= entries[None, :], 0)

    def compute_output_shape(self, target_shape: Any, source_shape: Any = None) -> Any:
        return target_shape
