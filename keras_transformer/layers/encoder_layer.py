"""The encoder layer (section 3.1 of the paper)."""

from collections.abc import Callable
from typing import Any

import keras

from ..masks import as_mask, implicit_mask
from ..tensors import Shape, Tensor
from .cache import Cache
from .input_checks import check_mask
from .new_positions import NewPositions
from .transformer_layer import _TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(_TransformerLayer):
    """Encoder layer: self-attention, then a feed-forward network (section 3.1).

    Both sublayers have a residual connection. The layer infers d_model from its inputs.

    To replace a part, override the method that creates it: `make_self_attention`,
    `make_feed_forward`, `make_residual` or `make_normalization`. `build` calls these methods, so a
    subclass can set attributes after `super().__init__()`. To change the order of the parts,
    override `apply_sublayers`.

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
        inputs: (batch, length, d_model). If there are more axes between batch and d_model, they
            are treated as a single sequence.
        mask: bool (batch, length), True for tokens, False for padding. Defaults to the implicit
            Keras mask of the inputs.
        attention_mask: bool, True = attend. See `MultiHeadAttention` for its shapes.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether each position attends only to itself and to earlier
            positions. Defaults to False.
        return_attention_scores: bool. Whether to also return the attention weights. Defaults to
            False.
        score_bias: float, broadcasts to (batch, num_heads, length, length). Added to the attention
            scores before the softmax. Defaults to None.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask. With `return_attention_scores`, a
        tuple of this output and the attention weights (batch, num_heads, length, length).

    Raises:
        ValueError: An argument is invalid, `num_heads` does not divide d_model and `key_dim` is
            None, or the inputs have fewer than three axes.

    Example:
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> llama = EncoderLayer(
        ...     num_heads=8,
        ...     d_ff=1365,
        ...     normalization="rms",
        ...     norm_first=True,
        ...     activation="silu",
        ...     gated=True,
        ...     feed_forward_bias=False,
        ...     relative_positions="rotary",
        ...     num_key_value_heads=2,
        ... )
        >>> outputs, scores = llama(keras.random.normal((2, 5, 512)), return_attention_scores=True)
        >>> scores.shape
        (2, 8, 5, 5)
    """

    def build(self, input_shape: Shape) -> None:
        self.input_spec = keras.InputSpec(ndim=len(input_shape), axes={-1: input_shape[-1]})
        self.self_attention = self.make_self_attention(input_shape)
        self.self_attention.build(input_shape, input_shape)
        self.self_attention_residual = self.make_residual("self_attention")
        self.self_attention_residual.build(input_shape)
        self.feed_forward = self.make_feed_forward(input_shape)
        self.feed_forward.build(input_shape)
        self.feed_forward_residual = self.make_residual("feed_forward")
        self.feed_forward_residual.build(input_shape)

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
        mask = implicit_mask(inputs) if mask is None else as_mask("mask", mask)
        check_mask("mask", mask, "inputs", inputs)
        # A custom attention layer may not accept a bias, so pass it only if it is given.
        bias = {} if score_bias is None else {"score_bias": score_bias}
        scores = []

        def self_attend(hidden: Tensor) -> Tensor:
            outputs = self.self_attention(
                hidden,
                hidden,
                value_mask=mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                use_causal_mask=use_causal_mask,
                **bias,
            )
            if return_attention_scores:
                outputs, weights = outputs
                scores.append(weights)
            return outputs

        outputs = self.apply_sublayers(inputs, self_attend, training)
        return (outputs, *scores) if return_attention_scores else outputs

    def apply_sublayers(
        self,
        inputs: Tensor,
        self_attend: Callable[[Tensor], Tensor],
        training: bool | None = None,
    ) -> Tensor:
        """Applies the sublayers. Override this method to change their order.

        Both `call` and `step` use it.

        Args:
            inputs: (batch, length, d_model).
            self_attend: function that applies self-attention to its input. In `call`, it attends to
                the whole input; in `step`, to a cache.
            training: bool. Whether to apply dropout.
        """
        hidden = self.self_attention_residual.sublayer_input(inputs)
        attended = self_attend(hidden)
        hidden = self.self_attention_residual(inputs, attended, training=training)

        outputs = self.feed_forward_residual.sublayer_input(hidden)
        outputs = self.feed_forward(outputs, training=training)
        return self.feed_forward_residual(hidden, outputs, training=training)

    def step(self, inputs: Tensor, cache: Cache, positions: NewPositions) -> tuple[Tensor, Cache]:
        """Computes the outputs of a causal layer at new positions. See `DecoderLayer.step`."""
        written = []

        def self_attend(hidden: Tensor) -> Tensor:
            attended, new_cache = self.self_attention.step(hidden, cache, positions)
            written.append(new_cache)
            return attended

        outputs = self.apply_sublayers(inputs, self_attend)
        return outputs, *written

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
