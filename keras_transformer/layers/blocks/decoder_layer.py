"""One layer of the decoder (section 3.1 of the paper)."""

from typing import TYPE_CHECKING, Annotated, Any

import keras
from keras import ops

from ...masks import implicit_mask, neighborhood_mask
from ...tensors import Dimension, Shape, Tensor
from ..attention.key_value_cache import Cache, KeyValues
from .transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the source, and a feed-forward network (section 3.1).

    A layer that is first called without a source has no attention to a source: the layer of a language model.
    d_model is read from the target.

    For decoding step by step, `init_cache` and `project_source` prepare what `step` attends to. Without a
    mask, the outputs of the steps equal the rows of one call.

    Args:
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
        attention_mask: bool, True = attend, for self-attention, of a shape that `MultiHeadAttention` takes; not with a
            neighborhood. It restricts what `use_causal_mask` leaves.
        source_attention_mask: bool, True = attend, for attention to the source, of such a shape.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. False, with an
            `attention_mask`, is for such as prefix language models. Defaults to True.
        return_attention_scores: bool. Whether to return the attention weights too; not with a neighborhood. Defaults
            to False.

    Returns:
        (batch, target length, d_model), with the target's implicit mask, and, if asked for, the weights of
        self-attention (batch, num_heads, target length, target length) and, in a layer with a source, those of
        attention to the source (batch, num_heads, target length, source length).

    Raises:
        ValueError: An argument breaks its rule; `num_heads` does not divide d_model and `key_dim` is None; a layer
            that was built with a source is called without one, or the reverse; or an input is not (batch, length,
            width), or of another width than that before.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: target_shape[-1]})
        self.attention, self.attention_residual = self._build_attention(
            "attention", target_shape, target_shape, self.neighborhood, self.relative_positions
        )
        self.source_attention: Any = None  # MultiHeadAttention in a layer with a source
        self._source_width: int | None = None
        if source_shape is not None:
            self._check_source(source_shape)
            self._source_width = source_shape[-1]
            self.source_attention, self.source_attention_residual = self._build_attention(
                "source_attention", target_shape, source_shape
            )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(target_shape)

    def _check_source(self, shape: Shape) -> None:
        # In the words of Keras, whose `input_spec` describes the first input of a layer only.
        problem = f"Input 1 with name 'source' of layer '{self.name}' is incompatible with the layer: expected "
        if len(shape) != 3:
            raise ValueError(f"{problem}ndim=3, found ndim={len(shape)}. Full shape received: {tuple(shape)}")
        if None not in (self._source_width, shape[-1]) and shape[-1] != self._source_width:
            raise ValueError(
                f"{problem}axis -1 of input shape to have value {self._source_width}, but received input with shape "
                f"{tuple(shape)}"
            )

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
    ) -> Tensor | tuple[Tensor, ...]:
        if (source is None) != (self.source_attention is None):
            built = "without" if self.source_attention is None else "with"
            raise ValueError(
                f"source must be given in every call or in none; the layer was built {built} one and "
                f"received source={'None' if source is None else 'a tensor'}"
            )
        target, scores = self._attend_to_target(
            target, target_mask, attention_mask, use_causal_mask, return_attention_scores, training
        )
        if source is not None:
            self._check_source(source.shape)
            hidden = self.source_attention(
                self.source_attention_residual.sublayer_input(target),
                source,
                value_mask=source_mask,
                attention_mask=source_attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if return_attention_scores:
                hidden, source_scores = hidden
                scores = (*scores, source_scores)
            target = self.source_attention_residual(target, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(target), training=training)
        outputs = self.feed_forward_residual(target, hidden, training=training)
        return (outputs, *scores) if return_attention_scores else outputs

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

    def source_attention_scores(
        self,
        target: Annotated[Tensor, "(batch, target length, d_model)"],
        source: Annotated[Tensor, "(batch, source length, any width)"],
        target_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
    ) -> Annotated[Tensor, "(batch, num_heads, target length, source length)"]:
        """Returns how much every target position attends to every source position.

        Args:
            target: as in a call.
            source: as in a call.
            target_mask: as in a call.
            source_mask: as in a call.
        """
        target, _ = self._attend_to_target(target, target_mask)
        queries = self.source_attention_residual.sublayer_input(target)
        _, scores = self.source_attention(queries, source, value_mask=source_mask, return_attention_scores=True)
        return scores

    def _attend_to_target(
        self,
        target: Tensor,
        target_mask: Tensor | None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = True,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns the target after self-attention, and the scores in a tuple, which is empty unless asked for."""
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        hidden = self.attention_residual.sublayer_input(target)
        hidden = self.attention(
            hidden,
            hidden,
            value_mask=target_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            use_causal_mask=use_causal_mask,
        )
        hidden, *scores = hidden if return_attention_scores else (hidden,)
        return self.attention_residual(target, hidden, training=training), tuple(scores)

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache for the self-attention.

        Args:
            batch_size: int or int scalar.
            max_length: int or int scalar, the number of entries. Defaults to None: each step makes the cache longer.
        """
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        return self.attention.init_cache(batch_size, max_length)

    def project_source(self, source: Annotated[Tensor, "(batch, source length, any width)"]) -> KeyValues:
        """Projects the source to keys and values, once for all steps."""
        return self.source_attention.project_key_value(source)

    def step(
        self,
        target: Annotated[Tensor, "(batch, n, d_model)"],
        cache: Cache,
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        source_key_values: KeyValues | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"] | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], Cache]:
        """Computes new positions only.

        Args:
            target: the next position of n hypotheses in a beam search, or n next positions.
            cache: from `init_cache` or the previous step.
            position: int or int scalar, the place in a `FixedCache` where the n entries go.
            mask: True = attend: the entries that each of the n may attend to, within its neighborhood if the layer
                has one. Defaults to None: the n are next positions, and each sees itself and the entries before it,
                within its neighborhood.
            source_key_values: from `project_source`.
            source_mask: True = a real token.
            position_ids: the places of the n in the sequence, for `relative_positions`. Defaults to None: the numbers
                of their entries.
            entry_position_ids: the places of the cache's entries in the sequence, for `relative_positions`. Defaults
                to None: 0, 1, 2, ... In a beam search, where each step writes `beam_size` entries, entry e is at
                place `e // beam_size`.

        Returns:
            The outputs of the n positions, and the cache with the n entries.

        Raises:
            ValueError: The n entries end after the `FixedCache`; only checked if the sizes and `position` are ints.
        """
        hidden = self.attention_residual.sublayer_input(target)
        first_entry = cache.next_entry(position)
        if self.relative_positions is not None and position_ids is None:
            position_ids = _own_entries(first_entry, target)[None, :]
        # Given twice, keys and values are projected by a product each: to join the kernels of the two would take
        # longer than it saves for so few positions.
        key_values = self.attention.project_key_value(hidden, hidden, position_ids)
        cache = cache.write(key_values, position)
        mask = self._entries_to_attend_to(first_entry, target, cache) if mask is None else mask
        hidden = self.attention.attend(hidden, cache, mask, position_ids, entry_position_ids)
        target = self.attention_residual(target, hidden)
        if source_key_values is not None:
            hidden = self.source_attention_residual.sublayer_input(target)
            source_mask = None if source_mask is None else ops.expand_dims(source_mask, 1)
            hidden = self.source_attention.attend(hidden, source_key_values, source_mask)
            target = self.source_attention_residual(target, hidden)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(target))
        return self.feed_forward_residual(target, hidden), cache

    def _entries_to_attend_to(self, first_entry: Dimension, target: Tensor, cache: Cache) -> Tensor:
        # What one call attends to: bool (1, n, number of entries)
        entries = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
        own_entries = _own_entries(first_entry, target)
        if self.neighborhood is not None:
            return neighborhood_mask(own_entries, entries, self.neighborhood, use_causal_mask=True)
        return ops.expand_dims(own_entries[:, None] >= entries[None, :], 0)

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape


def _own_entries(first_entry: Dimension, target: Tensor) -> Tensor:
    """The numbers of the entries that a step writes: int (n,)."""
    return ops.cast(first_entry, "int32") + ops.arange(ops.shape(target)[1], dtype="int32")
