"""The weights of attention: projections to the heads and back, and what makes heads know their positions."""

import math
from typing import Annotated

import keras
from keras import ops

from ...errors import ConfigError
from ...shapes import reshape_inferring
from ...tensors import Dimension, Shape, Tensor
from ..children import child_initializer
from ..dropout import Dropout
from ..rematerialization import Layer
from ..rotary import rotate
from .attention_axes import AttentionAxes
from .heads import project_to_heads
from .key_value_cache import Cache, KeyValues, empty_cache
from .relative_bias import T5RelativeBias, alibi_bias


class AttentionProjections(Layer):
    """Base class of `MultiHeadAttention`: builds its sublayers and applies them.

    The attributes are the arguments of its constructor.
    """

    num_heads: int
    key_dim: int
    value_dim: int | None
    dropout: float
    use_bias: bool
    _output_shape: int | tuple[int, ...] | None
    attention_axes: int | tuple[int, ...] | None
    kernel_initializer: keras.initializers.Initializer
    bias_initializer: keras.initializers.Initializer
    kernel_regularizer: keras.regularizers.Regularizer | None
    bias_regularizer: keras.regularizers.Regularizer | None
    _activity_regularizer: keras.regularizers.Regularizer | None
    kernel_constraint: keras.constraints.Constraint | None
    bias_constraint: keras.constraints.Constraint | None
    use_gate: bool
    seed: int | None
    num_key_value_heads: int | None
    query_key_norm: bool
    relative_positions: str | None

    @property
    def _value_dim(self) -> int:
        return self.value_dim or self.key_dim

    @property
    def _num_key_value_heads(self) -> int:
        return self.num_key_value_heads or self.num_heads

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        key_shape = key_shape or value_shape
        self._check_shapes(query_shape, value_shape, key_shape)
        # Keras checks the query of each call.
        self.input_spec = keras.layers.InputSpec(ndim=len(query_shape), axes={-1: query_shape[-1]})
        self._axes = AttentionAxes.of(self.attention_axes, len(query_shape))
        key_width, value_width = self._num_key_value_heads * self.key_dim, self._num_key_value_heads * self._value_dim
        heads_width = self.num_heads * self._value_dim
        self.query_dense = self._make_projection(self.num_heads * self.key_dim, "query")
        self.key_dense = self._make_projection(key_width, "key")
        self.value_dense = self._make_projection(value_width, "value")
        self.output_dense = self._make_projection(math.prod(self._output_dims(query_shape)), "output")
        self.attention_dropout = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], heads_width))
        if self.use_gate:
            self.gate_dense = self._make_projection(heads_width, "gate", activation="sigmoid")
            self.gate_dense.build(query_shape)
        if self.query_key_norm:
            self.query_norm, self.key_norm = (
                keras.layers.RMSNormalization(dtype=self.dtype_policy, name=name) for name in ("query_norm", "key_norm")
            )
            self.query_norm.build((None, self.num_heads, None, self.key_dim))
            self.key_norm.build((None, self._num_key_value_heads, None, self.key_dim))
        if self.relative_positions == "t5":
            self.relative_bias = T5RelativeBias(self.num_heads, dtype=self.dtype_policy, name="relative_bias")
            self.relative_bias.build()

    def _check_shapes(self, query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
        if len(query_shape) < 3 or query_shape[-1] is None:
            rule = "(batch, length, d_model), or have more axes between batch and d_model"
            raise ConfigError(f"query must be {rule}; received query of shape {tuple(query_shape)}")
        if tuple(value_shape[:-1]) != tuple(key_shape[:-1]):
            raise ConfigError(
                "value and key must be equal in all dimensions but the last; "
                f"received value of shape {tuple(value_shape)} and key of shape {tuple(key_shape)}"
            )
        if len(value_shape) != len(query_shape):
            raise ConfigError(
                "query and value must be of the same rank; "
                f"received query of shape {tuple(query_shape)} and value of shape {tuple(value_shape)}"
            )

    def _make_projection(self, units: int, name: str, activation: str | None = None) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            activation=activation,
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
            position_ids: the positions of the source, for rotary positions. Defaults to None: 0, 1, 2, ...
        """
        num_heads = self._num_key_value_heads
        if key is None:
            keys, values = project_to_heads(value, [self.key_dense, self.value_dense], num_heads)
        else:
            (keys,) = project_to_heads(key, [self.key_dense], num_heads)
            (values,) = project_to_heads(value, [self.value_dense], num_heads)
        return KeyValues(self._with_positions(keys, "key_norm", position_ids), values)

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache: a `FixedCache` of `max_length` entries, or a `GrowingCache` if that is None.

        Raises:
            ValueError: The layer is not built yet.
        """
        if not self.built:
            raise ValueError(f"{self.name} must be built before init_cache; call it or its build method first")
        num_heads = self._num_key_value_heads
        return empty_cache(batch_size, num_heads, self.key_dim, self._value_dim, max_length, self.compute_dtype)

    def _project_query(self, query: Tensor, position_ids: Tensor | None = None) -> Tensor:
        (queries,) = project_to_heads(query, [self.query_dense], self.num_heads)
        return self._with_positions(queries, "query_norm", position_ids)

    def _project_all(self, query: Tensor, value: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if key is None and value is query and self._num_key_value_heads == self.num_heads:
            projections = [self.query_dense, self.key_dense, self.value_dense]
            queries, keys, values = project_to_heads(query, projections, self.num_heads)
            return self._with_positions(queries, "query_norm"), self._with_positions(keys, "key_norm"), values
        return self._project_query(query), *self.project_key_value(value, key)

    def _with_positions(self, heads: Tensor, norm: str, position_ids: Tensor | None = None) -> Tensor:
        """Normalizes and rotates the heads (batch, heads, length, key_dim) of queries or keys, if that is asked for."""
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
        if self.relative_positions not in ("alibi", "t5"):
            return None
        positions = ops.arange(ops.shape(queries)[2]) if position_ids is None else position_ids
        key_positions = ops.arange(ops.shape(keys)[2]) if key_position_ids is None else key_position_ids
        if self.relative_positions == "t5":
            return self.relative_bias(positions, key_positions, bidirectional=not causal)
        return alibi_bias(positions, key_positions, self.num_heads)

    def _outputs(self, query: Tensor, heads: Tensor) -> Tensor:
        # heads: (batch, target length, num_heads, value_dim), or the two last in one
        batch, length = ops.shape(heads)[:2]
        # In two dimensions as in `project_rows`, unless the loss of a regularizer depends on the first one.
        leading = (-1,) if self._activity_regularizer is None else (batch, length)
        rows = ops.reshape(heads, (*leading, self.num_heads * self._value_dim))
        if self.use_gate:
            rows = ops.multiply(rows, self.gate_dense(ops.reshape(query, (*leading, query.shape[-1]))))
        return reshape_inferring(self.output_dense(rows), (batch, length, *self._output_dims(query.shape)))

    def _output_dims(self, query_shape: Shape) -> tuple[int, ...]:
        if self._output_shape is None:
            return (int(query_shape[-1] or 0),)
        return (self._output_shape,) if isinstance(self._output_shape, int) else self._output_shape
