"""Multi-head attention (section 3.2 of the paper), for whole sequences or step by step."""

from typing import Annotated, Any

import keras
from keras import ops

from ..config.rules import OddSize, Rate, Size, check_attributes
from ..masks import causal_mask, combine, neighborhood_mask
from ..shapes import reshape_inferring
from ..tensors import Dimension, Shape, Tensor
from .dot_product_attention import attention_weights
from .dropout import Dropout
from .key_value_cache import Cache, KeyValues, empty_cache
from .neighborhood import block_sizes, blocks_with_neighbors


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (sections 3.2.1 and 3.2.2).

    Computes `softmax(Q Kᵀ / sqrt(key_dim)) V` in each head, concatenates the heads' outputs and projects them to
    the width of the query. Softmax runs in float32 under every dtype policy. A position that may attend to nothing
    gets zeros before the output projection, so that masked content never matters.

    For decoding step by step there are `init_cache`, `project_key_value` and `attend`:

        cache = attention.init_cache(batch_size)
        cache = cache.write(attention.project_key_value(new_positions), position)
        outputs = attention.attend(new_positions, cache, mask)

    Args:
        num_heads: int. h, the number of heads.
        key_dim: int. d_k, the width of each head's queries and keys.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate at which attention weights are dropped; the paper has none. Defaults to 0.
        use_bias: bool. Whether the four projections add a bias; those of the paper do not. Defaults to False.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        neighborhood: int or None. r of restricted self-attention (section 4): a position attends to the r positions
            centred on itself (r is odd), in time and memory proportional to r * length. Defaults to None:
            attend to all positions.

    Call arguments:
        query: (batch, target length, d_model).
        value: (batch, source length, any width).
        key: (batch, source length, any width). Defaults to `value`.
        query_mask: bool (batch, target length), True = a real token. It does not change the output; an implicit
            Keras mask of the query is passed on with it.
        value_mask: bool (batch, source length). Defaults to the implicit Keras mask of `value`.
        key_mask: bool (batch, source length). Defaults to the implicit Keras mask of `key`.
        attention_mask: bool, True = attend, of shape (target length, source length), (batch, target length, source
            length) or (batch, num_heads, target length, source length); any of these sizes may be 1.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults to False.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to False.
        training: bool. Whether to apply dropout.

    With a neighborhood, query and value must have the same length, and neither `attention_mask` nor
    `return_attention_scores`, both of length * length elements, may be given.

    Returns:
        (batch, target length, d_model), and, if asked for, the weights (batch, num_heads, target length, source
        length).

    Raises:
        ValueError: An argument breaks its rule, or an input does not fit.

    Example:
        >>> attention = MultiHeadAttention(num_heads=8, key_dim=64)
        >>> attention(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        num_heads: Size,
        key_dim: Size,
        value_dim: Size | None = None,
        dropout: Rate = 0.0,
        use_bias: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        neighborhood: OddSize | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.neighborhood: Any = neighborhood
        check_attributes(self, MultiHeadAttention)
        self.supports_masking = True

    @property
    def _value_dim(self) -> int:
        return self.value_dim or self.key_dim

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        d_model = query_shape[-1]
        if len(query_shape) != 3 or d_model is None:
            raise ValueError(f"query must be (batch, length, d_model); received query of shape {query_shape}")
        self.query_dense = self._make_projection(self.num_heads * self.key_dim, "query")
        self.key_dense = self._make_projection(self.num_heads * self.key_dim, "key")
        self.value_dense = self._make_projection(self.num_heads * self._value_dim, "value")
        self.output_dense = self._make_projection(d_model, "output")
        self.attention_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape or value_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], self.num_heads * self._value_dim))

    def _make_projection(self, units: int, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            # An instance draws the same numbers each time: every projection needs its own.
            kernel_initializer=self.kernel_initializer.clone()
            if hasattr(self.kernel_initializer, "clone")
            else self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
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
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if self.neighborhood is not None:
            self._check_restricted(query, value, attention_mask, return_attention_scores)
            return self._attend_to_neighborhood(
                query, value, key, combine(value_mask, key_mask), use_causal_mask, training
            )
        queries, keys, values = self._project_all(query, value, key)
        mask = combine(
            None if attention_mask is None else _per_head(attention_mask),
            None if value_mask is None else value_mask[:, None, None, :],
            None if key_mask is None else key_mask[:, None, None, :],
            _causal_mask(query, value) if use_causal_mask else None,
        )
        weights = self._weights(queries, keys, mask)
        outputs = self._outputs(weights, values, training)
        return (outputs, weights) if return_attention_scores else outputs

    def project_key_value(
        self,
        value: Annotated[Tensor, "(batch, source length, any width)"],
        key: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
    ) -> KeyValues:
        """Projects what is attended to.

        Args:
            value: as in a call.
            key: as in a call. Defaults to `value`.
        """
        if key is None:
            return KeyValues(*self._project(value, self.key_dense, self.value_dense))
        return KeyValues(*self._project(key, self.key_dense), *self._project(value, self.value_dense))

    def attend(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        key_values: KeyValues | Cache,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, target length, source length)"] | None = None,
    ) -> Annotated[Tensor, "(batch, target length, d_model)"]:
        """Attends to keys and values that were projected before.

        Args:
            query: as in a call.
            key_values: from `project_key_value`, or a cache.
            mask: True = attend. Defaults to None: attend to everything. `neighborhood` does not restrict this call,
                since the layer cannot know the position of a cache's entry.
        """
        (queries,) = self._project(query, self.query_dense)
        weights = self._weights(queries, key_values.keys, None if mask is None else _per_head(mask))
        return self._outputs(weights, key_values.values)

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache: a `FixedCache` of `max_length` entries, or a `GrowingCache` if that is None.

        Raises:
            ValueError: The layer is not built yet.
        """
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        return empty_cache(batch_size, self.num_heads, self.key_dim, self._value_dim, max_length, self.compute_dtype)

    def _project_all(self, query: Tensor, value: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if key is None and value is query:
            queries, keys, values = self._project(query, self.query_dense, self.key_dense, self.value_dense)
            return queries, keys, values
        (queries,) = self._project(query, self.query_dense)
        return queries, *self.project_key_value(value, key)

    def _project(self, inputs: Tensor, *projections: keras.layers.Dense) -> list[Tensor]:
        """Applies each of several projections to the same inputs: (batch, num_heads, length, width) of each."""
        batch, length, width = ops.shape(inputs)
        # In two dimensions: TensorFlow adds a dozen small operations to a product of more.
        rows = ops.reshape(inputs, (-1, width))
        widths = {projection.units for projection in projections}
        if len(widths) > 1 or any(projection.quantization_mode for projection in projections):
            return [self._split_heads(projection(rows), batch, length)[0] for projection in projections]
        # One product for all of them. Keras casts for a layer's call only, and a decoding step is none.
        kernels = ops.concatenate([dense.kernel for dense in projections], axis=-1)
        projected = ops.matmul(rows, ops.cast(kernels, rows.dtype))
        if self.use_bias:
            biases = ops.concatenate([dense.bias for dense in projections])
            projected = ops.add(projected, ops.cast(biases, rows.dtype))
        return self._split_heads(projected, batch, length, len(projections))

    def _split_heads(self, projected: Tensor, batch: Dimension, length: Dimension, count: int = 1) -> list[Tensor]:
        # (batch * length, count * num_heads * width) -> count times (batch, num_heads, length, width)
        width = projected.shape[-1] // (count * self.num_heads)
        if count == 1:
            heads = reshape_inferring(projected, (batch, length, self.num_heads, width))
            return [_swap_heads(heads)]
        heads = reshape_inferring(projected, (batch, length, count, self.num_heads, width))
        return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)))

    def _weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        return ops.cast(attention_weights(queries, keys, mask), self.compute_dtype)

    def _outputs(self, weights: Tensor, values: Tensor, training: bool | None = None) -> Tensor:
        # weights: (batch, num_heads, target length, source length)
        weights = self.attention_dropout(weights, training=training)
        heads = _swap_heads(ops.matmul(weights, values))  # (batch, target length, num_heads, value_dim)
        batch, length, _, _ = ops.shape(heads)
        rows = ops.reshape(heads, (-1, self.num_heads * self._value_dim))
        return reshape_inferring(self.output_dense(rows), (batch, length, self.output_dense.units))

    def _attend_to_neighborhood(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None,
        mask: Tensor | None,
        use_causal_mask: bool,
        training: bool | None,
    ) -> Tensor:
        # Blocks take the place of the batch: each attends to itself and to the blocks beside it.
        batch, length, d_model = ops.shape(query)
        num_blocks, block_length = block_sizes(length, self.neighborhood)

        def windows(sequence: Tensor) -> Tensor:  # (batch, length, width) -> (batch * blocks, window length, width)
            after = 0 if use_causal_mask else 1
            return blocks_with_neighbors(sequence, num_blocks, block_length, before=1, after=after)

        (queries,) = self._project(blocks_with_neighbors(query, num_blocks, block_length), self.query_dense)
        key_windows = windows(self.key_dense(value if key is None else key))
        value_windows = windows(self.value_dense(value))
        sizes = ops.shape(key_windows)[:2]
        (keys,), (values,) = self._split_heads(key_windows, *sizes), self._split_heads(value_windows, *sizes)
        # What lies beyond the ends is masked.
        mask = combine(ops.ones((batch, length), dtype="bool"), mask)
        mask = ops.swapaxes(windows(ops.expand_dims(mask, -1)), 1, 2)  # (batch * blocks, 1, window length)
        key_positions = ops.arange(ops.shape(mask)[2]) - block_length
        near = neighborhood_mask(ops.arange(block_length), key_positions, self.neighborhood, use_causal_mask)
        weights = self._weights(queries, keys, _per_head(ops.logical_and(mask, near)))
        outputs = self._outputs(weights, values, training)  # (batch * blocks, block length, d_model)
        return ops.reshape(outputs, (batch, num_blocks * block_length, d_model))[:, :length]

    def _check_restricted(
        self, query: Tensor, value: Tensor, attention_mask: Tensor | None, return_attention_scores: bool
    ) -> None:
        for name, given in (
            ("attention_mask", attention_mask is not None),
            ("return_attention_scores", return_attention_scores),
        ):
            if given:
                raise ValueError(f"{name} must not be given to attention with neighborhood={self.neighborhood}")
        lengths = query.shape[1], value.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"query and value must have the same length if neighborhood={self.neighborhood}; "
                f"received lengths {lengths[0]} and {lengths[1]}"
            )

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> Shape:
        return query_shape

    def compute_output_spec(
        self,
        query: Annotated[Tensor, "(batch, target length, d_model)"],
        value: Annotated[Tensor, "(batch, source length, any width)"],
        key: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        query_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        value_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        key_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., target length, source length)"] | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        if self.neighborhood is not None:
            self._check_restricted(query, value, attention_mask, return_attention_scores)
        outputs = keras.KerasTensor(query.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        weights_shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return outputs, keras.KerasTensor(weights_shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "neighborhood": self.neighborhood,
        }


def _swap_heads(heads: Tensor) -> Tensor:
    """Swaps the axes of heads and positions, the second and the third."""
    batch, second, third, width = ops.shape(heads)
    if isinstance(second, int) and isinstance(third, int) and 1 in (second, third):
        # The same data, as in a step of greedy search: nothing is copied.
        return reshape_inferring(heads, (batch, third, second, width))
    return ops.transpose(heads, (0, 2, 1, 3))


def _causal_mask(query: Tensor, value: Tensor) -> Tensor:
    return causal_mask(ops.shape(query)[1], None if value is query else ops.shape(value)[1])


def _per_head(mask: Tensor) -> Tensor:
    """A mask with an axis for the heads, unless it has one: (..., target length, source length) of rank 3 or 4."""
    return mask if len(mask.shape) == 4 else ops.expand_dims(mask, -3)
