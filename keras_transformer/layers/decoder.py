"""The decoder: a stack of layers (section 3.1 of the paper)."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import keras

from ..config.rules import OddSize, Positive, Rate, Size, check_attributes
from ..masks import implicit_mask
from ..tensors import Dimension, Shape, Tensor
from .decoder_layer import DecoderLayer
from .key_value_cache import Cache, KeyValues
from .transformer_stack import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(TransformerStack):
    """`num_layers` decoder layers; with `norm_first`, layer normalization after the last one.

    `init_cache`, `project_source` and `step` are those of `DecoderLayer`, with one cache and one projected source
    per layer.

    Args:
        num_layers: int. N, the number of layers.
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
        key_dim: int or None. d_k, the width of each head's queries and keys. Defaults to `d_model // num_heads`.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate of dropout on each sublayer's output. Defaults to 0.1.
        attention_dropout: float. Rate of dropout on the attention weights; the paper has none. Defaults to 0.
        activation_dropout: float. Rate of dropout inside the feed-forward network; the paper has none. Defaults to
            0.
        activation: str or callable. Activation of the feed-forward network. Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer instead of after the residual sum as in the
            paper. Defaults to False.
        neighborhood: int or None. r of restricted self-attention (section 4), odd: each position attends to the r
            positions centred on itself. Defaults to None: all positions.
        epsilon: float. Added to the variance in layer normalization. Defaults to 1e-6.
        attention_bias: bool. Whether the projections of attention add a bias; those of the paper do not. Defaults to
            False.

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

    def __init__(
        self,
        num_layers: Size,
        num_heads: Size,
        d_ff: Size,
        key_dim: Size | None = None,
        value_dim: Size | None = None,
        dropout: Rate = 0.1,
        attention_dropout: Rate = 0.0,
        activation_dropout: Rate = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        norm_first: bool = False,
        neighborhood: OddSize | None = None,
        epsilon: Positive = 1e-6,
        attention_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = num_layers
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
        check_attributes(self, Decoder)
        self.supports_masking = True

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self._build_layers(DecoderLayer, target_shape, source_shape)

    def call(
        self,
        target: Annotated[Tensor, "(batch, target length, d_model)"],
        source: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        target_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, target length, d_model)"]:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        for layer in self.layers:
            target = layer(target, source, target_mask=target_mask, source_mask=source_mask, training=training)
        return self._normalize(target)

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> list[Cache]:
        """Returns an empty cache for each layer, see `DecoderLayer.init_cache`."""
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def project_source(self, source: Annotated[Tensor, "(batch, source length, any width)"]) -> list[KeyValues]:
        """Projects the source to each layer's keys and values, see `DecoderLayer.project_source`."""
        return [layer.project_source(source) for layer in self.layers]

    def step(
        self,
        target: Annotated[Tensor, "(batch, n, d_model)"],
        caches: Sequence[Cache],
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        source_key_values: Sequence[KeyValues] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], list[Cache]]:
        """Computes new positions through all layers, see `DecoderLayer.step`."""
        sources = [None] * self.num_layers if source_key_values is None else source_key_values
        written = []
        for layer, cache, source in zip(self.layers, caches, sources, strict=True):
            target, cache = layer.step(target, cache, position, mask, source, source_mask)
            written.append(cache)
        return self._normalize(target), written

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "neighborhood": self.neighborhood,
            "epsilon": self.epsilon,
            "attention_bias": self.attention_bias,
        }
