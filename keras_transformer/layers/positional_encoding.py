"""Positions for features other than token embeddings (section 3.5 of the paper)."""

from typing import Any, Literal, get_args

import keras
from keras import ops

from ..checks import boolean, one_of, positive_int, rate, require
from ..config.layer_options import AddedPositions
from ..errors import ConfigError
from ..masks import refuse_ragged
from ..tensors import Dimension, Shape, Tensor
from .absolute_positions import (
    add_position_table,
    check_positions,
    consecutive_positions,
    own_initializer,
    position_vectors,
)
from .dropout import Dropout
from .rotary_positions import RotaryPositions

Positions = Literal[AddedPositions, "rotary"]


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Positional encoding for features, such as time series, image patches or embeddings.

    The layer computes in float32, or in float64 for float64 inputs. A `keras.layers.Embedding`
    followed by `PositionalEncoding(scale_embedding=True)` returns the same outputs as
    `PositionalEmbedding`.

    Args:
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors' code,
            whose lowest frequency is exactly 1/10000; "learned"; or "rotary", which rotates the
            features by angles proportional to their positions instead of adding to them (Su et al.
            2021). Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions, required if `positions="learned"`.
            Defaults to None.
        dropout: float. Dropout rate on the result. Defaults to 0.
        scale_embedding: bool. Whether to first multiply the features by `sqrt(d_model)`. Defaults
            to False.
        embeddings_initializer: str, `keras.initializers.Initializer` or None. Initializer for the
            table of learned positions. Defaults to None: a normal distribution with a standard
            deviation of 0.02.
        embeddings_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to the table.
            Defaults to None.
        embeddings_constraint: str, `keras.constraints.Constraint` or None. Applied to the table.
            Defaults to None.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: (batch, length, d_model). Any additional axes between batch and length share the
            positions. d_model must be even unless positions are learned.
        position_ids: int, broadcasts to (batch, length). Defaults to `start_index`,
            `start_index + 1`, ...
        start_index: int or int scalar. Position of the first features. Do not pass it together
            with `position_ids`. Defaults to 0.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask.

    Raises:
        ConfigError: An argument is invalid, the inputs are token ids or have an odd width, or a
            position is beyond the table of learned positions. A ConfigError is a ValueError.

    Example:
        >>> encoding = PositionalEncoding()
        >>> encoding(keras.random.normal((2, 5, 64))).shape
        (2, 5, 64)
    """

    def __init__(
        self,
        positions: Positions = "sinusoidal",
        max_length: int | None = None,
        dropout: float = 0.0,
        scale_embedding: bool = False,
        embeddings_initializer: str | keras.initializers.Initializer | None = None,
        embeddings_regularizer: str | keras.regularizers.Regularizer | None = None,
        embeddings_constraint: str | keras.constraints.Constraint | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.positions = one_of("positions", positions, get_args(Positions))
        self.max_length = positive_int("max_length", max_length, optional=True)
        self.dropout = rate("dropout", dropout)
        self.scale_embedding = boolean("scale_embedding", scale_embedding)
        self.embeddings_initializer = own_initializer(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        if self.positions == "learned":
            rule = "given if positions='learned'"
            require(self.max_length is not None, "max_length", rule, max_length)
        self.supports_masking = True
        # Keep Keras from casting the features, which may have a higher precision than the outputs.
        self.autocast = False
        self.input_spec = keras.InputSpec(min_ndim=3)

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        refuse_ragged("inputs", inputs)
        if hasattr(inputs, "dtype") and not keras.backend.is_float_dtype(inputs.dtype):
            raise ConfigError(
                "inputs must be floats of shape (batch, length, d_model); received "
                f"{keras.backend.standardize_dtype(inputs.dtype)} of shape {tuple(inputs.shape)}. "
                "For token ids, use PositionalEmbedding"
            )
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Shape) -> None:
        d_model = input_shape[-1]
        if d_model is None:
            raise ConfigError(
                f"inputs must have a known width; received inputs of shape {tuple(input_shape)}"
            )
        self.d_model = d_model
        if self.positions == "learned":
            self.position_table = add_position_table(self)
        else:
            require(d_model % 2 == 0, "d_model", f"even if positions={self.positions!r}", d_model)
        self.rotary = RotaryPositions(dtype=self.dtype_policy)
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.input_spec = keras.InputSpec(min_ndim=3, axes={-1: d_model})

    def call(
        self,
        inputs: Tensor,
        position_ids: Tensor | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> Tensor:
        check_positions(self, "inputs", inputs.shape[-2], position_ids, start_index)
        if position_ids is None:
            position_ids = consecutive_positions(ops.shape(inputs)[-2], start_index)
        # Compute in float32, but keep float64.
        is_double = keras.backend.standardize_dtype(inputs.dtype) == "float64"
        features = inputs if is_double else ops.cast(inputs, "float32")
        if self.scale_embedding:
            features = features * self.d_model**0.5
        if self.positions == "rotary":
            features = self.rotary.rotate(features, position_ids)
        else:
            vectors = ops.cast(self.encode(position_ids), features.dtype)
            # The axes between batch and length share the positions.
            if len(features.shape) > 3:
                vectors = ops.expand_dims(vectors, tuple(range(1, len(features.shape) - 2)))
            features = features + vectors
        return self.sum_dropout(ops.cast(features, self.compute_dtype), training=training)

    def encode(self, position_ids: Tensor) -> Tensor:
        """Returns the encodings that are added to the features at the given positions.

        The layer must be built.

        Raises:
            ConfigError: `positions` is "rotary", which rotates the features instead of adding to
                them.
        """
        if self.positions == "rotary":
            raise ConfigError(
                "encode is not available with positions='rotary', which rotates the inputs"
            )
        return position_vectors(self, position_ids)

    def compute_output_spec(
        self,
        inputs: Tensor,
        position_ids: Tensor | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> keras.KerasTensor:
        check_positions(self, "inputs", inputs.shape[-2], position_ids, start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "positions": self.positions,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "scale_embedding": self.scale_embedding,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
        }
