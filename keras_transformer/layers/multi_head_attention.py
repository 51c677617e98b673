"""Multi-head attention (section 3.2 of the paper), whole sequences at once or step by step."""

import keras
from keras import ops

from ..masks import causal_mask, combine, neighborhood_mask
from ..shapes import reshape
from .blocks import block_sizes, cut
from .dropout import Dropout

# Added to masked scores in float32, where its exponential is exactly 0.
_MASKED = -1e9


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Scaled dot-product attention in several heads (sections 3.2.1 and 3.2.2).

    `softmax(Q Kᵀ / sqrt(key_dim)) V` for each head; the heads' outputs are concatenated and projected to the
    width of the query. Softmax runs in float32 whatever the policy. A position that may attend to nothing
    receives zeros before the output projection, so what is masked never matters.

    Args:
        num_heads: h, number of heads.
        key_dim: d_k, width of each head's queries and keys.
        value_dim: d_v, width of each head's values; `key_dim` if None.
        dropout: rate at which attention weights are dropped; the paper has none here.
        use_bias: whether the four projections add a bias; the paper's do not.
        kernel_initializer: initializer of the projections' kernels.
        neighborhood: r of restricted self-attention (section 4): a position attends to the r positions centred on
            itself, so r is odd, in time and memory that grow with r * length; None attends to all.

    Call arguments:
        query: (batch, target length, d_model).
        value: (batch, source length, any width).
        key: as `value`, which stands in for it if None.
        query_mask, value_mask, key_mask: bool (batch, length), True = a real token; Keras' implicit masks are
            taken where they are not given. The query's implicit mask is passed on with the output.
        attention_mask: bool, broadcast to (batch, target length, source length), True = attend.
        use_causal_mask: whether a position sees only itself and what is before it.
        return_attention_scores: whether to return the attention weights too, as Keras does.

    With a neighborhood, query and value are of one length, and neither `attention_mask` nor
    `return_attention_scores`, of length * length elements both, is taken.

    Returns:
        (batch, target length, d_model), and the weights (batch, num_heads, target length, source length) if
        asked for.

    Step by step, `call` is taken apart: `init_cache` makes an empty cache of keys and values, `write_cache` puts
    new positions into it, `attend` attends to it. `project_key_value` alone makes the keys and values that
    cross-attention needs once for a source.

    Raises:
        ValueError: a number of heads or a width is not positive, a neighborhood not odd, or an input does not fit.

    Example:
        >>> attention = MultiHeadAttention(num_heads=8, key_dim=64)
        >>> attention(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=False,
        kernel_initializer="glorot_uniform",
        neighborhood=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (("num_heads", num_heads), ("key_dim", key_dim), ("value_dim", value_dim)):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be positive; received {name}={size}")
        if neighborhood is not None and (neighborhood < 1 or neighborhood % 2 == 0):
            raise ValueError(f"neighborhood must be positive and odd; received neighborhood={neighborhood}")
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.neighborhood = neighborhood
        self.supports_masking = True

    @property
    def _value_dim(self):
        return self.value_dim or self.key_dim

    def build(self, query_shape, value_shape, key_shape=None):
        d_model = query_shape[-1]
        if len(query_shape) != 3 or d_model is None:
            raise ValueError(f"query must be (batch, length, d_model); received shape {query_shape}")
        self.query_dense = self._projection(self.num_heads * self.key_dim, "query")
        self.key_dense = self._projection(self.num_heads * self.key_dim, "key")
        self.value_dense = self._projection(self.num_heads * self._value_dim, "value")
        self.output_dense = self._projection(d_model, "output")
        self.attention_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape or value_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], self.num_heads * self._value_dim))

    def _projection(self, units, name):
        return keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            # A layer keeps to its own instance: two projections must not draw the same numbers.
            kernel_initializer=self.kernel_initializer.clone()
            if hasattr(self.kernel_initializer, "clone")
            else self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        self._check_neighborhood(query, value, attention_mask, return_attention_scores)
        if self.neighborhood is not None:
            mask = combine(value_mask, key_mask)
            return self._attend_to_neighborhoods(query, value, key, mask, use_causal_mask, training)
        mask = combine(
            attention_mask,
            None if value_mask is None else ops.expand_dims(value_mask, 1),
            None if key_mask is None else ops.expand_dims(key_mask, 1),
            causal_mask(ops.shape(query)[1]) if use_causal_mask else None,
        )
        if key is None and value is query:
            queries, keys, values = self._project(
                query, self.query_dense, self.key_dense, self.value_dense
            )
        else:
            (queries,) = self._project(query, self.query_dense)
            keys, values = self.project_key_value(value, key)
        weights = self._weights(queries, keys, mask)
        output = self._weighted_values(weights, values, training)
        return (output, weights) if return_attention_scores else output

    def _check_neighborhood(self, query, value, attention_mask, return_attention_scores):
        if self.neighborhood is None:
            return
        for name, given in (
            ("attention_mask", attention_mask is not None),
            ("return_attention_scores", return_attention_scores),
        ):
            if given:
                raise ValueError(
                    f"{name} must not be given to restricted self-attention; "
                    f"received it with neighborhood={self.neighborhood}"
                )
        lengths = query.shape[1], value.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                "query and value must be of one length in restricted self-attention; "
                f"received lengths {lengths[0]} and {lengths[1]}"
            )

    def _attend_to_neighborhoods(self, query, value, key, mask, use_causal_mask, training):
        # Blocks take the place of the batch: each attends to itself and the blocks beside it.
        batch, length, d_model = ops.shape(query)
        num_blocks, block_length = block_sizes(length, self.neighborhood)

        def windows(sequence):
            after = 0 if use_causal_mask else 1
            return cut(sequence, num_blocks, block_length, before=1, after=after)

        (queries,) = self._project(cut(query, num_blocks, block_length), self.query_dense)
        keys = windows(self.key_dense(value if key is None else key))
        values = windows(self.value_dense(value))
        lengths = ops.shape(keys)[:2]
        (keys,), (values,) = self._split_heads(keys, *lengths), self._split_heads(values, *lengths)
        # What is beyond the ends is masked.
        mask = combine(ops.ones((batch, length), dtype="bool"), mask)
        mask = ops.swapaxes(windows(ops.expand_dims(mask, -1)), 1, 2)
        positions = ops.arange(ops.shape(mask)[2]) - block_length
        own_positions = ops.arange(block_length)
        near = neighborhood_mask(own_positions, positions, self.neighborhood, use_causal_mask)
        weights = self._weights(queries, keys, combine(mask, near))
        output = self._weighted_values(weights, values, training)
        return ops.reshape(output, (batch, num_blocks * block_length, d_model))[:, :length]

    def project_key_value(self, value, key=None):
        """Keys (batch, num_heads, length, key_dim) and values (…, value_dim) of what is attended to."""
        if key is None:
            return self._project(value, self.key_dense, self.value_dense)
        return *self._project(key, self.key_dense), *self._project(value, self.value_dense)

    def attend(self, query, cache, mask=None):
        """Attends to keys and values that were projected before.

        Args:
            query: (batch, target length, d_model).
            cache: keys and values, as `project_key_value` or `write_cache` returned them.
            mask: bool, broadcast to (batch, target length, source length), True = attend. It alone restricts,
                `neighborhood` does not: the layer cannot know which position an entry of a cache has.

        Returns:
            (batch, target length, d_model).
        """
        (queries,) = self._project(query, self.query_dense)
        keys, values = cache
        return self._weighted_values(self._weights(queries, keys, mask), values)

    def init_cache(self, batch_size, max_length):
        """Empty keys and values for `max_length` positions; the layer must be built."""
        shape = (batch_size, self.num_heads, max_length)
        keys = ops.zeros((*shape, self.key_dim), dtype=self.compute_dtype)
        values = ops.zeros((*shape, self._value_dim), dtype=self.compute_dtype)
        return keys, values

    def write_cache(self, cache, value, position=None):
        """The cache with the keys and values of `value` (batch, n, width) at `position` and after it.

        Without a position they come after its end, and the cache gets longer.
        """
        # For few positions one product is no faster than two: it would copy both kernels into one.
        new = *self._project(value, self.key_dense), *self._project(value, self.value_dense)
        if position is None:
            return tuple(ops.concatenate(entries, axis=2) for entries in zip(cache, new))
        return tuple(_write(*entries, position) for entries in zip(cache, new))

    def _project(self, inputs, *projections):
        """What each of several projections makes of the same inputs: (batch, num_heads, length, width) of each."""
        batch, length, width = ops.shape(inputs)
        # Rows of a matrix: a product of more dimensions costs TensorFlow a dozen small operations more.
        rows = ops.reshape(inputs, (-1, width))
        widths = {projection.units for projection in projections}
        if len(widths) > 1 or any(projection.quantization_mode for projection in projections):
            return [self._split_heads(projection(rows), batch, length)[0] for projection in projections]
        # One product for all of them. A step is no call of this layer, so Keras does not cast for it.
        kernels = ops.concatenate([dense.kernel for dense in projections], axis=-1)
        projected = ops.matmul(rows, ops.cast(kernels, rows.dtype))
        if self.use_bias:
            biases = ops.concatenate([dense.bias for dense in projections])
            projected = ops.add(projected, ops.cast(biases, rows.dtype))
        return self._split_heads(projected, batch, length, len(projections))

    def _split_heads(self, projected, batch, length, count=1):
        width = projected.shape[-1] // (count * self.num_heads)
        heads = reshape(projected, (batch, length, count, self.num_heads, width))
        return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)))

    def _weights(self, queries, keys, mask):
        queries = ops.multiply(queries, self.key_dim**-0.5)
        scores = ops.cast(ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2))), "float32")
        if mask is None:
            weights = ops.softmax(scores)
        else:
            # For all heads alike, with or without a batch dimension.
            mask = ops.expand_dims(mask, -3)
            weights = ops.softmax(scores + ops.where(mask, 0.0, _MASKED))
            # Where all is masked softmax is uniform; zeros instead.
            weights = weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")
        return ops.cast(weights, self.compute_dtype)

    def _weighted_values(self, weights, values, training=None):
        weights = self.attention_dropout(weights, training=training)
        heads = ops.transpose(ops.matmul(weights, values), (0, 2, 1, 3))
        batch, length, _, _ = ops.shape(heads)
        output = self.output_dense(ops.reshape(heads, (-1, self.num_heads * self._value_dim)))
        return reshape(output, (batch, length, self.output_dense.units))

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        return query_shape

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        self._check_neighborhood(query, value, attention_mask, return_attention_scores)
        output = keras.KerasTensor(query.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        weights_shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(weights_shape, dtype=self.compute_dtype)

    def get_config(self):
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


def _write(cache, new, position):
    # One scatter into the cache seen as rows; nothing else of it is touched or copied.
    batch, heads, length, width = ops.shape(cache)
    count = ops.shape(new)[2]
    first_rows = ops.arange(batch * heads, dtype="int32") * length + ops.cast(position, "int32")
    rows = first_rows[:, None] + ops.arange(count, dtype="int32")[None, :]
    written = ops.scatter_update(
        ops.reshape(cache, (batch * heads * length, width)),
        ops.reshape(rows, (batch * heads * count, 1)),
        ops.reshape(new, (batch * heads * count, width)),
    )
    return ops.reshape(written, (batch, heads, length, width))
