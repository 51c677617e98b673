"""The decoder layer (section 3.1 of the paper)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..errors import ConfigError
from ..masks import as_mask, as_numbers, implicit_mask
from ..tensors import Shape, Tensor
from .cache import Cache, KeyValues
from .input_checks import check_batch, check_mask, check_scores, check_step_mask
from .multi_head_attention import MultiHeadAttention
from .new_positions import NewPositions
from .transformer_layer import _TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(_TransformerLayer):
    """Decoder layer: self-attention, cross-attention and a feed-forward network (section 3.1).

    Self-attention is causal, and each sublayer has a residual connection. If the first call has no
    source, the layer has no cross-attention, as in a language model. The layer infers d_model from
    the target.

    To replace a part, override the method that creates it: `make_self_attention`,
    `make_cross_attention`, `make_feed_forward`, `make_residual` or `make_normalization`. `build`
    calls these methods, so a subclass can set attributes after `super().__init__()`. To change the
    order of the parts, override `apply_sublayers`, which both `call` and `step` use.

    To decode step by step, create a cache with `init_cache`, project the source once with
    `project_source`, and call `step`. With `NewPositions(i)` for position i, the steps return the
    same outputs as a single call.

    Args:
        num_heads: int. Number h of attention heads.
        d_ff: int. Width of the feed-forward network's hidden layer.
        key_dim: int or None. Width d_k of each head's queries and keys. Defaults to
            `d_model // num_heads`.
        value_dim: int or None. Width d_v of each head's values. Defaults to `key_dim`.
        dropout: float. Dropout rate on the output of each sublayer. Defaults to 0.1.
        attention_dropout: float. Dropout rate on the attention weights; the paper has none.
            Defaults to 0.
        activation_dropout: float. Dropout rate inside the feed-forward network; the paper has none.
            Defaults to 0.
        activation: str or callable. Activation of the feed-forward network. Defaults to "relu".
        norm_first: bool. Whether to normalize the input of each sublayer (pre-norm), instead of the
            residual sum as in the paper (post-norm). Defaults to False.
        sliding_window: int or None. Window w of restricted self-attention (section 4): each
            position attends to itself and to the w - 1 positions before and after it. The paper's
            neighborhood r is 2w - 1. Defaults to None: attend to all positions.
        epsilon: float. Small constant that normalization adds to the variance or the mean square.
            Defaults to 1e-6.
        attention_bias: bool. Whether the attention projections add a bias; the paper has none.
            Defaults to False.
        feed_forward_bias: bool. Whether the feed-forward network adds biases, as in the paper.
            Defaults to True.
        kernel_initializer: str or `keras.initializers.Initializer`. Each kernel gets different
            initial values. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to each kernel.
            Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to each bias.
            Defaults to None.
        seed: int or None. Seed that makes dropout reproducible, yet different in each sublayer.
            Defaults to None.
        normalization: "layer", or "rms" for root mean square normalization (Zhang and Sennrich
            2019, arXiv 1910.07467). Defaults to "layer".
        gated: bool. Whether the feed-forward network is a gated linear unit (Shazeer 2020, arXiv
            2002.05202): SwiGLU with the activation "silu", GEGLU with "gelu". Defaults to False.
        num_key_value_heads: int or None. Number of key-value heads, a divisor of `num_heads`: each
            key-value head is shared by `num_heads / num_key_value_heads` query heads (Ainslie et
            al. 2023, arXiv 2305.13245). Defaults to `num_heads`.
        query_key_norm: bool. Whether to apply RMS normalization, with learned scales, to the
            queries and keys of each head (Henry et al. 2020, arXiv 2010.04245). Defaults to False.
        relative_positions: str, `PositionScheme` or None. Relative positions in self-attention:
            "rotary" (`RotaryPositions`), "alibi" (`AlibiPositions`) or "t5" (`T5Positions`). An
            instance is copied. Defaults to None: no relative positions, only the positions that
            you add to the inputs.
        flash_attention: bool or None. See `MultiHeadAttention`. Defaults to None.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width). The encoder's output, or None.
        target_mask: bool (batch, target length), True for tokens, False for padding. Defaults to
            the target's implicit Keras mask.
        source_mask: bool (batch, source length), True for tokens, False for padding. Defaults to
            the source's implicit Keras mask.
        training: bool. Whether to apply dropout.
        attention_mask: bool, True = attend. Mask for self-attention, combined with the causal mask.
            See `MultiHeadAttention` for its shapes.
        source_attention_mask: bool, True = attend. Mask for cross-attention. See
            `MultiHeadAttention` for its shapes.
        use_causal_mask: bool. Whether each position attends only to itself and to earlier
            positions. For a prefix language model, pass False and an `attention_mask`. Defaults to
            True.
        return_attention_scores: bool. Whether to also return the attention weights. Defaults to
            False.
        score_bias: float, broadcasts to (batch, num_heads, target length, target length). Added to
            the self-attention scores before the softmax. Defaults to None.
        cross_score_bias: float, broadcasts to (batch, num_heads, target length, source length).
            Added to the cross-attention scores before the softmax. Defaults to None.

    Returns:
        (batch, target length, d_model), with the target's implicit mask. With
        `return_attention_scores`, a tuple of this output, the self-attention weights (batch,
        num_heads, target length, target length) and, if there is a source, the cross-attention
        weights (batch, num_heads, target length, source length).

    Raises:
        ValueError: An argument is invalid; `num_heads` does not divide d_model and `key_dim` is
            None; a layer built with a source is called without one, or vice versa; or an input is
            not (batch, length, width) or does not have the width that the layer was built for.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    _unbuilt_input_spec = keras.InputSpec(ndim=3)

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: target_shape[-1]})
        self.self_attention = self.make_self_attention(target_shape)
        self.self_attention.build(target_shape, target_shape)
        self.self_attention_residual = self.make_residual("self_attention")
        self.self_attention_residual.build(target_shape)
        self.cross_attention: Any = None
        self._source_width: int | None = None
        if source_shape is not None:
            self._check_source(source_shape)
            self._source_width = source_shape[-1]
            self.cross_attention = self.make_cross_attention(target_shape, source_shape)
            self.cross_attention.build(target_shape, source_shape)
            self.cross_attention_residual = self.make_residual("cross_attention")
            self.cross_attention_residual.build(target_shape)
        self.feed_forward = self.make_feed_forward(target_shape)
        self.feed_forward.build(target_shape)
        self.feed_forward_residual = self.make_residual("feed_forward")
        self.feed_forward_residual.build(target_shape)

    def make_cross_attention(self, target_shape: Shape, source_shape: Shape) -> keras.layers.Layer:
        """Creates the cross-attention layer.

        Override it to use another layer. `build` calls it.
        """
        return self._make_attention("cross_attention", target_shape)

    def _check_source(self, shape: Shape) -> None:
        # `input_spec` covers only the first input, so raise Keras' error for the second input here.
        problem = (
            f"Input 1 with name 'source' of layer '{self.name}' is incompatible with the layer: "
            "expected "
        )
        if len(shape) != 3:
            raise ValueError(
                f"{problem}ndim=3, found ndim={len(shape)}. Full shape received: {tuple(shape)}"
            )
        if None not in (self._source_width, shape[-1]) and shape[-1] != self._source_width:
            raise ValueError(
                f"{problem}axis -1 of input shape to have value {self._source_width}, but received "
                f"input with shape {tuple(shape)}"
            )

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
        if (source is None) != (self.cross_attention is None):
            built = "without" if self.cross_attention is None else "with"
            raise ValueError(
                "source must be given in every call or in no call; the layer was built "
                f"{built} a source and received source={'None' if source is None else 'a tensor'}"
            )
        target_mask = (
            implicit_mask(target) if target_mask is None else as_mask("target_mask", target_mask)
        )
        check_mask("target_mask", target_mask, "target", target)
        if source is not None:
            source_mask = (
                implicit_mask(source)
                if source_mask is None
                else as_mask("source_mask", source_mask)
            )
            source_attention_mask = as_mask("source_attention_mask", source_attention_mask)
            self._check_source(source.shape)
            check_batch("source", source, "target", target)
            check_mask("source_mask", source_mask, "source", source)
            if cross_score_bias is not None:
                rule = "an array of floats"
                cross_score_bias = as_numbers("cross_score_bias", cross_score_bias, rule)
            # Check the mask and the bias here, because cross-attention would report them under
            # other names.
            if isinstance(self.cross_attention, MultiHeadAttention):
                num_heads = self.cross_attention.num_heads
                shapes = (num_heads, target, source)
                check_scores("source_attention_mask", source_attention_mask, *shapes)
                check_scores("cross_score_bias", cross_score_bias, *shapes)
        else:
            for name, value in (
                ("source_mask", source_mask),
                ("source_attention_mask", source_attention_mask),
                ("cross_score_bias", cross_score_bias),
            ):
                if value is not None:
                    raise ConfigError(f"{name} requires a source; received source=None")
        # A custom attention layer may not accept a bias, so pass it only if it is given.
        bias = {} if score_bias is None else {"score_bias": score_bias}
        cross_bias = {} if cross_score_bias is None else {"score_bias": cross_score_bias}
        scores: dict[str, Tensor] = {}

        def self_attend(hidden: Tensor) -> Tensor:
            outputs = self.self_attention(
                hidden,
                hidden,
                value_mask=target_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                use_causal_mask=use_causal_mask,
                **bias,
            )
            if return_attention_scores:
                outputs, scores["self"] = outputs
            return outputs

        def cross_attend(hidden: Tensor) -> Tensor:
            outputs = self.cross_attention(
                hidden,
                source,
                value_mask=source_mask,
                attention_mask=source_attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                **cross_bias,
            )
            if return_attention_scores:
                outputs, scores["cross"] = outputs
            return outputs

        outputs = self.apply_sublayers(
            target, self_attend, None if source is None else cross_attend, training
        )
        if not return_attention_scores:
            return outputs
        # The self-attention weights come first, even if a subclass changes the order of the parts.
        return (outputs, *(scores[kind] for kind in ("self", "cross") if kind in scores))

    def apply_sublayers(
        self,
        target: Tensor,
        self_attend: Callable[[Tensor], Tensor],
        cross_attend: Callable[[Tensor], Tensor] | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Applies the sublayers. Override this method to change their order.

        Both `call` and `step` use it.

        Args:
            target: (batch, target length, d_model).
            self_attend: function that applies self-attention to its input. In `call`, it attends to
                the target; in `step`, to a cache.
            cross_attend: function that applies cross-attention to its input, or None if there is no
                source.
            training: bool. Whether to apply dropout.
        """
        hidden = self.self_attention_residual.sublayer_input(target)
        attended = self_attend(hidden)
        target = self.self_attention_residual(target, attended, training=training)

        if cross_attend is not None:
            hidden = self.cross_attention_residual.sublayer_input(target)
            attended = cross_attend(hidden)
            target = self.cross_attention_residual(target, attended, training=training)

        hidden = self.feed_forward_residual.sublayer_input(target)
        hidden = self.feed_forward(hidden, training=training)
        return self.feed_forward_residual(target, hidden, training=training)

    def project_source(self, source: Tensor) -> KeyValues:
        """Projects a source (batch, source length, any width) to keys and values for all steps."""
        return self.cross_attention.project_key_value(source)

    def step(
        self,
        target: Tensor,
        cache: Cache,
        positions: NewPositions,
        source_key_values: KeyValues | None = None,
        source_mask: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Computes the outputs at new positions, which attend to a cache of earlier positions.

        Args:
            target: (batch, n, d_model). The next n positions, or the next position of n hypotheses
                in a beam search.
            cache: from `init_cache` or the previous step.
            positions: `NewPositions`. Where `target` stands in the cache and in the sequence, and
                what it attends to. `NewPositions(i)` continues a sequence of length i.
            source_key_values: from `project_source`.
            source_mask: bool (batch, source length), True for tokens, False for padding.

        Returns:
            A tuple of the outputs (batch, n, d_model) and the cache with the new entries.

        Raises:
            ValueError: The new entries do not fit into the `FixedCache`. This is checked only if
                the sizes and `first_entry` are ints.
        """
        if source_key_values is not None:
            batch, _, length, _ = source_key_values.keys.shape
            check_step_mask("source_mask", source_mask, (batch, length))
        written = []

        def self_attend(hidden: Tensor) -> Tensor:
            attended, new_cache = self.self_attention.step(hidden, cache, positions)
            written.append(new_cache)
            return attended

        def cross_attend(hidden: Tensor) -> Tensor:
            allowed = None if source_mask is None else ops.expand_dims(source_mask, 1)
            return self.cross_attention.attend(hidden, source_key_values, allowed)

        outputs = self.apply_sublayers(
            target, self_attend, None if source_key_values is None else cross_attend
        )
        return outputs, *written

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape
