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
from ..masks import as_mask, as_numbers, causal_mask, combine, sliding_window_mask
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .argument_hints import ArgumentHints
from .attention_axes import (
    AttentionAxes,
    AttentionInputs,
    check_attention_axes,
    check_output_shape,
)
from .cache import Cache, GrowingCache, KeyValues, empty_cache
from .children import child_initializer, require_built, saved_dtype
from .dropout import Dropout
from .input_checks import (
    check_attention_inputs,
    check_attention_shapes,
    check_batch,
    check_sequence,
    check_step_mask,
    output_spec_with_scores,
)
from .local_attention import divide
from .new_positions import NewPositions
from .position_scheme import PositionScheme
from .relative_positions import (
    check_relative_positions,
    is_rotary,
    make_position_scheme,
    serialize_relative_positions,
)
from .scaled_dot_product_attention import (
    attention_weights,
    fused_attention,
    is_fused_faster,
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
        outputs, cache = attention.step(inputs[:, i : i + 1], cache, NewPositions(i))

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
        self._output_shape = check_output_shape(output_shape)
        self.attention_axes = check_attention_axes(attention_axes)
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
        check_attention_shapes(query_shape, value_shape, key_shape)
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
        scheme_class = type(self.position_scheme)
        self._has_position_bias = scheme_class.score_bias is not PositionScheme.score_bias

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
        check_attention_inputs(
            query,
            value,
            key,
            query_mask,
            value_mask,
            key_mask,
            self._value_input_width,
            self._key_input_width,
        )
        if score_bias is not None:
            score_bias = as_numbers("score_bias", score_bias, "an array of floats")
            score_bias = ops.convert_to_tensor(score_bias)
        if return_attention_scores and self._flash_attention:
            raise ConfigError(
                "Returning attention scores is not supported when flash attention is enabled. "
                "Please disable flash attention to access attention scores. "
                "Received return_attention_scores=True with flash_attention=True"
            )
        inputs = AttentionInputs(
            query,
            value,
            value if key is None else key,
            combine(value_mask, key_mask),
            attention_mask,
            score_bias,
        )
        if self._axes is None:
            inputs = inputs.with_all_score_axes(self.num_heads)
        else:
            inputs = self._axes.fold(inputs, self.num_heads)
        outputs, weights = self._attend(inputs, use_causal_mask, return_attention_scores, training)
        if self._axes is not None:
            outputs, weights = self._axes.unfold(outputs, weights, query, value)
        return (outputs, weights) if return_attention_scores else outputs

    def _attend(
        self,
        inputs: AttentionInputs,
        use_causal_mask: bool,
        return_weights: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes the outputs of a call for inputs (batch, length, width).

        There are three ways: in blocks if only padding and a sliding window restrict attention,
        with the backend's fused operation, or with matrix products and a softmax.

        Returns:
            The outputs (batch, target length, *output_shape), and the weights (batch, num_heads,
            target length, source length), or None if they are not returned.
        """
        query, value, key, source_mask, mask, bias = inputs
        needs_all_scores = mask is not None or bias is not None or return_weights
        if self.sliding_window is not None and not needs_all_scores:
            heads = self._attend_in_blocks(
                query, value, key, source_mask, use_causal_mask, training
            )
            return self._project_output(query, heads), None

        # In self-attention, queries and keys share the tensor of positions, so that TensorFlow
        # computes the angles of rotary positions only once.
        positions = key_positions = None
        if self.relative_positions is not None:
            positions, key_positions = _positions(query, value)
        queries = self._project_query(query, positions)
        keys, values = self.project_key_value(value, key, key_positions)
        position_bias = self._position_bias(
            queries, keys, use_causal_mask, positions, key_positions
        )
        bias = _add(position_bias, bias)
        # Do not index with None: LiteRT does not support it if batch and length are unknown.
        padding = None if source_mask is None else ops.expand_dims(source_mask, (1, 2))
        mask = combine(mask, padding)

        fused = not return_weights and self._is_fused(queries, keys, values, training)
        # The fused operation creates a causal mask itself if there is no other restriction.
        is_unrestricted = mask is None and bias is None and self.sliding_window is None
        is_square = value is query or query.shape[1] == value.shape[1] is not None
        is_causal = fused and use_causal_mask and is_unrestricted and is_square
        if (use_causal_mask or self.sliding_window is not None) and not is_causal:
            mask = combine(mask, self._position_mask(*_positions(query, value), use_causal_mask))

        weights = None
        if fused:
            heads = fused_attention(
                queries, keys, values, mask, bias, is_causal, self._flash_attention
            )
        else:
            heads, weights = self._attend_with_softmax(queries, keys, values, mask, bias, training)
        return self._project_output(query, heads), weights

    def _attend_in_blocks(
        self,
        query: Tensor,  # (batch, target length, width)
        value: Tensor,  # (batch, source length, width)
        key: Tensor,  # (batch, source length, width)
        source_mask: Tensor | None,  # bool (batch, source length)
        use_causal_mask: bool,
        training: bool | None,
    ) -> Tensor:  # (batch, target length, num_heads * value_dim)
        """Computes restricted attention in blocks, which are folded into the batch axis.

        Each block attends to itself and to the neighboring blocks.
        """
        batch, length, _ = ops.shape(query)
        blocks = divide(
            self._project(query, self.query_dense),
            self._project(key, self.key_dense),
            self._project(value, self.value_dense),
            source_mask,
            self.sliding_window,
            use_causal_mask,
            is_self_attention=value is query,
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
        mask = per_head(blocks.mask)
        heads, _ = self._attend_with_softmax(queries, keys, values, mask, bias, training)
        heads_width = self.num_heads * self._value_width
        heads = ops.reshape(heads, (batch, blocks.num_blocks * blocks.block_length, heads_width))
        return heads[:, :length]

    def _attend_with_softmax(
        self,
        queries: Tensor,  # (batch, num_heads, target length, key_dim)
        keys: Tensor,  # (batch, num_key_value_heads, source length, key_dim)
        values: Tensor,  # (batch, num_key_value_heads, source length, value_dim)
        mask: Tensor | None,
        bias: Tensor | None,
        training: bool | None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the heads (batch, target length, num_heads, value_dim), and the weights."""
        weights = attention_weights(queries, keys, mask, bias)
        dropped = self.attention_dropout(weights, training=training)
        return swap_heads(product_of_heads(dropped, values)), weights

    def _is_fused(
        self, queries: Tensor, keys: Tensor, values: Tensor, training: bool | None
    ) -> bool:
        """Returns whether to use the backend's fused operation, which does not support dropout."""
        if self.dropout > 0 and training:
            return False
        if self._flash_attention is None:
            return is_fused_faster(queries, keys, values)
        return self._flash_attention

    @property
    def _flash_attention(self) -> bool | None:
        if self.flash_attention is None:
            return keras.config.is_flash_attention_enabled()
        return self.flash_attention

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
        heads, _ = self._attend_with_softmax(queries, *key_values, mask, bias, training=False)
        return self._project_output(query, heads)

    def step(self, hidden: Tensor, cache: Cache, positions: NewPositions) -> tuple[Tensor, Cache]:
        """Computes causal self-attention at new positions, which attend to a cache.

        See `DecoderLayer.step` for the arguments; `hidden` is (batch, n, d_model).
        """
        check_sequence("hidden", hidden)
        is_cache = isinstance(cache, KeyValues)
        require(is_cache, "cache", "from init_cache or the previous step", cache)
        rule = "a NewPositions, as in step(x, cache, NewPositions(first_entry))"
        require(isinstance(positions, NewPositions), "positions", rule, positions)
        check_batch("hidden", hidden, "the cache", cache.keys)
        first_entry = cache.next_entry(positions.first_entry)

        def new_entries() -> Tensor:  # int32 (n,), indices of the new entries
            count = ops.shape(hidden)[1]
            return ops.cast(first_entry, "int32") + ops.arange(count, dtype="int32")

        position_ids = positions.position_ids
        if self.relative_positions is not None and position_ids is None:
            position_ids = ops.expand_dims(new_entries(), 0)
        new = self.project_key_value(hidden, position_ids=position_ids)
        cache = cache.write(new, first_entry)

        entry_position_ids = None
        if self.sliding_window is not None or self._has_position_bias:
            entry_position_ids = positions.entry_position_ids
        mask = positions.mask

        # A single new position attends to all entries of a growing cache.
        sees_all = isinstance(cache, GrowingCache) and hidden.shape[1] == 1
        if mask is None and (self.sliding_window is not None or not sees_all):
            # Entries are consecutive positions, so the same mask applies as in a call.
            entries = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
            mask = self._position_mask(new_entries(), entries, use_causal_mask=True)
        elif self.sliding_window is not None and positions.position_ids is not None:
            # The mask selects the entries of each hypothesis; the window restricts it further.
            if entry_position_ids is None:
                entry_position_ids = ops.arange(ops.shape(cache.keys)[2], dtype="int32")
            window = sliding_window_mask(
                positions.position_ids, entry_position_ids, self.sliding_window
            )
            mask = combine(mask, window)
        return self.attend(hidden, cache, mask, position_ids, entry_position_ids), cache

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
        if not self._has_position_bias:
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
        check_attention_shapes(query_shape, value_shape, key_shape or value_shape)
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


def _positions(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the positions 0, 1, 2, ... of the query and of the value, the same in self-attention.

    Both are int32 (length,).
    """
    positions = ops.arange(ops.shape(query)[1])
    return positions, positions if value is query else ops.arange(ops.shape(value)[1])
