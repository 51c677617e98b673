"""Multi-head attention (section 3.2 of the paper), for whole sequences or step by step."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Unpack

import keras
from keras import ops

from ...errors import ConfigError
from ...masks import causal_mask, combine, neighborhood_mask
from ...rules import OddSize, Rate, Size, check_attributes, require
from ...tensors import Shape, Tensor
from ..layer_arguments import CommonArguments
from .attention_axes import AttentionAxes
from .attention_projections import AttentionProjections
from .dot_product_attention import attention_weights, weighted_sums
from .fused_attention import fused_attention, is_fused_attention_faster
from .heads import project_rows, split_heads, swap_heads
from .key_value_cache import Cache, KeyValues
from .neighborhood import divide


class _Inputs(NamedTuple):
    """The tensors of one call."""

    query: Tensor
    value: Tensor
    key: Tensor | None
    source_mask: Tensor | None
    attention_mask: Tensor | None


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(AttentionProjections):
    """Multi-head attention (sections 3.2.1 and 3.2.2).

    Computes `softmax(Q Kᵀ / sqrt(key_dim)) V` in each head, concatenates the heads' outputs and projects them. Softmax
    runs in float32 or better under every dtype policy. A position that may attend to nothing gets zeros before the
    output projection, so that masked content never matters.

    The arguments of `keras.layers.MultiHeadAttention` have the same names, places and meanings here, and the outputs
    are the same. The paper's projections have no bias: `use_bias=False`.

    For decoding step by step there are `init_cache`, `project_key_value` and `attend`:

        cache = attention.init_cache(batch_size)
        cache = cache.write(attention.project_key_value(new_positions), position)
        outputs = attention.attend(new_positions, cache, mask)

    Args:
        num_heads: int. h, the number of heads.
        key_dim: int. d_k, the width of each head's queries and keys.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate at which attention weights are dropped; the paper has none. Defaults to 0.
        use_bias: bool. Whether the projections add a bias; those of the paper do not. Defaults to True.
        output_shape: int, tuple of ints or None. The last axes of the output. Defaults to None: the width of the query.
        attention_axes: int, tuple of ints or None. The axes of inputs (batch, ..., features) that attention runs along;
            each place on the other axes is on its own. Several axes count as one sequence, row by row, for
            `use_causal_mask`, neighborhoods and relative positions. Defaults to None: all axes between batch and
            features.
        sliding_window: int or None. w, another way to say `neighborhood=2 * w - 1`. Defaults to None.
        flash_attention: bool or None. Whether to compute with the backend's flash attention, which gives no scores and
            allows no dropout; the blocks of a neighborhood do without it. False keeps to products and a softmax, which
            have derivatives of every order. None takes what is faster, and is False after
            `keras.config.disable_flash_attention()`. Defaults to None.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None. Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None. Defaults to None.
        activity_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to the output of each projection.
            Defaults to None.
        kernel_constraint: str, `keras.constraints.Constraint` or None. Defaults to None.
        bias_constraint: str, `keras.constraints.Constraint` or None. Defaults to None.
        use_gate: bool. Whether to multiply the heads' outputs by the sigmoid of another projection of the query (Qiu et
            al. 2025). Defaults to False.
        seed: int or None. Seed of the dropout. Defaults to None.
        neighborhood: int or None. r of restricted self-attention (section 4): a position attends to the r positions
            centred on itself (r is odd), in time and memory proportional to r * length, or to length * length if
            `attention_mask` or `return_attention_scores` is given. Defaults to None: attend to all positions.
        num_key_value_heads: int or None. The number of heads of keys and values, a divisor of `num_heads`: the queries
            of `num_heads / num_key_value_heads` consecutive heads share them (Ainslie et al. 2023). Defaults to
            `num_heads`.
        query_key_norm: bool. Whether to divide each head's queries and keys by their root mean square, and to multiply
            them by learned scales (Henry et al. 2020, with RMS normalization). Defaults to False.
        relative_positions: str or None. "rotary" rotates queries and keys (Su et al. 2021; `key_dim` must be even),
            "alibi" subtracts a multiple of the distance from the scores (Press et al. 2022), "t5" adds a learned bias
            for the distance (Raffel et al. 2020). Target and source are both counted from their start. Defaults to
            None.

    Call arguments:
        query: (batch, target length, d_model), or of a higher rank: (batch, ..., d_model).
        value: (batch, source length, any width), of the rank of the query.
        key: (batch, source length, any width). Defaults to `value`.
        query_mask: bool (batch, target length), True = a real token. It does not change the output; an implicit
            Keras mask of the query is passed on with it.
        value_mask: bool (batch, source length). Defaults to the implicit Keras mask of `value`.
        key_mask: bool (batch, source length). Defaults to the implicit Keras mask of `key`.
        attention_mask: bool, True = attend, of shape (target length, source length), (batch, target length, source
            length) or (batch, num_heads, target length, source length); any of these sizes may be 1. For inputs of a
            higher rank (batch, free axes ..., num_heads, target axes ..., source axes ...), where num_heads, or it and
            axes before it, may be missing.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to False.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults to False.

    Returns:
        (batch, target length, d_model), or of `output_shape` after the target length, and, if asked for, the weights
        (batch, num_heads, target length, source length), or (batch, free axes ..., num_heads, target axes ..., source
        axes ...).

    Raises:
        ConfigError: An argument breaks its rule, or an input does not fit. It is a ValueError.

    Example:
        >>> attention = MultiHeadAttention(num_heads=8, key_dim=64)
        >>> attention(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
        >>> rows = MultiHeadAttention(num_heads=2, key_dim=8, attention_axes=2, sliding_window=3)
        >>> image = keras.random.normal((2, 4, 6, 16))
        >>> rows(image, image).shape
        (2, 4, 6, 16)
    """

    def __init__(
        self,
        num_heads: Size,
        key_dim: Size,
        value_dim: Size | None = None,
        dropout: Rate = 0.0,
        use_bias: bool = True,
        output_shape: int | tuple[int, ...] | None = None,
        attention_axes: int | tuple[int, ...] | None = None,
        sliding_window: Size | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        activity_regularizer: str | keras.regularizers.Regularizer | None = None,
        kernel_constraint: str | keras.constraints.Constraint | None = None,
        bias_constraint: str | keras.constraints.Constraint | None = None,
        use_gate: bool = False,
        seed: int | None = None,
        neighborhood: OddSize | None = None,
        num_key_value_heads: Size | None = None,
        query_key_norm: bool = False,
        relative_positions: Literal["rotary", "alibi", "t5"] | None = None,
        **kwargs: Unpack[CommonArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        # With an underscore: Keras itself uses the names, in `summary` and for the outputs of the whole layer.
        self._output_shape = tuple(output_shape) if isinstance(output_shape, list) else output_shape
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.attention_axes = tuple(attention_axes) if isinstance(attention_axes, list) else attention_axes
        self.sliding_window = sliding_window
        self.flash_attention = flash_attention
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = use_gate
        self.seed = seed
        self.neighborhood: Any = neighborhood
        self.num_key_value_heads = num_key_value_heads
        self.query_key_norm = query_key_norm
        self.relative_positions = relative_positions
        check_attributes(self, MultiHeadAttention)
        self._check_combinations()
        self.supports_masking = True

    def _check_combinations(self) -> None:
        sizes = (self._output_shape,) if isinstance(self._output_shape, int) else self._output_shape
        rule = "a positive int, a tuple of them, or None"
        require(sizes is None or (_are_ints(sizes) and min(sizes) > 0), "output_shape", rule, self._output_shape)
        axes = (self.attention_axes,) if isinstance(self.attention_axes, int) else self.attention_axes
        rule = "an int, a tuple of ints, or None"
        require(axes is None or _are_ints(axes), "attention_axes", rule, self.attention_axes)
        if self.neighborhood is not None:
            rule = f"None with neighborhood={self.neighborhood}"
            require(self.sliding_window is None, "sliding_window", rule, self.sliding_window)
        if self.flash_attention and self.dropout > 0:
            raise ConfigError(
                "Dropout is not supported when flash attention is enabled: dropout must be 0 with "
                f"flash_attention=True; received dropout={self.dropout}"
            )
        rule = f"a divisor of num_heads={self.num_heads}"
        require(self.num_heads % self._num_key_value_heads == 0, "num_key_value_heads", rule, self.num_key_value_heads)
        if self.relative_positions == "rotary":
            require(self.key_dim % 2 == 0, "key_dim", "even with relative_positions='rotary'", self.key_dim)

    @property
    def _neighborhood(self) -> int | None:
        return self.neighborhood if self.sliding_window is None else 2 * self.sliding_window - 1

    @property
    def _flash_attention(self) -> bool | None:
        if self.flash_attention is not None:
            return self.flash_attention
        return keras.config.is_flash_attention_enabled()

    def call(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        value: Annotated[Tensor, "(batch, source length, any width)"],
        key: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        query_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        value_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        key_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., target length, source length)"] | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if return_attention_scores and self._flash_attention:
            raise ConfigError(
                "Returning attention scores is not supported when flash attention is enabled. Please disable flash "
                "attention to access attention scores. Received return_attention_scores=True with flash_attention=True"
            )
        axes = self._axes
        inputs = _Inputs(
            query,
            value,
            key,
            source_mask=combine(value_mask, key_mask),
            attention_mask=axes.fold_attention_mask(attention_mask, query, value),
        )
        if len(query.shape) == 3:
            return self._attend_to_sequence(inputs, return_attention_scores, training, use_causal_mask)
        folded = axes.fold(query)
        inputs = inputs._replace(
            query=folded,
            value=folded if value is query else axes.fold(value),
            key=None if key is None else axes.fold(key),
            source_mask=axes.fold_padding(inputs.source_mask, value),
        )
        outputs: Any = self._attend_to_sequence(inputs, return_attention_scores, training, use_causal_mask)
        if return_attention_scores:
            return axes.unfold(outputs[0], query), axes.unfold_scores(outputs[1], query, value)
        return axes.unfold(outputs, query)

    if TYPE_CHECKING:
        # For users, to whom a tensor of Keras may have any type.
        def __call__(
            self,
            query: object,
            value: object,
            key: object = None,
            query_mask: object = None,
            value_mask: object = None,
            key_mask: object = None,
            attention_mask: object = None,
            return_attention_scores: bool = False,
            training: bool | None = None,
            use_causal_mask: bool = False,
        ) -> Any: ...

    def attend(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        key_values: KeyValues | Cache,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, target length, source length)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, target length)"] | None = None,
        key_position_ids: Annotated[Tensor, "int, broadcasts to (batch, source length)"] | None = None,
    ) -> Annotated[Tensor, "(batch, target length, d_model)"]:
        """Attends to keys and values that were projected before.

        Args:
            query: as in a call.
            key_values: from `project_key_value`, or a cache.
            mask: True = attend. Defaults to None: attend to everything. `neighborhood` does not restrict this call,
                since the layer cannot know the position of a cache's entry.
            position_ids: the positions of the query, for relative positions. Defaults to None: 0, 1, 2, ...
            key_position_ids: the positions of the keys, for "alibi" and "t5". Defaults to None: 0, 1, 2, ... The
                biases of "t5" are those of causal attention.
        """
        queries = self._project_query(query, position_ids)
        bias = self._bias(queries, key_values.keys, True, position_ids, key_position_ids)
        weights = self._weights(queries, key_values.keys, None if mask is None else _per_head(mask), bias)
        return self._outputs(query, swap_heads(weighted_sums(weights, key_values.values)))

    def _attend_to_sequence(
        self, inputs: _Inputs, return_attention_scores: bool, training: bool | None, use_causal_mask: bool
    ) -> Tensor | tuple[Tensor, Tensor]:
        query, value, key, source_mask, mask = inputs
        if self._neighborhood is not None and mask is None and not return_attention_scores:
            heads = self._attend_to_neighborhood(inputs, self._neighborhood, training, use_causal_mask)
            return self._outputs(query, heads)
        queries, keys, values = self._project_all(query, value, key)
        bias = self._bias(queries, keys, use_causal_mask)
        # Not by indexing with None, for which LiteRT has no operation where batch and length are unknown.
        mask = combine(mask, None if source_mask is None else ops.expand_dims(source_mask, (1, 2)))
        fused = not return_attention_scores and self._is_fused(queries, keys, values, training)
        # A mask that the fused operation knows by itself.
        is_causal = fused and use_causal_mask and mask is None and bias is None and self._neighborhood is None
        is_causal = is_causal and (value is query or query.shape[1] == value.shape[1] is not None)
        if not is_causal:
            mask = combine(mask, self._mask_of_positions(query, value, use_causal_mask))
        if fused:
            heads = fused_attention(queries, keys, values, mask, bias, is_causal, self._flash_attention)
            return self._outputs(query, swap_heads(heads))
        weights = self._weights(queries, keys, mask, bias)
        heads = weighted_sums(self.attention_dropout(weights, training=training), values)
        outputs = self._outputs(query, swap_heads(heads))
        return (outputs, weights) if return_attention_scores else outputs

    def _mask_of_positions(self, query: Tensor, value: Tensor, use_causal_mask: bool) -> Tensor | None:
        if self._neighborhood is None and not use_causal_mask:
            return None
        target_length, source_length = ops.shape(query)[1], None if value is query else ops.shape(value)[1]
        if self._neighborhood is None:
            return causal_mask(target_length, source_length)
        targets = ops.arange(target_length)
        sources = targets if source_length is None else ops.arange(source_length)
        return neighborhood_mask(targets, sources, self._neighborhood, use_causal_mask)

    def _is_fused(self, queries: Tensor, keys: Tensor, values: Tensor, training: bool | None) -> bool:
        if self.dropout > 0 and training:
            return False
        flash_attention = self._flash_attention
        return is_fused_attention_faster(queries, keys, values) if flash_attention is None else flash_attention

    def _weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return ops.cast(attention_weights(queries, keys, mask, bias), self.compute_dtype)

    def _attend_to_neighborhood(
        self, inputs: _Inputs, neighborhood: int, training: bool | None, use_causal_mask: bool
    ) -> Tensor:
        # Blocks take the place of the batch: each attends to itself and to the blocks beside it.
        query, value, key, mask, _ = inputs
        batch, length, _ = ops.shape(query)
        blocks = divide(
            project_rows(query, self.query_dense),
            KeyValues(
                project_rows(value if key is None else key, self.key_dense), project_rows(value, self.value_dense)
            ),
            mask,
            neighborhood,
            use_causal_mask,
            is_self_attention=value is query,
        )
        sizes = batch * blocks.num_blocks, blocks.window_length
        (queries,) = split_heads(blocks.queries, sizes[0], blocks.block_length, self.num_heads)
        (keys,) = split_heads(blocks.keys, *sizes, self._num_key_value_heads)
        (values,) = split_heads(blocks.values, *sizes, self._num_key_value_heads)
        queries = self._with_positions(queries, "query_norm", blocks.positions)
        keys = self._with_positions(keys, "key_norm", blocks.key_positions)
        bias = self._bias(queries, keys, use_causal_mask, blocks.positions, blocks.key_positions)
        weights = self._weights(queries, keys, _per_head(blocks.mask), bias)
        heads = swap_heads(weighted_sums(self.attention_dropout(weights, training=training), values))
        heads_shape = (batch, blocks.num_blocks * blocks.block_length, self.num_heads * self._value_dim)
        return ops.reshape(heads, heads_shape)[:, :length]

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> Shape:
        self._check_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], *self._output_dims(query_shape))

    def compute_output_spec(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        value: Annotated[Tensor, "(batch, source length, any width)"],
        key: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        query_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        value_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        key_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., target length, source length)"] | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = self.compute_output_shape(query.shape, value.shape, None if key is None else key.shape)
        outputs = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        axes = AttentionAxes.of(self.attention_axes, len(query.shape))
        scores_shape = axes.scores_shape(query.shape, value.shape, self.num_heads)
        return outputs, keras.KerasTensor(scores_shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "attention_axes": self.attention_axes,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "use_gate": self.use_gate,
            "seed": self.seed,
            "neighborhood": self.neighborhood,
            "num_key_value_heads": self.num_key_value_heads,
            "query_key_norm": self.query_key_norm,
            "relative_positions": self.relative_positions,
        }


def _are_ints(values: tuple[object, ...] | int | None) -> bool:
    return isinstance(values, tuple) and bool(values) and {type(value) for value in values} == {int}


def _per_head(mask: Tensor) -> Tensor:
    """A mask with an axis for the heads, unless it has one: (..., target length, source length) of rank 3 or 4."""
    return mask if len(mask.shape) == 4 else ops.expand_dims(mask, -3)
