"""Multi-head attention (section 3.2 of the paper), for whole sequences or step by step.

Heads stand before positions: queries are (batch, num_heads, target length, key_dim). There may be
fewer heads of keys and values than of queries: then the queries of several heads attend to the same
keys.
"""

import inspect
import math
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import keras
from keras import ops

from ..checks import require, require_divisor
from ..errors import ConfigError
from ..masks import causal_mask, combine, neighborhood_mask
from ..rules import OddSize, Rate, Size, annotations_of, check_attributes
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .arguments import (
    CommonArguments,
    check_batch,
    check_mask,
    child_arguments,
    config_of,
    require_built,
)
from .attention_axes import AttentionAxes
from .cache import Cache, GrowingCache, KeyValues, empty_cache
from .elementary import Dropout
from .local_attention import divide
from .relative_positions import RelativePositions, T5RelativeBias, alibi_bias, rotate

# Added to masked scores: in float32 or better, the exponential of the sum is exactly 0.
_MASKED = -1e9
# This bias makes a weight 0 and is finite in float16.
_MASKED_IN_FLOAT16 = -6e4


def spec_with_scores(
    layer: keras.layers.Layer, *args: Any, **kwargs: Any
) -> keras.KerasTensor | tuple[Any, ...]:
    """The method `compute_output_spec` of layers that return attention scores too if they are asked
    to."""
    if inspect.signature(layer.call).bind(*args, **kwargs).arguments.get("return_attention_scores"):
        # The shape of the output says nothing about the scores; running the call does.
        return keras.Operation.compute_output_spec(layer, *args, **kwargs)
    return keras.layers.Layer.compute_output_spec(layer, *args, **kwargs)


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (sections 3.2.1 and 3.2.2).

    Computes `softmax(Q Kᵀ / sqrt(key_dim)) V` in each head, concatenates the heads' outputs and
    projects them. Softmax runs in float32 or better under every dtype policy. A position that may
    attend to nothing gets zeros before the output projection, so that masked content never matters.

    The arguments of `keras.layers.MultiHeadAttention` have the same names, places and meanings
    here, and the outputs are the same. The paper's projections have no bias: `use_bias=False`.

    For decoding step by step there are `init_cache` and `step`:

        cache = attention.init_cache(batch_size)
        outputs, cache = attention.step(new_positions, cache, position)

    `step` is made of `project_key_value` and `attend`, which also read what was projected before,
    such as a source.

    Args:
        num_heads: int. h, the number of heads.
        key_dim: int. d_k, the width of each head's queries and keys.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate at which attention weights are dropped; the paper has none. Defaults to
            0.
        use_bias: bool. Whether the projections add a bias; those of the paper do not. Defaults to
            True.
        output_shape: int, tuple of ints or None. The last axes of the output. Defaults to None: the
            width of the query.
        attention_axes: int, tuple of ints or None. The axes of inputs (batch, ..., features) that
            attention runs along; each place on the other axes is on its own. Several axes count as
            one sequence, row by row, for `use_causal_mask`, neighborhoods and relative positions.
            Defaults to None: all axes between batch and features.
        sliding_window: int or None. w, another way to say `neighborhood=2 * w - 1`. Defaults to
            None.
        flash_attention: bool or None. Whether to compute with the backend's flash attention, which
            gives no scores and allows no dropout; the blocks of a neighborhood do without it. False
            keeps to products and a softmax. None takes what is faster, and is False after
            `keras.config.disable_flash_attention()`. Defaults to None.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None. Defaults to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None. Defaults to None.
        activity_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to the output
            of each projection. Defaults to None.
        kernel_constraint: str, `keras.constraints.Constraint` or None. Defaults to None.
        bias_constraint: str, `keras.constraints.Constraint` or None. Defaults to None.
        use_gate: bool. Whether to multiply the heads' outputs by the sigmoid of another projection
            of the query (Qiu et al. 2025). Defaults to False.
        seed: int or None. Seed of the dropout. Defaults to None.
        neighborhood: int or None. r of restricted self-attention (section 4): a position attends to
            the r positions centred on itself (r is odd), in time and memory proportional to r *
            length, or to length * length if `attention_mask` or `return_attention_scores` is given.
            Defaults to None: attend to all positions.
        num_key_value_heads: int or None. The number of heads of keys and values, a divisor of
            `num_heads`: the queries of `num_heads / num_key_value_heads` consecutive heads share
            them (Ainslie et al. 2023). Defaults to `num_heads`.
        query_key_norm: bool. Whether to divide each head's queries and keys by their root mean
            square, and to multiply them by learned scales (Henry et al. 2020, with RMS
            normalization). Defaults to False.
        relative_positions: str or None. "rotary" rotates queries and keys (Su et al. 2021;
            `key_dim` must be even), "alibi" subtracts a multiple of the distance from the scores
            (Press et al. 2022), "t5" adds a learned bias for the distance (Raffel et al. 2020).
            Target and source are both counted from their start. Defaults to None.

    Call arguments:
        query: (batch, target length, d_model), or of a higher rank: (batch, ..., d_model).
        value: (batch, source length, any width), of the rank of the query.
        key: (batch, source length, any width). Defaults to `value`.
        query_mask: bool (batch, target length), True = a real token. It does not change the output;
            an implicit Keras mask of the query is passed on with it.
        value_mask: bool (batch, source length). Defaults to the implicit Keras mask of `value`.
        key_mask: bool (batch, source length). Defaults to the implicit Keras mask of `key`.
        attention_mask: bool, True = attend, of shape (target length, source length), (batch, target
            length, source length) or (batch, num_heads, target length, source length); any of these
            sizes may be 1. For inputs of a higher rank (batch, free axes ..., num_heads, target
            axes ..., source axes ...), where num_heads, or it and axes before it, may be missing.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to
            False.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults
            to False.

    Returns:
        (batch, target length, d_model), or of `output_shape` after the target length, and, if asked
        for, the weights (batch, num_heads, target length, source length), or (batch, free axes ...,
        num_heads, target axes ..., source axes ...).

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
        *,
        neighborhood: OddSize | None = None,
        num_key_value_heads: Size | None = None,
        query_key_norm: bool = False,
        relative_positions: RelativePositions | None = None,
        **kwargs: Unpack[CommonArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        # These have underscores because Keras uses the names itself, in `summary` and for the
        # layer's outputs.
        self._output_shape = tuple(output_shape) if isinstance(output_shape, list) else output_shape
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.attention_axes = (
            tuple(attention_axes) if isinstance(attention_axes, list) else attention_axes
        )
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
        self.neighborhood = neighborhood
        self.num_key_value_heads = num_key_value_heads
        self.query_key_norm = query_key_norm
        self.relative_positions = relative_positions
        check_attributes(self, MultiHeadAttention)
        self._check_combinations()
        self._value_width = self.value_dim or self.key_dim
        self._num_kv_heads = self.num_key_value_heads or self.num_heads
        self.supports_masking = True

    def _check_combinations(self) -> None:
        sizes = (self._output_shape,) if isinstance(self._output_shape, int) else self._output_shape
        rule = "a positive int, a tuple of them, or None"
        require(
            sizes is None or (_are_ints(sizes) and min(sizes) > 0),
            "output_shape",
            rule,
            self._output_shape,
        )
        axes = (
            (self.attention_axes,) if isinstance(self.attention_axes, int) else self.attention_axes
        )
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
        require_divisor("num_key_value_heads", self.num_key_value_heads, num_heads=self.num_heads)
        if self.relative_positions == "rotary":
            require(
                self.key_dim % 2 == 0,
                "key_dim",
                "even with relative_positions='rotary'",
                self.key_dim,
            )

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        key_shape = key_shape or value_shape
        _check_shapes(query_shape, value_shape, key_shape)
        # Keras checks the query of each call.
        self.input_spec = keras.layers.InputSpec(ndim=len(query_shape), axes={-1: query_shape[-1]})
        self._axes = AttentionAxes.of(self.attention_axes, len(query_shape))
        heads_width = self.num_heads * self._value_width
        self.query_dense = self._make_dense(self.num_heads * self.key_dim, "query")
        self.key_dense = self._make_dense(self._num_kv_heads * self.key_dim, "key")
        self.value_dense = self._make_dense(self._num_kv_heads * self._value_width, "value")
        self.output_dense = self._make_dense(math.prod(self._output_dims(query_shape)), "output")
        self.attention_dropout = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], heads_width))
        if self.use_gate:
            self.gate_dense = self._make_dense(heads_width, "gate", activation="sigmoid")
            self.gate_dense.build(query_shape)
        if self.query_key_norm:
            self.query_norm = keras.layers.RMSNormalization(
                dtype=self.dtype_policy, name="query_norm"
            )
            self.key_norm = keras.layers.RMSNormalization(dtype=self.dtype_policy, name="key_norm")
            self.query_norm.build((None, self.num_heads, None, self.key_dim))
            self.key_norm.build((None, self._num_kv_heads, None, self.key_dim))
        if self.relative_positions == "t5":
            self.relative_bias = T5RelativeBias(
                self.num_heads, dtype=self.dtype_policy, name="relative_bias"
            )
            self.relative_bias.build()

    def _make_dense(
        self, units: int, name: str, activation: str | None = None
    ) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            activation,
            self.use_bias,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            **child_arguments(self, name),
        )

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
                "Returning attention scores is not supported when flash attention is enabled. "
                "Please disable flash "
                "attention to access attention scores. Received return_attention_scores=True with "
                "flash_attention=True"
            )
        check_mask("query_mask", query_mask, "query", query)
        check_mask("value_mask", value_mask, "value", value)
        check_mask(
            "key_mask", key_mask, "value" if key is None else "key", value if key is None else key
        )
        check_batch("value", value, "query", query)
        axes, neighborhood = self._axes, self.reach
        targets = axes.fold(query)
        sources = targets if value is query else axes.fold(value)
        key = None if key is None else axes.fold(key)
        source_mask = axes.fold_padding(combine(value_mask, key_mask), value)
        mask = axes.fold_attention_mask(attention_mask, query, value, self.num_heads)
        if neighborhood is not None and mask is None and not return_attention_scores:
            heads = self._attend_to_blocks(
                targets, sources, key, source_mask, neighborhood, training, use_causal_mask
            )
            return axes.unfold(self._outputs(targets, heads), query)
        share_positions = (
            value is query and self.relative_positions == "rotary"
        )  # TensorFlow computes the angles once
        position_ids = ops.arange(ops.shape(targets)[1]) if share_positions else None
        queries = self._project_query(targets, position_ids)
        keys, values = self.project_key_value(sources, key, position_ids)
        bias = self._bias(queries, keys, use_causal_mask)
        # Do not index with None: LiteRT has no such operation if batch and length are unknown.
        mask = combine(mask, None if source_mask is None else ops.expand_dims(source_mask, (1, 2)))
        is_fused = not return_attention_scores and self._is_fused(queries, keys, values, training)
        # The fused operation can make a causal mask by itself.
        is_causal = (
            is_fused and use_causal_mask and mask is None and bias is None and neighborhood is None
        )
        is_causal = is_causal and (
            value is query or targets.shape[1] == sources.shape[1] is not None
        )
        if not is_causal and (use_causal_mask or neighborhood is not None):
            positions = ops.arange(ops.shape(targets)[1])
            key_positions = positions if sources is targets else ops.arange(ops.shape(sources)[1])
            mask = combine(mask, self._mask_of_positions(positions, key_positions, use_causal_mask))
        if is_fused:
            heads = _fused_attention(
                queries, keys, values, mask, bias, is_causal, self._flash_attention
            )
            return axes.unfold(self._outputs(targets, heads), query)
        weights = attention_weights(queries, keys, mask, bias)
        heads = product_of_heads(self.attention_dropout(weights, training=training), values)
        outputs = axes.unfold(self._outputs(targets, _swap_heads(heads)), query)
        return (
            (outputs, axes.unfold_scores(weights, query, value))
            if return_attention_scores
            else outputs
        )

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
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

    def _attend_to_blocks(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None,
        source_mask: Tensor | None,
        neighborhood: int,
        training: bool | None,
        use_causal_mask: bool,
    ) -> Tensor:
        # Blocks take the place of the batch: each attends to itself and to the blocks beside it.
        batch, length, _ = ops.shape(query)
        blocks = divide(
            _project_rows(query, self.query_dense),
            _project_rows(value if key is None else key, self.key_dense),
            _project_rows(value, self.value_dense),
            source_mask,
            neighborhood,
            use_causal_mask,
            is_self_attention=value is query,
        )
        sizes = batch * blocks.num_blocks, blocks.window_length
        queries = _split_heads(blocks.queries, sizes[0], blocks.block_length, self.num_heads)
        keys = _split_heads(blocks.keys, *sizes, self._num_kv_heads)
        values = _split_heads(blocks.values, *sizes, self._num_kv_heads)
        queries = self._with_positions(queries, "query_norm", blocks.positions)
        keys = self._with_positions(keys, "key_norm", blocks.key_positions)
        bias = self._bias(queries, keys, use_causal_mask, blocks.positions, blocks.key_positions)
        weights = attention_weights(queries, keys, _per_head(blocks.mask), bias)
        heads = _swap_heads(
            product_of_heads(self.attention_dropout(weights, training=training), values)
        )
        heads_shape = (
            batch,
            blocks.num_blocks * blocks.block_length,
            self.num_heads * self._value_width,
        )
        return ops.reshape(heads, heads_shape)[:, :length]

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache: a `FixedCache` of `max_length` entries, or a `GrowingCache` if
        that is None.

        Raises:
            ValueError: The layer is not built yet.
        """
        require_built(self)
        num_heads = self._num_kv_heads
        return empty_cache(
            batch_size, num_heads, self.key_dim, self._value_width, max_length, self.compute_dtype
        )

    def project_key_value(
        self,
        value: Annotated[Tensor, "(batch, source length, any width)"],
        key: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, source length)"] | None = None,
    ) -> KeyValues:
        """Projects what is attended to.

        Args:
            value: as in a call.
            key: as in a call. Defaults to `value`.
            position_ids: the positions of the source, for rotary positions. Defaults to None: 0, 1,
                2, ...
        """
        keys = _project_to_heads(value if key is None else key, self.key_dense, self._num_kv_heads)
        values = _project_to_heads(value, self.value_dense, self._num_kv_heads)
        return KeyValues(self._with_positions(keys, "key_norm", position_ids), values)

    def attend(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        key_values: KeyValues,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, target length, source length)"]
        | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, target length)"] | None = None,
        key_position_ids: Annotated[Tensor, "int, broadcasts to (batch, source length)"]
        | None = None,
    ) -> Annotated[Tensor, "(batch, target length, d_model)"]:
        """Attends to keys and values that were projected before.

        Args:
            query: as in a call.
            key_values: from `project_key_value`, or a cache.
            mask: True = attend. Defaults to None: attend to everything. `neighborhood` does not
                restrict this call, since the layer cannot know the position of a cache's entry.
            position_ids: the positions of the query, for relative positions. Defaults to None: 0,
                1, 2, ...
            key_position_ids: the positions of the keys, for "alibi" and "t5". Defaults to None: 0,
                1, 2, ... The biases of "t5" are those of causal attention.
        """
        queries = self._project_query(query, position_ids)
        bias = self._bias(queries, key_values.keys, True, position_ids, key_position_ids)
        weights = attention_weights(
            queries, key_values.keys, None if mask is None else _per_head(mask), bias
        )
        return self._outputs(query, _swap_heads(product_of_heads(weights, key_values.values)))

    def step(
        self,
        hidden: Annotated[Tensor, "(batch, n, d_model)"],
        cache: Cache,
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"]
        | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], Cache]:
        """Computes new positions of causal self-attention only; the arguments are those of
        `DecoderLayer.step`."""
        first_entry = cache.next_entry(position)

        def new_entries() -> Tensor:
            return ops.cast(first_entry, "int32") + ops.arange(ops.shape(hidden)[1], dtype="int32")

        if self.relative_positions is not None and position_ids is None:
            position_ids = new_entries()[None, :]
        cache = cache.write(self.project_key_value(hidden, position_ids=position_ids), position)
        is_newest = isinstance(cache, GrowingCache) and hidden.shape[1] == 1
        if mask is None and (self.reach is not None or not is_newest):
            # The same positions as in one call. A single new position sees all entries of a growing
            # cache.
            entries = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
            mask = self._mask_of_positions(new_entries(), entries, use_causal_mask=True)
        return self.attend(hidden, cache, mask, position_ids, entry_position_ids), cache

    def _project_query(self, query: Tensor, position_ids: Tensor | None = None) -> Tensor:
        queries = _project_to_heads(query, self.query_dense, self.num_heads)
        return self._with_positions(queries, "query_norm", position_ids)

    def _with_positions(
        self, heads: Tensor, norm: str, position_ids: Tensor | None = None
    ) -> Tensor:
        """Normalizes and rotates the heads (batch, heads, length, key_dim) of queries or keys, if
        that is asked for."""
        if self.query_key_norm:
            heads = getattr(self, norm)(heads)
        return rotate(heads, position_ids) if self.relative_positions == "rotary" else heads

    def _bias(
        self,
        queries: Tensor,
        keys: Tensor,
        causal: bool,
        position_ids: Tensor | None = None,
        key_position_ids: Tensor | None = None,
    ) -> Tensor | None:
        """Returns what is added to the scores for the distances of positions, which default to 0,
        1, 2, ..."""
        if self.relative_positions not in ("alibi", "t5"):
            return None
        positions = ops.arange(ops.shape(queries)[2]) if position_ids is None else position_ids
        key_positions = (
            ops.arange(ops.shape(keys)[2]) if key_position_ids is None else key_position_ids
        )
        if self.relative_positions == "t5":
            return self.relative_bias(positions, key_positions, bidirectional=not causal)
        return alibi_bias(positions, key_positions, self.num_heads)

    def _mask_of_positions(
        self, positions: Tensor, key_positions: Tensor, use_causal_mask: bool
    ) -> Tensor:
        if self.reach is None:
            return causal_mask(positions, key_positions)
        return neighborhood_mask(positions, key_positions, self.reach, use_causal_mask)

    def _is_fused(
        self, queries: Tensor, keys: Tensor, values: Tensor, training: bool | None
    ) -> bool:
        """Returns whether to use the backend's operation: as asked for, or if it takes these
        tensors and is faster."""
        if self.dropout > 0 and training:
            return False
        if self._flash_attention is not None:
            return self._flash_attention
        if keras.backend.backend() == "jax":
            half = keras.backend.standardize_dtype(queries.dtype) in ("float16", "bfloat16")
            # The gradient of cuDNN's operation, if it has a mask, takes even lengths only.
            even = all(
                length is not None and length % 2 == 0
                for length in (queries.shape[2], keys.shape[2])
            )
            on_gpu = any(
                device.startswith(("gpu", "cuda")) for device in keras.distribution.list_devices()
            )
            return half and even and keys.shape[-1] == values.shape[-1] and on_gpu
        if keras.backend.backend() == "torch":
            # PyTorch copies the keys of grouped queries, which only pays off if memory for the
            # weights is saved.
            return (
                queries.shape[1] == keys.shape[1]
                or ops.convert_to_tensor(queries).device.type != "cpu"
            )
        return False

    @property
    def reach(self) -> int | None:
        """The neighborhood of restricted attention, from `neighborhood` or `sliding_window`."""
        return self.neighborhood if self.sliding_window is None else 2 * self.sliding_window - 1

    @property
    def _flash_attention(self) -> bool | None:
        return (
            keras.config.is_flash_attention_enabled()
            if self.flash_attention is None
            else self.flash_attention
        )

    def _outputs(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        heads: Annotated[
            Tensor, "(batch, target length, num_heads, value_dim), or (..., num_heads * value_dim)"
        ],
    ) -> Tensor:
        batch, length = ops.shape(query)[:2]
        # Compute in two dimensions as in `_project_rows`, unless a regularizer's loss depends on
        # the batch axis.
        leading = (-1,) if self._activity_regularizer is None else (batch, length)
        rows = ops.reshape(heads, (*leading, self.num_heads * self._value_width))
        if self.use_gate:
            rows = ops.multiply(
                rows, self.gate_dense(ops.reshape(query, (*leading, query.shape[-1])))
            )
        return reshape_inferring(
            self.output_dense(rows), (batch, length, *self._output_dims(query.shape))
        )

    def _output_dims(self, query_shape: Shape) -> tuple[int, ...]:
        if self._output_shape is None:
            return (int(query_shape[-1] or 0),)
        return (self._output_shape,) if isinstance(self._output_shape, int) else self._output_shape

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> Shape:
        _check_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], *self._output_dims(query_shape))

    compute_output_spec = spec_with_scores

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **config_of(self, annotations_of(MultiHeadAttention.__init__)),
        }


def _are_ints(values: tuple[object, ...] | int | None) -> bool:
    return isinstance(values, tuple) and bool(values) and {type(value) for value in values} == {int}


def _check_shapes(query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
    if len(query_shape) < 3 or query_shape[-1] is None:
        rule = "(batch, length, d_model), or have more axes between batch and d_model"
        raise ConfigError(f"query must be {rule}; received query of shape {tuple(query_shape)}")
    # Shapes may be tuples, lists or objects of the backend.
    if not hasattr(key_shape, "__len__") or [*value_shape[:-1]] != [*key_shape[:-1]]:
        raise ConfigError(
            "value and key must be equal in all dimensions but the last; "
            f"received value of shape {value_shape} and key of shape {key_shape}"
        )
    if len(value_shape) != len(query_shape):
        raise ConfigError(
            "query and value must be of the same rank; "
            f"received query of shape {tuple(query_shape)} and value of shape {tuple(value_shape)}"
        )


def attention_weights(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_key_value_heads, source length, key_dim)"],
    mask: Annotated[Tensor, "bool, broadcasts to (batch, num_heads, target length, source length)"]
    | None = None,
    bias: Annotated[Tensor, "broadcasts to (batch, num_heads, target length, source length)"]
    | None = None,
) -> Annotated[Tensor, "(batch, num_heads, target length, source length)"]:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias)`, equation 1, in float32 or better; returns
    the queries' type.

    A row whose mask is all False is all zeros.
    """
    queries = ops.multiply(queries, queries.shape[-1] ** -0.5)
    scores = product_of_heads(
        queries, ops.transpose(keys, (0, 1, 3, 2))
    )  # (batch, num_heads, target, source)
    dtype = keras.backend.result_type(scores.dtype, "float32")
    scores = ops.cast(scores, dtype)
    if bias is not None:
        scores = scores + ops.cast(bias, dtype)
    if mask is None:
        return ops.cast(ops.softmax(scores), queries.dtype)
    weights = ops.softmax(
        scores + (1 - ops.cast(mask, dtype)) * _MASKED
    )  # `ops.where` is slower on TensorFlow
    # Softmax of a row that is masked everywhere is uniform.
    return ops.cast(weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), dtype), queries.dtype)


def product_of_heads(left: Tensor, right: Tensor) -> Tensor:
    """Multiplies (batch, num_heads, length, n) by (batch, num_key_value_heads, n, m)."""
    num_heads, num_right_heads = left.shape[1], right.shape[1]
    if num_heads == num_right_heads:
        return ops.matmul(left, right)
    # The heads of one group follow each other: their rows are rows of one product, and nothing is
    # repeated.
    batch, _, length, width = ops.shape(left)
    rows = reshape_inferring(
        left, (batch, num_right_heads, num_heads // num_right_heads * length, width)
    )
    product = ops.matmul(rows, right)
    return reshape_inferring(product, (batch, num_heads, length, ops.shape(right)[-1]))


def _fused_attention(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_key_value_heads, source length, key_dim)"],
    values: Annotated[Tensor, "(batch, num_key_value_heads, source length, value_dim)"],
    mask: Annotated[Tensor, "bool, broadcasts to (batch, num_heads, target length, source length)"]
    | None = None,
    bias: Annotated[Tensor, "broadcasts to (batch, num_heads, target length, source length)"]
    | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
) -> Annotated[Tensor, "(batch, target length, num_heads, value_dim)"]:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias) V` in one operation of the backend, which
    keeps no weights.

    A row whose mask is all False is all zeros. `is_causal` needs neither mask nor bias.
    `flash_attention` must be flash attention, or with None wherever the backend can.
    """
    any_attended = None
    if mask is not None:
        any_attended = ops.any(mask, axis=-1, keepdims=True)
        # A softmax over nothing would be NaN.
        mask = ops.logical_or(mask, ops.logical_not(any_attended))
    if mask is not None and bias is not None:
        # The operation takes a mask or a bias, but not both.
        mask, bias = None, ops.where(mask, bias, _MASKED_IN_FLOAT16)
    if keras.backend.backend() == "torch":
        if keys.shape[1] == 1:
            shape = (ops.shape(keys)[0], queries.shape[1], *ops.shape(keys)[2:3])
            keys, values = (
                ops.broadcast_to(tensor, (*shape, tensor.shape[-1])) for tensor in (keys, values)
            )
        # PyTorch chooses flash attention by itself. Keras' check whether it is available breaks
        # compiled graphs.
        flash_attention = bool(flash_attention)
    if keras.backend.backend() == "jax" and mask is not None:
        # cuDNN takes one mask for all sequences or heads, but not one for all queries.
        mask = _per_head(mask)
        mask = ops.broadcast_to(
            mask, (*ops.shape(mask)[:2], ops.shape(queries)[2], ops.shape(keys)[2])
        )
    heads = ops.dot_product_attention(
        *(ops.transpose(tensor, (0, 2, 1, 3)) for tensor in (queries, keys, values)),
        mask=mask,
        bias=bias,
        is_causal=is_causal,
        scale=queries.shape[-1] ** -0.5,
        flash_attention=flash_attention,
    )
    return (
        heads
        if any_attended is None
        else ops.where(ops.transpose(_per_head(any_attended), (0, 2, 1, 3)), heads, 0)
    )


def _project_rows(
    inputs: Annotated[Tensor, "(batch, length, width)"], projection: keras.layers.Dense
) -> Annotated[Tensor, "(batch, length, units)"]:
    """Applies a projection in two dimensions: TensorFlow adds a dozen small operations to a product
    of more."""
    if projection.activity_regularizer is not None or projection.quantization_mode:
        # Keras divides the regularizer's loss by the size of the first axis; only the layer knows
        # quantized scales.
        return projection(inputs)
    batch, length, width = ops.shape(inputs)
    # Nothing calls a layer in a decoding step, so that Keras does not cast the weights.
    outputs = ops.matmul(
        ops.reshape(inputs, (-1, width)), ops.cast(projection.kernel, inputs.dtype)
    )
    if projection.use_bias:
        outputs = ops.add(outputs, ops.cast(projection.bias, inputs.dtype))
    return reshape_inferring(outputs, (batch, length, projection.units))


def _project_to_heads(
    inputs: Annotated[Tensor, "(batch, length, width)"],
    projection: keras.layers.Dense,
    num_heads: int,
) -> Annotated[Tensor, "(batch, num_heads, length, units / num_heads)"]:
    batch, length, _ = ops.shape(inputs)
    return _split_heads(_project_rows(inputs, projection), batch, length, num_heads)


def _split_heads(
    projected: Annotated[Tensor, "(..., num_heads * width)"],
    batch: Dimension,
    length: Dimension,
    num_heads: int,
) -> Annotated[Tensor, "(batch, num_heads, length, width)"]:
    width = projected.shape[-1] // num_heads
    if num_heads == 1:
        # There is nothing to swap, and tf2onnx makes a wrong shape of a swap that moves nothing.
        return reshape_inferring(projected, (batch, 1, length, width))
    return _swap_heads(reshape_inferring(projected, (batch, length, num_heads, width)))


def _swap_heads(
    heads: Annotated[Tensor, "(batch, a, b, width)"],
) -> Annotated[Tensor, "(batch, b, a, width)"]:
    """Swaps the axes of heads and positions, the second and the third."""
    batch, second, third, width = ops.shape(heads)
    if isinstance(second, int) and isinstance(third, int) and 1 in (second, third):
        # The data stay in place, as in a step of greedy search: nothing is copied.
        return reshape_inferring(heads, (batch, third, second, width))
    return ops.transpose(heads, (0, 2, 1, 3))


def _per_head(mask: Tensor) -> Tensor:
    """A mask with an axis for the heads, unless it has one: (..., target length, source length) of
    rank 3 or 4."""
    return mask if len(mask.shape) == 4 else ops.expand_dims(mask, -3)
