"""The stack of decoder layers (section 3.1 of the paper)."""

import keras

from ..masks import implicit_mask
from .decoder_layer import DecoderLayer
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(TransformerLayer):
    """`num_layers` decoder layers; with `norm_first`, a layer normalisation after the last.

    Args:
        num_layers: N, number of layers; the others are those of `DecoderLayer`.

    Call arguments and Returns: those of `DecoderLayer`. `init_cache`, `project_source` and `step` are its too, with a
    list of caches, one a layer.

    Example:
        >>> decoder = Decoder(num_layers=6, num_heads=8, d_ff=2048)
        >>> decoder(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(self, num_layers, num_heads, d_ff, **kwargs):
        super().__init__(num_heads, d_ff, **kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers must be positive; received num_layers={num_layers}")
        self.num_layers = num_layers

    def build(self, target_shape, source_shape=None):
        self.layers = [
            DecoderLayer(**self.sublayer_config(), dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(target_shape, source_shape)
        self.final_norm = self._build_final_norm(target_shape)

    def compute_output_shape(self, target_shape, source_shape=None):
        return target_shape

    def call(self, target, source=None, target_mask=None, source_mask=None, training=None):
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        for layer in self.layers:
            target = layer(
                target,
                source,
                target_mask=target_mask,
                source_mask=source_mask,
                training=training,
            )
        return target if self.final_norm is None else self.final_norm(target)

    def init_cache(self, batch_size, max_length):
        """An empty cache for every layer's self-attention; the stack must be built."""
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def project_source(self, source):
        """Every layer's keys and values of the source, made once for all steps."""
        return [layer.project_source(source) for layer in self.layers]

    def step(self, target, caches, position, mask=None, source_caches=None, source_mask=None):
        """`DecoderLayer.step` through all layers, with one cache a layer."""
        written = []
        for i, layer in enumerate(self.layers):
            source_cache = None if source_caches is None else source_caches[i]
            target, cache = layer.step(target, caches[i], position, mask, source_cache, source_mask)
            written.append(cache)
        return target if self.final_norm is None else self.final_norm(target), written

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
