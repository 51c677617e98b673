"""The decoder: a stack of layers (section 3.1 of the paper)."""

from collections.abc import Sequence
from typing import Any

import keras

from ..masks import implicit_mask
from .decoder_layer import DecoderLayer
from .key_value_cache import Cache, KeyValues
from .transformer_layer import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(TransformerStack):
    """`num_layers` decoder layers; with `norm_first`, layer normalization after the last one.

    `init_cache`, `project_source` and `step` are those of `DecoderLayer`, with one cache and one projected source
    per layer.

    Args:
        num_layers: int. N, the number of layers.
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
        ValueError: as `DecoderLayer`.

    Example:
        >>> decoder = Decoder(num_layers=6, num_heads=8, d_ff=2048)
        >>> decoder(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def build(self, target_shape: Any, source_shape: Any = None) -> None:
        self._build_layers(DecoderLayer, target_shape, source_shape)

    def call(
        self,
        target: Any,
        source: Any = None,
        target_mask: Any = None,
        source_mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        for layer in self.layers:
            target = layer(target, source, target_mask=target_mask, source_mask=source_mask, training=training)
        return self._normalize(target)

    def init_cache(self, batch_size: Any, max_length: Any = None) -> list[Cache]:
        """Returns an empty cache for each layer, see `DecoderLayer.init_cache`."""
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def project_source(self, source: Any) -> list[KeyValues]:
        """Projects the source to each layer's keys and values, see `DecoderLayer.project_source`."""
        return [layer.project_source(source) for layer in self.layers]

    def step(
        self,
        target: Any,
        caches: Sequence[Cache],
        position: Any,
        mask: Any = None,
        source_key_values: Sequence[KeyValues] | None = None,
        source_mask: Any = None,
    ) -> tuple[Any, list[Cache]]:
        """Computes new positions through all layers, see `DecoderLayer.step`."""
        sources = [None] * self.num_layers if source_key_values is None else source_key_values
        written = []
        for layer, cache, source in zip(self.layers, caches, sources, strict=True):
            target, cache = layer.step(target, cache, position, mask, source, source_mask)
            written.append(cache)
        return self._normalize(target), written

    def compute_output_shape(self, target_shape: Any, source_shape: Any = None) -> Any:
        return target_shape
