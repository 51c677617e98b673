"""The decoder: a stack of layers (section 3.1 of the paper)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import keras

from ...masks import implicit_mask
from ...tensors import Dimension, Shape, Tensor
from ..attention.key_value_cache import Cache, KeyValues
from .decoder_layer import DecoderLayer
from .transformer_stack import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(TransformerStack):
    """`num_layers` decoder layers; with `norm_first`, normalization after the last one.

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
        epsilon: float. Added to the variance, or to the mean square, in normalization. Defaults to 1e-6.
        attention_bias: bool. Whether the projections of attention add a bias; those of the paper do not. Defaults to
            False.
        feed_forward_bias: bool. Whether the feed-forward network adds biases, as that of the paper does. Defaults to
            True.
        kernel_initializer: str or `keras.initializers.Initializer`. Every kernel draws numbers of its own. Defaults to
            "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None, for each kernel. Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None, for each bias. Defaults to None.
        seed: int or None. Dropout with a seed draws the same numbers in every run, other ones in every sublayer.
            Defaults to None.
        normalization: "layer", or "rms", root mean square normalization (Zhang and Sennrich 2019, arXiv 1910.07467).
            Defaults to "layer".
        gated: bool. Whether the feed-forward network is a gated linear unit (Shazeer 2020, arXiv 2002.05202): with the
            activation "silu" SwiGLU, with "gelu" GEGLU. Defaults to False.
        num_key_value_heads: int or None. Heads of keys and values, a divisor of `num_heads`: each serves as many heads
            of queries (Ainslie et al. 2023, arXiv 2305.13245). Defaults to `num_heads`.
        query_key_norm: bool. Whether the queries and keys of each head are normalized by their root mean square, with
            learned scales (Henry et al. 2020, arXiv 2010.04245). Defaults to False.
        relative_positions: positions that self-attention knows by itself: "rotary" (Su et al. 2021, arXiv 2104.09864),
            "alibi" (Press et al. 2022, arXiv 2108.12409) or "t5" (Raffel et al. 2020, arXiv 1910.10683); or None: it
            knows only those that were added to its inputs. Defaults to None.
        flash_attention: bool or None. As in `MultiHeadAttention`. Defaults to None.

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width), the encoder's output, or None.
        target_mask: bool (batch, target length), True = a real token. Defaults to the target's implicit Keras mask.
        source_mask: bool (batch, source length), True = a real token. Defaults to the source's implicit Keras mask.
        training: bool. Whether to apply dropout.
        attention_mask: bool, True = attend, as in `DecoderLayer`.
        source_attention_mask: bool, True = attend, as in `DecoderLayer`.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults to True.
        return_attention_scores: bool. Whether to return the attention weights too; not with a neighborhood. Defaults
            to False.

    Returns:
        (batch, target length, d_model), with the target's implicit mask, and, if asked for, a list of each layer's
        weights of self-attention and, in a decoder with a source, a list of those of attention to the source.

    Raises:
        ValueError: as `DecoderLayer`.

    Example:
        >>> decoder = Decoder(num_layers=6, num_heads=8, d_ff=2048)
        >>> decoder(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self._build_layers(DecoderLayer, target_shape, source_shape)

    def call(
        self,
        target: Annotated[Tensor, "(batch, target length, d_model)"],
        source: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        target_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        training: bool | None = None,
        attention_mask: Annotated[Tensor, "bool (..., target length, target length)"] | None = None,
        source_attention_mask: Annotated[Tensor, "bool (..., target length, source length)"] | None = None,
        use_causal_mask: bool = True,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor | list[Tensor], ...]:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        scores: list[list[Tensor]] = []
        for layer in self.layers:
            outputs = layer(
                target,
                source,
                target_mask=target_mask,
                source_mask=source_mask,
                training=training,
                attention_mask=attention_mask,
                source_attention_mask=source_attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
            )
            target, *layer_scores = outputs if return_attention_scores else (outputs,)
            scores.append(layer_scores)
        outputs = self._normalize(target)
        return (outputs, *map(list, zip(*scores, strict=True))) if return_attention_scores else outputs

    if TYPE_CHECKING:
        # For users, to whom a tensor of Keras may have any type.
        def __call__(
            self,
            target: object,
            source: object = None,
            target_mask: object = None,
            source_mask: object = None,
            training: bool | None = None,
            attention_mask: object = None,
            source_attention_mask: object = None,
            use_causal_mask: bool = True,
            return_attention_scores: bool = False,
        ) -> Any: ...

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
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"] | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], list[Cache]]:
        """Computes new positions through all layers, see `DecoderLayer.step`."""
        sources = [None] * self.num_layers if source_key_values is None else source_key_values
        written = []
        for layer, cache, source in zip(self.layers, caches, sources, strict=True):
            target, cache = layer.step(
                target, cache, position, mask, source, source_mask, position_ids, entry_position_ids
            )
            written.append(cache)
        return self._normalize(target), written

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape
