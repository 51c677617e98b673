"""Multi-head attention (section 3.2 of the paper), for whole sequences or step by step."""

import math
from typing import Any

import keras
from keras import ops

from ..checks import (
    boolean,
    integer,
    positive_int,
    rate,
    require,
    require_divisor,
)
from ..config.layer_options import RelativePositions
from ..errors import ConfigError
from ..masks import as_mask, as_numbers, causal_mask, combine, refuse_ragged, sliding_window_mask
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .argument_hints import ArgumentHints
from .attention_axes import AttentionAxes
from .cache import Cache, GrowingCache, KeyValues, empty_cache
from .children import child_initializer, require_built, saved_dtype
from .dropout import Dropout
from .input_checks import (
    check_batch,
    check_mask,
    check_same_axes,
    check_sequence,
    check_step_mask,
    check_width,
    output_spec_with_scores,
)
from .local_attention import divide
from .position_scheme import PositionScheme
from .relative_positions import (
    check_relative_positions,
    is_rotary,
    make_position_scheme,
    serialize_relative_positions,
)
from .rotary_positions import RotaryPositions
from .scaled_dot_product_attention import (
    attention_weights,
    fused_attention,
    per_head,
    product_of_heads,
    split_heads,
    swap_heads,
)


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(ArgumentHints, keras.layers.Layer):
    """Multi-head attention (sections 3.2.1 and 3.2.2).

    Computes `softmax(Q Kᵀ / sqrt(key_dim)) V` in each head, concatenates the heads' outputs and
    projects them. The softmax is computed in float32 or higher precision, regardless of the dtype
    policy.

    This layer is a drop-in replacement for `keras.layers.MultiHeadAttention`: the arguments have
    the same names and meanings, and the outputs are the same. The order of the arguments is the
    same as in Keras 3.15. In Keras 3.12 to 3.14, which have no `sliding_window`, only the first
    seven arguments have the same order. The paper's projections have no bias; to match them, pass
    `use_bias=False`.

    Masked positions have a weight of exactly 0 as long as scores and values do not exceed 1e37 or,
    in float16, the largest float16 number. If a mask hides every position, attention returns zeros
    before the output projection. Replace NaN and infinity at masked positions before the call.
    Otherwise, they reach the output, because 0 times NaN is NaN.

    To decode step by step, use `init_cache` and `step`:

        cache = attention.init_cache(batch_size)
        outputs, cache = attention.step(new_positions, cache, position)

    `step` calls `project_key_value` and `attend`. You can also project the output of an encoder
    once, and call `attend` with the keys and values as often as you like.

    Args:
        num_heads: int. Number h of attention heads.
        key_dim: int. Width d_k of each head's queries and keys.
        value_dim: int or None. Width d_v of each head's values. Defaults to `key_dim`.
        dropout: float. Dropout rate on the attention weights; the paper has none. Defaults to 0.
        use_bias: bool. Whether the projections add a bias; the paper has none. Defaults to True.
        output_shape: int, tuple of ints or None. Size of the output's last axis, or sizes of its
            last axes. Defaults to None: the width of the query.
        attention_axes: int, tuple of ints or None. Axes of the inputs (batch, ..., features) to
            attend along. The other axes are treated like the batch. Several axes form a single
            sequence in row-major order, to which `use_causal_mask`, `sliding_window` and
            `relative_positions` also apply. Defaults to None: all axes between batch and features.
        sliding_window: int or None. Window w of restricted self-attention (section 4): each
            position attends to itself and to the w - 1 positions before and after it. The paper's
            neighborhood r is 2w - 1. Time and memory grow with w * length, or with length * length
            if the call has an `attention_mask`, a `score_bias` or `return_attention_scores`.
            Defaults to None: attend to all positions.
        flash_attention: bool or None. Whether to use the backend's flash attention, which returns
            no scores and does not support dropout. False computes matrix products and a softmax.
            None chooses whichever is faster, unless you have called
            `keras.config.enable_flash_attention()` or `keras.config.disable_flash_attention()`. A
            sliding window is computed in blocks, without flash attention, unless the call has an
            `attention_mask` or a `score_bias`. Defaults to None.
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
        seed: int or None. Seed for dropout. Defaults to None.
        num_key_value_heads: int or None. Number of key-value heads, a divisor of `num_heads`: each
            key-value head is shared by `num_heads / num_key_value_heads` query heads (Ainslie et
            al. 2023, arXiv 2305.13245). Defaults to `num_heads`.
        query_key_norm: bool. Whether to apply RMS normalization, with learned scales, to the
            queries and keys of each head (Henry et al. 2020, arXiv 2010.04245). Defaults to False.
        relative_positions: str, `PositionScheme` or None. "rotary" rotates queries and keys
            (`RotaryPositions`; `key_dim` must be even), "alibi" subtracts a multiple of the
            distance from the scores (`AlibiPositions`), "t5" adds a learned bias that depends on
            the distance (`T5Positions`). Positions in target and source both start at 0. Defaults
            to None.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: (batch, target length, d_model), or (batch, ..., d_model) with more axes.
        value: (batch, source length, any width), with the same rank as the query.
        key: (batch, source length, any width). Defaults to `value`.
        query_mask: bool (batch, target length), True for tokens, False for padding. It does not
            change the output, which keeps the query's implicit Keras mask.
        value_mask: bool (batch, source length). Defaults to the implicit Keras mask of `value`.
        key_mask: bool (batch, source length). Defaults to the implicit Keras mask of `key`.
        attention_mask: bool, True = attend. The shape is (target length, source length), (batch,
            target length, source length) or (batch, num_heads, target length, source length); any
            of these sizes may be 1. For inputs of a higher rank, the shape is
            (batch, free axes ..., num_heads, target axes ..., source axes ...), and you may leave
            out num_heads and any number of axes directly before it.
        return_attention_scores: bool. Whether to also return the attention weights. Defaults to
            False.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether each position attends only to itself and to earlier
            positions. Defaults to False.
        score_bias: float. Added to the scores before the softmax. It accepts the same shapes as
            `attention_mask`. Defaults to None.

    Masks can also be NumPy arrays or lists, and can contain 0 and 1 instead of booleans.

    Returns:
        (batch, target length, d_model), or (batch, target length, *output_shape). With
        `return_attention_scores`, a tuple of this output and the attention weights (batch,
        num_heads, target length, source length). For inputs of a higher rank, the weights are
        (batch, free axes ..., num_heads, target axes ..., source axes ...).

    Raises:
        ConfigError: An argument is invalid, or an input has the wrong shape. A ConfigError is a
            ValueError.

    Example:
        >>> attention = MultiHeadAttention(num_heads=8, key_dim=64)
        >>> attention(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
        >>> rows = MultiHeadAttention(num_heads=2, key_dim=8, attention_axes=2, sliding_window=3)
        >>> image = keras.random.normal((2, 4, 6, 16))
        >>> rows(image, image).shape
        (2, 4, 6, 16)
    """

    other_names = {
        "dropout_rate": "dropout",
        "head_dim": "key_dim",
        "nhead": "num_heads",
        "num_query_heads": "num_heads",
        "rate": "dropout",
    }

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | tuple[int, ...] | None = None,
        attention_axes: int | tuple[int, ...] | None = None,
        sliding_window: int | None = None,
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
        num_key_value_heads: int | None = None,
        query_key_norm: bool = False,
        relative_positions: RelativePositions | PositionScheme | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int("num_heads", num_heads)
        self.key_dim = positive_int("key_dim", key_dim)
        self.value_dim = positive_int("value_dim", value_dim, optional=True)
        self.dropout = rate("dropout", dropout)
        self.use_bias = boolean("use_bias", use_bias)
        # In a Keras layer, `output_shape` is the shape of the outputs, and `activity_regularizer`
        # applies to the whole layer, so these two attributes have underscores.
        self._output_shape = _sizes("output_shape", output_shape)
        self.attention_axes = _axes("attention_axes", attention_axes)
        self.sliding_window = positive_int("sliding_window", sliding_window, optional=True)
        self.flash_attention = boolean("flash_attention", flash_attention, optional=True)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = boolean("use_gate", use_gate)
        self.seed = integer("seed", seed, optional=True)
        self.num_key_value_heads = positive_int(
            "num_key_value_heads", num_key_value_heads, optional=True
        )
        self.query_key_norm = boolean("query_key_norm", query_key_norm)
        self.relative_positions = check_relative_positions(relative_positions)

        require_divisor("num_key_value_heads", self.num_key_value_heads, num_heads=self.num_heads)
        if self.flash_attention and self.dropout > 0:
            raise ConfigError(
                "Dropout is not supported when flash attention is enabled: dropout must be 0 with "
                f"flash_attention=True; received dropout={self.dropout}"
            )
        if is_rotary(self.relative_positions):
            rule = "even with relative_positions='rotary'"
            require(self.key_dim % 2 == 0, "key_dim", rule, self.key_dim)
        self._value_width = self.value_dim or self.key_dim
        self._num_kv_heads = self.num_key_value_heads or self.num_heads
        self.supports_masking = True

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        key_shape = key_shape or value_shape
        _check_shapes(query_shape, value_shape, key_shape)
        # Keras checks the query of each call against `input_spec`.
        self.input_spec = keras.layers.InputSpec(ndim=len(query_shape), axes={-1: query_shape[-1]})
        self._axes = AttentionAxes.of(self.attention_axes, len(query_shape))
        heads_width = self.num_heads * self._value_width
        self._key_input_width, self._value_input_width = key_shape[-1], value_shape[-1]

        self.query_dense = self.make_projection("query", self.num_heads * self.key_dim)
        self.key_dense = self.make_projection("key", self._num_kv_heads * self.key_dim)
        self.value_dense = self.make_projection("value", self._num_kv_heads * self._value_width)
        self.output_dense = self.make_projection(
            "output", math.prod(self._output_sizes(query_shape))
        )
        self.attention_dropout = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], heads_width))
        if self.use_gate:
            self.gate_dense = self.make_projection("gate", heads_width)
            self.gate_dense.build(query_shape)
        if self.query_key_norm:
            self.query_norm = keras.layers.RMSNormalization(
                dtype=self.dtype_policy, name="query_norm"
            )
            self.key_norm = keras.layers.RMSNormalization(dtype=self.dtype_policy, name="key_norm")
            self.query_norm.build((None, self.num_heads, None, self.key_dim))
            self.key_norm.build((None, self._num_kv_heads, None, self.key_dim))
        self.position_scheme = make_position_scheme(self.relative_positions, self.dtype_policy)
        if not self.position_scheme.built:
            self.position_scheme.build((None, self.num_heads, None, None))

    def make_projection(self, name: str, units: int) -> keras.layers.Layer:
        """Creates the projection "query", "key", "value", "output" or "gate".

        Override it to use another layer. In `call` and in `step`, the layer is called with a matrix
        (batch * length, width) and returns (batch * length, units). With an `activity_regularizer`,
        it is called with (batch, length, width) instead, and returns (batch, length, units).
        """
        return keras.layers.Dense(
            units,
            activation="sigmoid" if name == "gate" else None,
            use_bias=self.use_bias,
            kernel_initializer=child_initializer(self.kernel_initializer, name),
            bias_initializer=child_initializer(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        score_bias: Tensor | None = None,
    ) -> Any:
        value_mask = as_mask("value_mask", value_mask)
        key_mask = as_mask("key_mask", key_mask)
        attention_mask = as_mask("attention_mask", attention_mask)
        self._check_call(query, value, key, query_mask, value_mask, key_mask)
        if return_attention_scores and self._flash_attention:
            raise ConfigError(
                "Returning attention scores is not supported when flash attention is enabled. "
                "Please disable flash attention to access attention scores. "
                "Received return_attention_scores=True with flash_attention=True"
            )

        # From here on, inputs are (batch, length, width), the source mask is (batch, source
        # length), and masks and biases of the scores broadcast to (batch, num_heads, target,
        # source).
        axes = self._axes
        targets = axes.fold(query)
        sources = targets if value is query else axes.fold(value)
        keys_input = sources if key is None else axes.fold(key)
        source_mask = axes.fold_padding(combine(value_mask, key_mask), value)
        if score_bias is not None:
            score_bias = as_numbers("score_bias", score_bias, "an array of floats")
            score_bias = ops.convert_to_tensor(score_bias)
        mask = axes.fold_scores("attention_mask", attention_mask, query, value, self.num_heads)
        bias = axes.fold_scores("score_bias", score_bias, query, value, self.num_heads)

        whole_scores = mask is not None or bias is not None or return_attention_scores
        if self.sliding_window is not None and not whole_scores:
            heads = self._attend_in_blocks(
                targets, sources, keys_input, source_mask, use_causal_mask, training
            )
            return axes.unfold(self._project_output(targets, heads), query)

        # If queries and keys share position ids, TensorFlow computes the rotary angles only once.
        shares_angles = value is query and isinstance(self.position_scheme, RotaryPositions)
        position_ids = ops.arange(ops.shape(targets)[1]) if shares_angles else None
        queries = self._project_query(targets, position_ids)
        keys, values = self.project_key_value(sources, keys_input, position_ids)
        bias = _add(self._position_bias(queries, keys, use_causal_mask), bias)
        # Do not index with None: LiteRT does not support it if batch and length are unknown.
        padding = None if source_mask is None else ops.expand_dims(source_mask, (1, 2))
        mask = combine(mask, padding)

        fused = not return_attention_scores and self._is_fused(queries, keys, values, training)
        # The fused operation creates a causal mask itself if there is no other restriction.
        unrestricted = mask is None and bias is None and self.sliding_window is None
        is_square = value is query or targets.shape[1] == sources.shape[1] is not None
        is_causal = fused and use_causal_mask and unrestricted and is_square
        if (use_causal_mask or self.sliding_window is not None) and not is_causal:
            positions = ops.arange(ops.shape(targets)[1])
            key_positions = positions
            if sources is not targets:
                key_positions = ops.arange(ops.shape(sources)[1])
            mask = combine(mask, self._position_mask(positions, key_positions, use_causal_mask))

        if fused:
            heads = fused_attention(
                queries, keys, values, mask, bias, is_causal, self._flash_attention
            )
            return axes.unfold(self._project_output(targets, heads), query)
        weights = attention_weights(queries, keys, mask, bias)
        dropped = self.attention_dropout(weights, training=training)
        heads = swap_heads(product_of_heads(dropped, values))
        outputs = axes.unfold(self._project_output(targets, heads), query)
        if return_attention_scores:
            return outputs, axes.unfold_scores(weights, query, value)
        return outputs

    def _check_call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None,
        query_mask: Tensor | None,
        value_mask: Tensor | None,
        key_mask: Tensor | None,
    ) -> None:
        refuse_ragged("query", query)
        refuse_ragged("value", value)
        if len(value.shape) != len(query.shape):
            raise ConfigError(
                f"value must have the same rank as query; received query of shape "
                f"{tuple(query.shape)} and value of shape {tuple(value.shape)}"
            )
        if key is not None:
            refuse_ragged("key", key)
            check_same_axes("key", key, "value", value)
        check_width("value", value, self._value_input_width)
        key_name, keys = ("value", value) if key is None else ("key", key)
        check_width(key_name, keys, self._key_input_width)
        check_mask("query_mask", as_mask("query_mask", query_mask), "query", query)
        check_mask("value_mask", value_mask, "value", value)
        if key is None:
            check_mask("key_mask", key_mask, "value", value)
        else:
            check_mask("key_mask", key_mask, "key", key)
        check_batch("value", value, "query", query)

    def _attend_in_blocks(
        self,
        targets: Tensor,  # (batch, target length, width)
        sources: Tensor,  # (batch, source length, width)
        keys_input: Tensor,  # (batch, source length, width)
        source_mask: Tensor | None,  # bool (batch, source length)
        use_causal_mask: bool,
        training: bool | None,
    ) -> Tensor:
        """Computes restricted attention in blocks, which are folded into the batch axis.

        Each block attends to itself and to the neighboring blocks.
        """
        batch, length, _ = ops.shape(targets)
        blocks = divide(
            self._project(targets, self.query_dense),
            self._project(keys_input, self.key_dense),
            self._project(sources, self.value_dense),
            source_mask,
            self.sliding_window,
            use_causal_mask,
            is_self_attention=sources is targets,
        )
        num_rows = batch * blocks.num_blocks
        queries = split_heads(blocks.queries, num_rows, blocks.block_length, self.num_heads)
        keys = split_heads(blocks.keys, num_rows, blocks.window_length, self._num_kv_heads)
        values = split_heads(blocks.values, num_rows, blocks.window_length, self._num_kv_heads)
        queries = self._place_queries(queries, blocks.positions)
        keys = self._place_keys(keys, blocks.key_positions)
        bias = self._position_bias(
            queries, keys, use_causal_mask, blocks.positions, blocks.key_positions
        )
        weights = attention_weights(queries, keys, per_head(blocks.mask), bias)
        weights = self.attention_dropout(weights, training=training)
        heads = swap_heads(product_of_heads(weights, values))
        heads_width = self.num_heads * self._value_width
        heads = ops.reshape(heads, (batch, blocks.num_blocks * blocks.block_length, heads_width))
        return heads[:, :length]

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache for `step`.

        Args:
            batch_size: int or int scalar.
            max_length: int, int scalar or None. Number of entries in a `FixedCache`. Defaults to
                None: returns a `GrowingCache`.

        Raises:
            ValueError: The layer is not built yet.
        """
        require_built(self)
        return empty_cache(
            batch_size,
            self._num_kv_heads,
            self.key_dim,
            self._value_width,
            max_length,
            self.compute_dtype,
        )

    def project_key_value(
        self, value: Tensor, key: Tensor | None = None, position_ids: Tensor | None = None
    ) -> KeyValues:
        """Projects a source to keys and values.

        Args:
            value: (batch, source length, any width), as in a call.
            key: (batch, source length, any width), as in a call. Defaults to `value`.
            position_ids: int, broadcasts to (batch, source length). Positions of the source, for
                rotary positions. Defaults to None: 0, 1, 2, ...
        """
        check_sequence("value", value)
        key = value if key is None else key
        check_sequence("key", key)
        keys = self._project_to_heads(key, self.key_dense, self._num_kv_heads)
        values = self._project_to_heads(value, self.value_dense, self._num_kv_heads)
        return KeyValues(self._place_keys(keys, position_ids), values)

    def attend(
        self,
        query: Tensor,
        key_values: KeyValues,
        mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        key_position_ids: Tensor | None = None,
    ) -> Tensor:
        """Attends to keys and values that are already projected.

        Args:
            query: (batch, target length, d_model), as in a call.
            key_values: from `project_key_value`, or a cache.
            mask: bool, broadcasts to (batch, target length, source length), True = attend. Defaults
                to None: attend to everything. `sliding_window` does not apply here.
            position_ids: int, broadcasts to (batch, target length). Positions of the query, for
                relative positions. Defaults to None: 0, 1, 2, ...
            key_position_ids: int, broadcasts to (batch, source length). Positions of the keys, for
                "alibi" and "t5"; "t5" uses its biases for causal attention. Defaults to None: 0, 1,
                2, ...

        Returns:
            (batch, target length, d_model).
        """
        check_sequence("query", query)
        check_batch("query", query, "the keys", key_values.keys)
        check_step_mask("mask", mask, (*query.shape[:2], key_values.keys.shape[2]))
        queries = self._project_query(query, position_ids)
        bias = self._position_bias(queries, key_values.keys, True, position_ids, key_position_ids)
        mask = None if mask is None else per_head(mask)
        weights = attention_weights(queries, key_values.keys, mask, bias)
        heads = swap_heads(product_of_heads(weights, key_values.values))
        return self._project_output(query, heads)

    def step(
        self,
        hidden: Tensor,
        cache: Cache,
        position: Dimension,
        mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        entry_position_ids: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Computes causal self-attention at new positions, which attend to a cache.

        See `DecoderLayer.step` for the arguments; `hidden` is (batch, n, d_model).
        """
        check_sequence("hidden", hidden)
        is_cache = isinstance(cache, KeyValues)
        require(is_cache, "cache", "from init_cache or the previous step", cache)
        check_batch("hidden", hidden, "the cache", cache.keys)
        first_entry = cache.next_entry(position)

        def new_entries() -> Tensor:  # int32 (n,), indices of the new entries
            count = ops.shape(hidden)[1]
            return ops.cast(first_entry, "int32") + ops.arange(count, dtype="int32")

        query_ids = position_ids
        if self.relative_positions is not None and query_ids is None:
            query_ids = ops.expand_dims(new_entries(), 0)
        cache = cache.write(self.project_key_value(hidden, position_ids=query_ids), position)

        # A single new position attends to all entries of a growing cache.
        sees_all = isinstance(cache, GrowingCache) and hidden.shape[1] == 1
        if mask is None and (self.sliding_window is not None or not sees_all):
            # Entries are consecutive positions, so the same mask applies as in a call.
            entries = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
            mask = self._position_mask(new_entries(), entries, use_causal_mask=True)
        elif self.sliding_window is not None and position_ids is not None:
            # The mask selects the entries of each hypothesis; the window restricts it further.
            if entry_position_ids is None:
                entry_position_ids = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
            window = sliding_window_mask(position_ids, entry_position_ids, self.sliding_window)
            mask = combine(mask, window)
        return self.attend(hidden, cache, mask, query_ids, entry_position_ids), cache

    @property
    def needs_position_ids(self) -> bool:
        """Whether the outputs of `step` depend on `position_ids` and `entry_position_ids`."""
        return self.sliding_window is not None or self.relative_positions is not None

    def _project(self, inputs: Tensor, projection: keras.layers.Layer) -> Tensor:
        """Applies a projection to (batch, length, width), as a single matrix product.

        For a product with more axes, TensorFlow adds a dozen small operations. With an activity
        regularizer, the axes are kept, because its loss depends on the batch size.
        """
        if self._activity_regularizer is not None:
            return projection(inputs)
        batch, length, width = ops.shape(inputs)
        outputs = projection(ops.reshape(inputs, (-1, width)))
        return reshape_inferring(outputs, (batch, length, outputs.shape[-1]))

    def _project_to_heads(
        self, inputs: Tensor, projection: keras.layers.Layer, num_heads: int
    ) -> Tensor:  # (batch, num_heads, length, width of a head)
        batch, length, _ = ops.shape(inputs)
        return split_heads(self._project(inputs, projection), batch, length, num_heads)

    def _project_query(self, query: Tensor, position_ids: Tensor | None = None) -> Tensor:
        queries = self._project_to_heads(query, self.query_dense, self.num_heads)
        return self._place_queries(queries, position_ids)

    def _place_queries(self, queries: Tensor, position_ids: Tensor | None) -> Tensor:
        """Normalizes and rotates queries (batch, num_heads, length, key_dim), if enabled."""
        if self.query_key_norm:
            queries = self.query_norm(queries)
        return self.position_scheme.rotate(queries, position_ids)

    def _place_keys(self, keys: Tensor, position_ids: Tensor | None) -> Tensor:
        """Normalizes and rotates keys, if enabled. A cache stores the result."""
        if self.query_key_norm:
            keys = self.key_norm(keys)
        return self.position_scheme.rotate(keys, position_ids)

    def _position_bias(
        self,
        queries: Tensor,
        keys: Tensor,
        causal: bool,
        position_ids: Tensor | None = None,
        key_position_ids: Tensor | None = None,
    ) -> Tensor | None:
        """Returns the bias of the position scheme; positions default to 0, 1, 2, ..."""
        if self.relative_positions is None or is_rotary(self.relative_positions):
            return None
        if position_ids is None:
            position_ids = ops.arange(ops.shape(queries)[2])
        if key_position_ids is None:
            key_position_ids = ops.arange(ops.shape(keys)[2])
        return self.position_scheme.score_bias(position_ids, key_position_ids, causal)

    def _position_mask(
        self, positions: Tensor, key_positions: Tensor, use_causal_mask: bool
    ) -> Tensor:  # bool (1, target length, source length)
        if self.sliding_window is None:
            return causal_mask(positions, key_positions)
        return sliding_window_mask(positions, key_positions, self.sliding_window, use_causal_mask)

    def _is_fused(
        self, queries: Tensor, keys: Tensor, values: Tensor, training: bool | None
    ) -> bool:
        """Returns whether to use the backend's fused operation.

        With `flash_attention=None`, it is used if it supports these tensors and is faster.
        """
        if self.dropout > 0 and training:
            return False
        if self._flash_attention is not None:
            return self._flash_attention
        if keras.backend.backend() == "jax":
            dtype = keras.backend.standardize_dtype(queries.dtype)
            lengths = (queries.shape[2], keys.shape[2])
            # With a mask, the gradient of cuDNN's operation supports only even lengths.
            even = all(length is not None and length % 2 == 0 for length in lengths)
            devices = keras.distribution.list_devices()
            on_gpu = any(device.startswith(("gpu", "cuda")) for device in devices)
            same_width = keys.shape[-1] == values.shape[-1]
            return dtype in ("float16", "bfloat16") and even and same_width and on_gpu
        if keras.backend.backend() == "torch":
            # For grouped queries, PyTorch copies the keys. On a CPU, this costs more than the fused
            # operation saves.
            on_cpu = ops.convert_to_tensor(queries).device.type == "cpu"
            return queries.shape[1] == keys.shape[1] or not on_cpu
        return False

    @property
    def _flash_attention(self) -> bool | None:
        if self.flash_attention is None:
            return keras.config.is_flash_attention_enabled()
        return self.flash_attention

    def _project_output(self, query: Tensor, heads: Tensor) -> Tensor:
        """Projects the heads' outputs, (batch, target length, num_heads, value_dim).

        The last two axes may also be merged.
        """
        batch, length = ops.shape(query)[:2]
        # A single matrix product, as in `_project`.
        leading = (-1,) if self._activity_regularizer is None else (batch, length)
        rows = ops.reshape(heads, (*leading, self.num_heads * self._value_width))
        if self.use_gate:
            gate = self.gate_dense(ops.reshape(query, (*leading, query.shape[-1])))
            rows = ops.multiply(rows, gate)
        outputs = self.output_dense(rows)
        return reshape_inferring(outputs, (batch, length, *self._output_sizes(query.shape)))

    def _output_sizes(self, query_shape: Shape) -> tuple[int, ...]:
        if self._output_shape is None:
            return (int(query_shape[-1] or 0),)
        if isinstance(self._output_shape, int):
            return (self._output_shape,)
        return self._output_shape

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> Shape:
        _check_shapes(query_shape, value_shape, key_shape or value_shape)
        return (*query_shape[:-1], *self._output_sizes(query_shape))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return output_spec_with_scores(self, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": saved_dtype(self),
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
            "num_key_value_heads": self.num_key_value_heads,
            "query_key_norm": self.query_key_norm,
            "relative_positions": serialize_relative_positions(self.relative_positions),
        }


def _add(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Adds two biases, either of which may be None."""
    if left is None or right is None:
        return right if left is None else left
    return ops.add(left, ops.cast(right, left.dtype))


def _sizes(name: str, sizes: Any) -> int | tuple[int, ...] | None:
    """Checks the argument `output_shape`."""
    sizes = tuple(sizes) if isinstance(sizes, list) else sizes
    listed = (sizes,) if isinstance(sizes, int) else sizes
    is_valid = sizes is None or (_are_ints(listed) and min(listed) > 0)
    require(is_valid, name, "a positive int, a tuple of them, or None", sizes)
    return sizes


def _axes(name: str, axes: Any) -> int | tuple[int, ...] | None:
    """Checks the argument `attention_axes`."""
    axes = tuple(axes) if isinstance(axes, list) else axes
    listed = (axes,) if isinstance(axes, int) else axes
    is_valid = axes is None or _are_ints(listed)
    require(is_valid, name, "an int, a tuple of ints, or None", axes)
    return axes


def _are_ints(values: Any) -> bool:
    return isinstance(values, tuple) and bool(values) and {type(value) for value in values} == {int}


def _check_shapes(query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
    if len(query_shape) < 3 or query_shape[-1] is None:
        rule = "(batch, length, d_model), or have more axes between batch and d_model"
        raise ConfigError(f"query must be {rule}; received query of shape {tuple(query_shape)}")
    # Shapes may be tuples, lists or shape objects of the backend.
    if not hasattr(key_shape, "__len__") or [*value_shape[:-1]] != [*key_shape[:-1]]:
        raise ConfigError(
            "value and key must be equal in all dimensions but the last; "
            f"received value of shape {value_shape} and key of shape {key_shape}"
        )
    if len(value_shape) != len(query_shape):
        raise ConfigError(
            "query and value must have the same rank; received query of shape "
            f"{tuple(query_shape)} and value of shape {tuple(value_shape)}"
        )
