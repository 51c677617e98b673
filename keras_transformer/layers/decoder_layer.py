"""One layer of the decoder (section 3.1 of the paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras
from keras import ops

from ..config.rules import OddSize, Positive, Rate, Size, check_attributes
from ..masks import implicit_mask, neighborhood_mask
from ..tensors import Dimension, Shape, Tensor
from .key_value_cache import Cache, KeyValues
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
        ValueError: An argument breaks its rule; `num_heads` does not divide d_model and `key_dim` is None; or a
            layer that was built with a source is called without one, or the reverse.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
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
        check_attributes(self, DecoderLayer)
        self.supports_masking = True

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self.attention, self.attention_residual = self._build_attention(
            "attention", target_shape, target_shape, self.neighborhood
        )
        self.source_attention: Any = None  # MultiHeadAttention in a layer with a source
        if source_shape is not None:
            self.source_attention, self.source_attention_residual = self._build_attention(
                "source_attention", target_shape, source_shape
            )
        self.feed_forward, self.feed_forward_residual = self._build_feed_forward(target_shape)

    def call(
        self,
        target: Annotated[Tensor, "(batch, target length, d_model)"],
        source: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        target_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, target length, d_model)"]:
        if (source is None) != (self.source_attention is None):
            built = "without" if self.source_attention is None else "with"
            raise ValueError(
                f"source must be given in every call or in none; the layer was built {built} one and "
                f"received source={'None' if source is None else 'a tensor'}"
            )
        target = self._attend_to_target(target, target_mask, training)
        if source is not None:
            hidden = self.source_attention(
                self.source_attention_residual.sublayer_input(target),
                source,
                value_mask=source_mask,
                training=training,
            )
            target = self.source_attention_residual(target, hidden, training=training)
        hidden = self.feed_forward(self.feed_forward_residual.sublayer_input(target), training=training)
        return self.feed_forward_residual(target, hidden, training=training)

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
        target = self._attend_to_target(target, target_mask)
        queries = self.source_attention_residual.sublayer_input(target)
        _, scores = self.source_attention(queries, source, value_mask=source_mask, return_attention_scores=True)
        return scores

    def _attend_to_target(self, target: Tensor, target_mask: Tensor | None, training: bool | None = None) -> Tensor:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        hidden = self.attention_residual.sublayer_input(target)
        hidden = self.attention(hidden, hidden, value_mask=target_mask, use_causal_mask=True, training=training)
        return self.attention_residual(target, hidden, training=training)

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

        Returns:
            The outputs of the n positions, and the cache with the n entries.

        Raises:
            ValueError: The n entries end after the `FixedCache`; only checked if the sizes and `position` are ints.
        """
        hidden = self.attention_residual.sublayer_input(target)
        first_entry = cache.next_entry(position)
        # Given twice, keys and values are projected by a product each: to join the kernels of the two would take
        # longer than it saves for so few positions.
        cache = cache.write(self.attention.project_key_value(hidden, hidden), position)
        mask = self._entries_to_attend_to(first_entry, target, cache) if mask is None else mask
        target = self.attention_residual(target, self.attention.attend(hidden, cache, mask))
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
        own_entries = ops.cast(first_entry, "int32") + ops.arange(ops.shape(target)[1], dtype="int32")
        if self.neighborhood is not None:
            return neighborhood_mask(own_entries, entries, self.neighborhood, use_causal_mask=True)
        return ops.expand_dims(own_entries[:, None] >= entries[None, :], 0)

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
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
