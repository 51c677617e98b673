"""The encoder, a stack of encoder layers (section 3.1 of the paper)."""

from collections.abc import Sequence
from typing import Any

import keras

from ..masks import as_mask, implicit_mask
from ..tensors import Shape, Tensor
from .cache import Cache
from .encoder_layer import EncoderLayer
from .input_checks import check_count
from .new_positions import NewPositions
from .remat import call_with_remat
from .stack import _Stack


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(_Stack):
    """A stack of encoder layers (section 3.1), with a final normalization if `norm_first=True`.

    Args:
        num_layers: int. Number N of layers.
        num_heads: int. Number h of attention heads.
        d_ff: int. Width of the feed-forward networks' hidden layers.
        norm_first: bool. Whether to normalize the input of each sublayer and the output of the
            stack (pre-norm), instead of each residual sum as in the paper (post-norm). Defaults to
            False.
        normalization: "layer" or "rms", as in `EncoderLayer`. Defaults to "layer".
        epsilon: float. Small constant that normalization adds to the variance or the mean square.
            Defaults to 1e-6.
        seed: int or None. Seed that makes dropout reproducible, yet different in each layer.
            Defaults to None.
        remat: bool. Whether to recompute each layer in the backward pass. This makes training
            slower, but keeps the intermediate results of only one layer at a time in memory.
            Defaults to False.
        **layer_arguments: further arguments of `EncoderLayer`, such as `dropout` or
            `relative_positions`, passed to every layer. If a subclass sets `layer_class`, these
            are arguments of that class. `name`, `dtype` and other arguments of
            `keras.layers.Layer` apply to the stack.

    Call arguments:
        inputs: (batch, length, d_model). See `EncoderLayer`.
        mask: bool (batch, length), True for tokens, False for padding. Defaults to the implicit
            Keras mask of the inputs.
        attention_mask: bool, True = attend. See `MultiHeadAttention` for its shapes.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether each position attends only to itself and to earlier
            positions. Defaults to False.
        return_attention_scores: bool. Whether to also return the attention weights. Defaults to
            False.
        score_bias: float, broadcasts to (batch, num_heads, length, length). Added to the attention
            scores of every layer. Defaults to None.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask. With `return_attention_scores`, a
        tuple of this output and a list of every layer's attention weights.

    Raises:
        ValueError: As in `EncoderLayer`.

    Example:
        >>> Encoder(num_layers=6, num_heads=8, d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> deep = Encoder(num_layers=12, num_heads=8, d_ff=2048, norm_first=True, dropout=0.3)
    """

    layer_class: type[EncoderLayer] = EncoderLayer

    def build(self, input_shape: Shape) -> None:
        self._build_layers(input_shape)

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        score_bias: Tensor | None = None,
    ) -> Any:
        arguments = {
            "mask": implicit_mask(inputs) if mask is None else as_mask("mask", mask),
            "attention_mask": as_mask("attention_mask", attention_mask),
            "training": training,
            "use_causal_mask": use_causal_mask,
            "return_attention_scores": return_attention_scores,
        }
        if score_bias is not None:
            arguments["score_bias"] = score_bias
        hidden, scores = inputs, []
        for layer in self.layers:
            if self.remat and training:
                outputs = call_with_remat(layer, [hidden], arguments)
            else:
                outputs = layer(hidden, **arguments)
            hidden, layer_scores = outputs if return_attention_scores else (outputs, None)
            scores.append(layer_scores)
        hidden = self._normalize(hidden)
        return (hidden, scores) if return_attention_scores else hidden

    def step(
        self,
        inputs: Tensor,
        caches: Sequence[Cache],
        positions: NewPositions,
    ) -> tuple[Tensor, list[Cache]]:
        """Computes the outputs of a causal encoder at new positions. See `DecoderLayer.step`."""
        check_count("caches", caches, len(self.layers))
        written = []
        for layer, cache in zip(self.layers, caches, strict=True):
            inputs, cache = layer.step(inputs, cache, positions)
            written.append(cache)
        return self._normalize(inputs), written

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
