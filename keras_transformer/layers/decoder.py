"""The decoder, a stack of decoder layers (section 3.1 of the paper)."""

from collections.abc import Sequence
from typing import Any

import keras

from ..masks import as_mask, implicit_mask
from ..tensors import Shape, Tensor
from .cache import Cache, KeyValues
from .decoder_layer import DecoderLayer
from .input_checks import check_count
from .new_positions import NewPositions
from .remat import call_with_remat
from .stack import _Stack


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(_Stack):
    """A stack of decoder layers (section 3.1), with a final normalization if `norm_first=True`.

    `init_cache`, `project_source` and `step` work as in `DecoderLayer`, but with a list of caches
    and a list of projected sources, one per layer.

    Args:
        num_layers: int. Number N of layers.
        num_heads: int. Number h of attention heads.
        d_ff: int. Width of the feed-forward networks' hidden layers.
        norm_first: bool. Whether to normalize the input of each sublayer and the output of the
            stack (pre-norm), instead of each residual sum as in the paper (post-norm). Defaults to
            False.
        normalization: "layer" or "rms", as in `DecoderLayer`. Defaults to "layer".
        epsilon: float. Small constant that normalization adds to the variance or the mean square.
            Defaults to 1e-6.
        seed: int or None. Seed that makes dropout reproducible, yet different in each layer.
            Defaults to None.
        remat: bool. Whether to recompute each layer in the backward pass. This makes training
            slower, but keeps the intermediate results of only one layer at a time in memory.
            Defaults to False.
        **layer_arguments: further arguments of `DecoderLayer`, such as `dropout` or
            `relative_positions`, passed to every layer. If a subclass sets `layer_class`, these
            are arguments of that class. `name`, `dtype` and other arguments of
            `keras.layers.Layer` apply to the stack.

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width). The encoder's output, or None.
        target_mask: bool (batch, target length), True for tokens, False for padding. Defaults to
            the target's implicit Keras mask.
        source_mask: bool (batch, source length), True for tokens, False for padding. Defaults to
            the source's implicit Keras mask.
        training: bool. Whether to apply dropout.
        attention_mask: bool, True = attend. Mask for self-attention. See `DecoderLayer`.
        source_attention_mask: bool, True = attend. Mask for cross-attention. See `DecoderLayer`.
        use_causal_mask: bool. Whether each position attends only to itself and to earlier
            positions. Defaults to True.
        return_attention_scores: bool. Whether to also return the attention weights. Defaults to
            False.
        score_bias: float. Added to the self-attention scores of every layer. See `DecoderLayer`.
            Defaults to None.
        cross_score_bias: float. Added to the cross-attention scores of every layer. See
            `DecoderLayer`. Defaults to None.

    Returns:
        (batch, target length, d_model), with the target's implicit mask. With
        `return_attention_scores`, a tuple of this output, a list of every layer's self-attention
        weights and, if there is a source, a list of every layer's cross-attention weights.

    Raises:
        ValueError: As in `DecoderLayer`.

    Example:
        >>> decoder = Decoder(num_layers=6, num_heads=8, d_ff=2048)
        >>> decoder(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    layer_class: type[DecoderLayer] = DecoderLayer

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self._build_layers(target_shape, source_shape)

    def call(
        self,
        target: Tensor,
        source: Tensor | None = None,
        target_mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        source_attention_mask: Tensor | None = None,
        use_causal_mask: bool = True,
        return_attention_scores: bool = False,
        score_bias: Tensor | None = None,
        cross_score_bias: Tensor | None = None,
    ) -> Any:
        if target_mask is None:
            target_mask = implicit_mask(target)
        if source is not None and source_mask is None:
            source_mask = implicit_mask(source)
        arguments = {
            "target_mask": as_mask("target_mask", target_mask),
            "source_mask": as_mask("source_mask", source_mask),
            "training": training,
            "attention_mask": as_mask("attention_mask", attention_mask),
            "source_attention_mask": as_mask("source_attention_mask", source_attention_mask),
            "use_causal_mask": use_causal_mask,
            "return_attention_scores": return_attention_scores,
        }
        if score_bias is not None:
            arguments["score_bias"] = score_bias
        if cross_score_bias is not None:
            arguments["cross_score_bias"] = cross_score_bias
        sources = [] if source is None else [source]
        hidden, scores, cross_scores = target, [], []
        for layer in self.layers:
            if self.remat and training:
                outputs = call_with_remat(layer, [hidden, *sources], arguments)
            else:
                outputs = layer(hidden, *sources, **arguments)
            if not return_attention_scores:
                hidden = outputs
            elif source is None:
                hidden, layer_scores = outputs
                scores.append(layer_scores)
            else:
                hidden, layer_scores, layer_cross_scores = outputs
                scores.append(layer_scores)
                cross_scores.append(layer_cross_scores)
        hidden = self._normalize(hidden)
        if not return_attention_scores:
            return hidden
        return (hidden, scores) if source is None else (hidden, scores, cross_scores)

    def project_source(self, source: Tensor) -> list[KeyValues]:
        """Projects the source for each layer. See `DecoderLayer.project_source`."""
        return [layer.project_source(source) for layer in self.layers]

    def step(
        self,
        target: Tensor,
        caches: Sequence[Cache],
        positions: NewPositions,
        source_key_values: Sequence[KeyValues] | None = None,
        source_mask: Tensor | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Computes the output of the stack at new positions. See `DecoderLayer.step`."""
        sources: Sequence[Any] = source_key_values or [None] * len(self.layers)
        check_count("caches", caches, len(self.layers))
        check_count("source_key_values", sources, len(self.layers))
        written = []
        for layer, cache, source in zip(self.layers, caches, sources, strict=True):
            target, cache = layer.step(target, cache, positions, source, source_mask)
            written.append(cache)
        return self._normalize(target), written

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape
