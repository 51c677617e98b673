"""Computes a Keras layer's causal self-attention, one position at a time."""

from typing import Any

from keras import ops

from ..keras_versions import projections_of
from ..layers.cache import Cache, KeyValues, empty_cache
from ..layers.scaled_dot_product_attention import attention_weights, product_of_heads
from ..masks import combine, sliding_window_mask
from ..tensors import Dimension, Tensor


class StockAttention:
    """A wrapper that adds `init_cache` and `step` to a Keras attention layer.

    It supports `keras.layers.MultiHeadAttention` and `keras.layers.GroupQueryAttention`.
    """

    def __init__(self, layer: Any) -> None:
        self._projections = projections_of(layer)
        config = layer.get_config()
        key_dim = config.get("key_dim", config.get("head_dim"))
        num_heads = config.get("num_key_value_heads", config.get("num_heads"))
        self._cache_sizes = num_heads, key_dim, config.get("value_dim", key_dim)
        self._dtype = layer.compute_dtype
        # Keras has supported sliding windows since release 3.15.
        self._sliding_window = config.get("sliding_window")

    @property
    def needs_position_ids(self) -> bool:
        return self._sliding_window is not None

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None) -> Cache:
        return empty_cache(batch_size, *self._cache_sizes, max_length, self._dtype)

    def step(
        self,
        hidden: Tensor,
        cache: Cache,
        position: Dimension,
        mask: Tensor | None,
        position_ids: Any = None,
        entry_position_ids: Any = None,
    ) -> tuple[Tensor, Cache]:
        # Copy to drop the Keras mask, since the projections would warn about it.
        hidden = ops.copy(hidden)
        # In Keras, heads come after positions; in caches, before them.
        queries = ops.swapaxes(self._projections["query"](hidden), 1, 2)
        keys = ops.swapaxes(self._projections["key"](hidden), 1, 2)
        values = ops.swapaxes(self._projections["value"](hidden), 1, 2)
        cache = cache.write(KeyValues(keys, values), position)
        if self._sliding_window is not None:
            window = sliding_window_mask(position_ids, entry_position_ids, self._sliding_window)
            mask = combine(mask, window)
        per_head = None if mask is None else ops.expand_dims(mask, 1)
        weights = attention_weights(queries, cache.keys, per_head)
        heads = ops.swapaxes(product_of_heads(weights, cache.values), 1, 2)
        if "gate" in self._projections:
            heads = ops.multiply(heads, self._projections["gate"](hidden))
        return self._projections["output"](heads), cache
