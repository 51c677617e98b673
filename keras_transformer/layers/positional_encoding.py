"""Positions for features that are not token ids (section 3.5 of the paper, and rotary positions)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import keras
import numpy as np
from keras import ops

from ..errors import ConfigError
from ..rules import Rate, Size, annotations_of, check_attributes, require
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .arguments import LayerArguments, config_of
from .elementary import Dropout
from .relative_positions import rotate


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds positions to features of any origin, in float32: a time series, patches of an image, other embeddings.

    A `keras.layers.Embedding` followed by `PositionalEncoding(scale_embedding=True)` computes what
    `PositionalEmbedding` computes from token ids.

    Args:
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors' program, whose frequencies
            end at exactly 1/10000; "learned"; or "rotary", which adds nothing, but rotates the features by angles in
            proportion to their position (Su et al. 2021). Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions; others need none. Defaults to None.
        dropout: float. Rate of dropout on the result. Defaults to 0.
        scale_embedding: bool. Whether to multiply the features by `sqrt(d_model)` before. Defaults to False.

    Call arguments:
        inputs: (batch, length, d_model); d_model is even unless positions are learned.
        position_ids: int, broadcasts to (batch, length). Defaults to consecutive positions from `start_index` on.
        start_index: int or int scalar, the position of the first features; not with `position_ids`. Defaults to 0.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask.

    Raises:
        ConfigError: An argument breaks its rule, the inputs are token ids or have no even width, or a position is
            beyond the learned ones. It is a ValueError.

    Example:
        >>> encoding = PositionalEncoding()
        >>> encoding(keras.random.normal((2, 5, 64))).shape
        (2, 5, 64)
    """

    def __init__(
        self,
        positions: Literal["sinusoidal", "tensor2tensor", "learned", "rotary"] = "sinusoidal",
        max_length: Size | None = None,
        dropout: Rate = 0.0,
        scale_embedding: bool = False,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.positions = positions
        self.max_length = max_length
        self.dropout = dropout
        self.scale_embedding = scale_embedding
        check_attributes(self, PositionalEncoding)
        if positions == "learned":
            require(max_length is not None, "max_length", "given if positions='learned'", max_length)
        self.supports_masking = True
        # Features may be more precise than the computation that they are prepared for.
        self.autocast = False
        self.input_spec = keras.InputSpec(ndim=3)

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
        def __call__(
            self,
            inputs: object,
            position_ids: object = None,
            start_index: object = 0,
            training: bool | None = None,
        ) -> Any: ...
    else:

        def __call__(
            self, inputs: Annotated[Tensor, "(batch, length, d_model)"], *args: Any, **kwargs: Any
        ) -> Annotated[Tensor, "(batch, length, d_model)"]:
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
            raise ConfigError(f"inputs must have a known width; received inputs of shape {tuple(input_shape)}")
        if self.positions == "learned":
            self.position_table = self.add_weight(
                shape=(self.max_length, d_model),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
                autocast=False,
                name="positions",
            )
        else:
            require(d_model % 2 == 0, "d_model", f"even if positions={self.positions!r}", d_model)
        self.d_model = d_model
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        self._check_positions(inputs, position_ids, start_index)
        if position_ids is None:
            position_ids = consecutive_positions(ops.shape(inputs)[1], start_index)
        # Compute in float32 or better: float64 stays float64.
        is_double = keras.backend.standardize_dtype(inputs.dtype) == "float64"
        features = inputs if is_double else ops.cast(inputs, "float32")
        if self.scale_embedding:
            features = features * self.d_model**0.5
        if self.positions == "rotary":
            features = rotate(features, position_ids)
        else:
            features = features + ops.cast(self.encode(position_ids), features.dtype)
        return self.sum_dropout(ops.cast(features, self.compute_dtype), training=training)

    def _check_positions(self, inputs: Tensor, position_ids: Tensor | None, start_index: Dimension) -> None:
        max_length = self.max_length if self.positions == "learned" else None
        check_positions("inputs", inputs.shape[1], position_ids, start_index, max_length)

    def encode(self, position_ids: Annotated[Tensor, "int (...)"]) -> Annotated[Tensor, "float32 (..., d_model)"]:
        """Returns what is added to the features at the positions, once the layer is built.

        Raises:
            ConfigError: Rotary positions are not added.
        """
        if self.positions == "rotary":
            raise ConfigError("positions='rotary' rotates the inputs: there is nothing that encode could return")
        if self.positions == "learned":
            return ops.cast(ops.take(self.position_table, position_ids, axis=0), "float32")
        return sinusoids(position_ids, self.d_model, ends_at_limit=self.positions == "tensor2tensor")

    def compute_output_spec(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> keras.KerasTensor:
        self._check_positions(inputs, position_ids, start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, annotations_of(PositionalEncoding.__init__))}


def consecutive_positions(length: Dimension, start_index: Dimension = 0) -> Annotated[Tensor, "int (1, length)"]:
    """Returns `start_index`, `start_index + 1`, ..."""
    positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    if isinstance(start_index, int) and start_index == 0:
        return positions
    return ops.cast(start_index, "int32") + positions


def check_positions(
    name: str,
    length: Dimension | None,
    position_ids: Annotated[Tensor, "int (...)"] | None,
    start_index: Dimension,
    max_length: int | None,
) -> None:
    """Checks the positions of a call as far as they are known.

    Args:
        name: what messages call the sequence.
        length: of the sequence.
        position_ids: given positions, or None.
        start_index: the first position.
        max_length: the number of learned positions, or None if any position will do.

    Raises:
        ConfigError: Both are given, or a position is outside of what there is.
    """
    start = _largest(start_index)
    if position_ids is not None and start != 0:
        raise ConfigError(f"position_ids and start_index must not both be given; received start_index={start_index}")
    if start is not None and start < 0:
        raise ConfigError(f"start_index must be at least 0; received start_index={start}")
    if max_length is None:
        return
    if position_ids is not None:
        last = _largest(position_ids)
        if last is not None and last >= max_length:
            raise ConfigError(f"position_ids must be below max_length={max_length}; received position {last}")
    elif isinstance(length, int) and start is not None and start + length > max_length:
        from_start = f" from start_index={start} on" if start else ""
        raise ConfigError(f"{name} must have at most max_length={max_length} positions; received {length}{from_start}")


def _largest(numbers: Dimension) -> int | None:
    """Returns the largest of numbers if they are known: not while a graph is made, nor on an accelerator of PyTorch."""
    if keras.utils.is_keras_tensor(numbers):
        return None
    # PyTorch compiles a graph from what it sees, of which reading a number would not be a part. It reports positions
    # beyond a table by itself.
    if keras.backend.backend() == "torch" and not isinstance(numbers, (int, np.ndarray, np.generic)):
        return None
    try:
        known = np.asarray(numbers)
    except (TypeError, NotImplementedError):
        return None
    return int(known.max()) if known.size else None


def sinusoids(
    position_ids: Annotated[Tensor, "int (...)"], d_model: int, ends_at_limit: bool = False
) -> Annotated[Tensor, "float32 (..., d_model)"]:
    """Computes the positional encoding of section 3.5.

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))` and `PE(pos, 2i + 1)` the cosine of the same angle.

    d_model is even. With `ends_at_limit` the exponent is `2i / (d_model - 2)`, which ends at 1.
    """
    last = max(d_model - 2, 1) if ends_at_limit else d_model
    exponents = ops.arange(0, d_model, 2, dtype="float32") / last  # (d_model / 2,)
    angles = ops.cast(position_ids, "float32")[..., None] * ops.power(10000.0, -exponents)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., d_model / 2, 2)
    return reshape_inferring(interleaved, (*ops.shape(angles)[:-1], d_model))
