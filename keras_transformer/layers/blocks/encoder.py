"""The encoder: a stack of layers (section 3.1 of the paper)."""

from typing import TYPE_CHECKING, Annotated, Any

import keras

from ...masks import implicit_mask
from ...tensors import Shape, Tensor
from .encoder_layer import EncoderLayer
from .transformer_stack import TransformerStack


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(TransformerStack):
    """`num_layers` encoder layers; with `norm_first`, normalization after the last one.

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
        inputs: (batch, length, d_model).
        mask: bool (batch, length), True = a real token. Defaults to the implicit Keras mask of the inputs.
        attention_mask: bool, True = attend, of a shape that `MultiHeadAttention` takes; not with a neighborhood.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults to False.
        return_attention_scores: bool. Whether to return the attention weights too; not with a neighborhood. Defaults
            to False.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask, and, if asked for, a list of each layer's weights.

    Raises:
        ValueError: as `EncoderLayer`.

    Example:
        >>> Encoder(num_layers=6, num_heads=8, d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def build(self, input_shape: Shape) -> None:
        self._build_layers(EncoderLayer, input_shape)

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        mask: Annotated[Tensor, "bool (batch, length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., length, length)"] | None = None,
        training: bool | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        mask = implicit_mask(inputs) if mask is None else mask
        scores: list[Tensor] = []
        for layer in self.layers:
            outputs = layer(
                inputs,
                mask=mask,
                attention_mask=attention_mask,
                training=training,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
            )
            inputs, *layer_scores = outputs if return_attention_scores else (outputs,)
            scores += layer_scores
        outputs = self._normalize(inputs)
        return (outputs, scores) if return_attention_scores else outputs

    if TYPE_CHECKING:
        # For users, to whom a tensor of Keras may have any type.
        def __call__(
            self,
            inputs: object,
            mask: object = None,
            attention_mask: object = None,
            training: bool | None = None,
            use_causal_mask: bool = False,
            return_attention_scores: bool = False,
        ) -> Any: ...

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
