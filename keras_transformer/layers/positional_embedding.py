"""Token embeddings with positions, and positions for other features (sections 3.4 and 3.5 of the
paper)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import keras
import numpy as np
from keras import ops

from ..checks import require
from ..errors import ConfigError
from ..gather import take_rows
from ..keras_versions import infers_shapes
from ..masks import PADDING_ID, padding_mask
from ..rules import Count, Rate, Size, annotations_of, check_attributes
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .arguments import LayerArguments, config_of, refuse_ragged
from .elementary import Dropout
from .relative_positions import rotate


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """Token embeddings times `sqrt(d_model)`, plus positions, both in float32.

    Positions are the sinusoids of section 3.5, those of its authors' program, or a learned table
    (Table 3, row E). The layer's implicit mask is False at padding. `TiedProjection` uses the same
    token table to compute logits (section 3.4). `PositionalEncoding` adds positions to features
    that are not token ids.

    Args:
        vocab_size: int. Number of tokens, including the padding id.
        d_model: int. Width of the embeddings; even for sinusoids.
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors'
            program and of Marian, whose frequencies end at exactly 1/10000; "learned"; or None to
            add no positions. Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions; sinusoids need none. Defaults to None.
        dropout: float. Rate of dropout on the sums (section 5.4). Defaults to 0.
        scale_embedding: bool. Whether to multiply the token embeddings by `sqrt(d_model)`. Defaults
            to True.
        padding_id: int or None. The token id that is masked; None masks none. Defaults to 0.

    Call arguments:
        token_ids: int (batch, length). Floats are only accepted where Keras makes them: from a
            `keras.Input` without a dtype, or in a `Sequential` without an input.
        position_ids: int, broadcasts to (batch, length). Defaults to consecutive positions from
            `start_index` on.
        training: bool. Whether to apply dropout.
        start_index: int or int scalar, the position of the first token; not with `position_ids`.
            Defaults to 0.

    Returns:
        (batch, length, d_model).

    Raises:
        ConfigError: An argument breaks its rule, the inputs are not ids, or a position is beyond
            the learned ones. It is a ValueError.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=8000, d_model=512)
        >>> embedding(np.array([[5, 7, 2, 0]])).shape
        (1, 4, 512)
    """

    # Both tables are variables of this layer, not of one layer for tokens and one for positions:
    # the files in which models are saved depend on it. For the same reason
    # `keras.layers.ReversibleEmbedding` is not used; besides, its logits read a transposed table at
    # every step of a search, which takes up to half as long again.

    def __init__(
        self,
        vocab_size: Size,
        d_model: Size,
        positions: Literal["sinusoidal", "tensor2tensor", "learned"] | None = "sinusoidal",
        *,
        max_length: Size | None = None,
        dropout: Rate = 0.0,
        scale_embedding: bool = True,
        padding_id: Count | None = PADDING_ID,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.positions = positions
        self.max_length = max_length
        self.dropout = dropout
        self.scale_embedding = scale_embedding
        self.padding_id = padding_id
        check_attributes(self, PositionalEmbedding)
        if positions == "learned":
            require(
                max_length is not None, "max_length", "given if positions='learned'", max_length
            )
        elif positions is not None:
            require(d_model % 2 == 0, "d_model", f"even if positions={positions!r}", d_model)
        if padding_id is not None:
            require(
                padding_id < vocab_size, "padding_id", f"below vocab_size={vocab_size}", padding_id
            )
        self.input_spec = None if positions is None else keras.InputSpec(ndim=2)
        self.supports_masking = True
        # Keras may hand over ids as floats, which a mixed policy would round.
        self.autocast = False
        self._input_is_float = False

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
        def __call__(
            self,
            token_ids: object,
            position_ids: object = None,
            training: bool | None = None,
            start_index: object = 0,
        ) -> Any: ...
    else:

        def __call__(
            self, token_ids: Annotated[Tensor, "int (batch, length)"], *args: Any, **kwargs: Any
        ) -> Annotated[Tensor, "(batch, length, d_model)"]:
            refuse_ragged("token_ids", token_ids)
            if hasattr(token_ids, "dtype") and keras.backend.is_float_dtype(token_ids.dtype):
                self._check_floats(token_ids)
            return super().__call__(token_ids, *args, **kwargs)

    def _check_floats(self, inputs: Tensor) -> None:
        # Keras makes ids floats: in a model whose `keras.Input` was given no dtype, and where it
        # infers shapes from shapes alone, as for a subclassed model that is loaded. Other floats
        # are features by mistake.
        if len(inputs.shape) == 2 and (keras.utils.is_keras_tensor(inputs) or infers_shapes()):
            self._input_is_float = self._input_is_float or keras.utils.is_keras_tensor(inputs)
        elif len(inputs.shape) != 2 or not self._input_is_float:
            raise ConfigError(
                "token_ids must be integers of shape (batch, length); received "
                f"{keras.backend.standardize_dtype(inputs.dtype)} of shape {tuple(inputs.shape)}. "
                "For features, use PositionalEncoding"
            )

    def build(self, input_shape: Shape) -> None:
        # With this deviation, embeddings times sqrt(d_model) and tied logits both start with unit
        # variance.
        initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.token_table = self.add_weight(
            shape=(self.vocab_size, self.d_model),
            initializer=initializer,
            autocast=False,
            name="tokens",
        )
        if self.positions == "learned":
            self.position_table = _add_position_table(self)
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)

    def call(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        _check_positions(self, "token_ids", token_ids, position_ids, start_index)
        tokens = take_rows(ops.convert_to_tensor(self.token_table), ops.cast(token_ids, "int32"))
        embedded = ops.cast(tokens, "float32")  # (batch, length, d_model)
        if self.scale_embedding:
            embedded = embedded * self.d_model**0.5
        if self.positions is not None:
            if position_ids is None:
                position_ids = _consecutive_positions(ops.shape(token_ids)[1], start_index)
            embedded = embedded + self.encode_positions(position_ids)
        return self.sum_dropout(ops.cast(embedded, self.compute_dtype), training=training)

    def encode_positions(
        self, position_ids: Annotated[Tensor, "int (...)"]
    ) -> Annotated[Tensor, "float32 (..., d_model)"]:
        """Returns what is added to the tokens at the positions."""
        if self.positions is None:
            return ops.zeros((*ops.shape(position_ids), self.d_model), "float32")
        return _vectors_at(self, position_ids)

    def compute_mask(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        previous_mask: Tensor | None = None,
    ) -> Annotated[Tensor, "bool (batch, length)"] | None:
        return None if self.padding_id is None else padding_mask(token_ids, self.padding_id)

    def compute_output_spec(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> keras.KerasTensor:
        _check_positions(self, "token_ids", token_ids, position_ids, start_index)
        return keras.KerasTensor((*token_ids.shape, self.d_model), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **config_of(self, annotations_of(PositionalEmbedding.__init__)),
        }


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds positions to features of any origin, in float32: a time series, patches of an image,
    other embeddings.

    A `keras.layers.Embedding` followed by `PositionalEncoding(scale_embedding=True)` computes what
    `PositionalEmbedding` computes from token ids.

    Args:
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors'
            program, whose frequencies end at exactly 1/10000; "learned"; or "rotary", which adds
            nothing, but rotates the features by angles in proportion to their position (Su et al.
            2021). Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions; others need none. Defaults to None.
        dropout: float. Rate of dropout on the result. Defaults to 0.
        scale_embedding: bool. Whether to multiply the features by `sqrt(d_model)` before. Defaults
            to False.

    Call arguments:
        inputs: (batch, length, d_model); d_model is even unless positions are learned.
        position_ids: int, broadcasts to (batch, length). Defaults to consecutive positions from
            `start_index` on.
        start_index: int or int scalar, the position of the first features; not with `position_ids`.
            Defaults to 0.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask.

    Raises:
        ConfigError: An argument breaks its rule, the inputs are token ids or have an odd width, or
            a position is beyond the learned ones. It is a ValueError.

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
            require(
                max_length is not None, "max_length", "given if positions='learned'", max_length
            )
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
                    f"{keras.backend.standardize_dtype(inputs.dtype)} of shape "
                    f"{tuple(inputs.shape)}. "
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
            self.position_table = _add_position_table(self)
        else:
            require(d_model % 2 == 0, "d_model", f"even if positions={self.positions!r}", d_model)
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        _check_positions(self, "inputs", inputs, position_ids, start_index)
        if position_ids is None:
            position_ids = _consecutive_positions(ops.shape(inputs)[1], start_index)
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

    def encode(
        self, position_ids: Annotated[Tensor, "int (...)"]
    ) -> Annotated[Tensor, "float32 (..., d_model)"]:
        """Returns what is added to the features at the positions, once the layer is built.

        Raises:
            ConfigError: Rotary positions are not added.
        """
        if self.positions == "rotary":
            raise ConfigError(
                "positions='rotary' rotates the inputs: there is nothing that encode could return"
            )
        return _vectors_at(self, position_ids)

    def compute_output_spec(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        start_index: Dimension = 0,
        training: bool | None = None,
    ) -> keras.KerasTensor:
        _check_positions(self, "inputs", inputs, position_ids, start_index)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **config_of(self, annotations_of(PositionalEncoding.__init__)),
        }


def _add_position_table(layer: PositionalEmbedding | PositionalEncoding) -> keras.Variable:
    return layer.add_weight(
        shape=(layer.max_length, layer.d_model),
        initializer=keras.initializers.RandomNormal(stddev=0.02),
        autocast=False,
        name="positions",
    )


def _vectors_at(
    layer: PositionalEmbedding | PositionalEncoding, position_ids: Annotated[Tensor, "int (...)"]
) -> Annotated[Tensor, "float32 (..., d_model)"]:
    if layer.positions == "learned":
        return ops.cast(ops.take(layer.position_table, position_ids, axis=0), "float32")
    return sinusoids(position_ids, layer.d_model, ends_at_limit=layer.positions == "tensor2tensor")


def _check_positions(
    layer: PositionalEmbedding | PositionalEncoding,
    name: str,
    inputs: Tensor,
    position_ids: Tensor | None,
    start_index: Dimension,
) -> None:
    """Raises a ConfigError if both are given, or a position is outside of what there is, as far as
    it is known."""
    start = _largest(start_index)
    if position_ids is not None and start != 0:
        raise ConfigError(
            f"position_ids and start_index must not both be given; received "
            f"start_index={start_index}"
        )
    if start is not None and start < 0:
        raise ConfigError(f"start_index must be at least 0; received start_index={start}")
    max_length = layer.max_length if layer.positions == "learned" else None
    if max_length is None:
        return
    length, rule = inputs.shape[1], f"max_length={max_length}"
    if position_ids is not None:
        last = _largest(position_ids)
        if last is not None and last >= max_length:
            raise ConfigError(f"position_ids must be below {rule}; received position {last}")
    elif isinstance(length, int) and start is not None and start + length > max_length:
        from_start = f" from start_index={start} on" if start else ""
        raise ConfigError(
            f"{name} must have at most {rule} positions; received {length}{from_start}"
        )


def _consecutive_positions(
    length: Dimension, start_index: Dimension = 0
) -> Annotated[Tensor, "int (1, length)"]:
    """Returns `start_index`, `start_index + 1`, ..."""
    positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    if isinstance(start_index, int) and start_index == 0:
        return positions
    return ops.cast(start_index, "int32") + positions


def _largest(numbers: Dimension) -> int | None:
    """Returns the largest of numbers if they are known: not while a graph is made, nor on an
    accelerator of PyTorch."""
    if keras.utils.is_keras_tensor(numbers):
        return None
    # PyTorch compiles a graph from what it sees, of which reading a number would not be a part. It
    # reports positions beyond a table by itself.
    if keras.backend.backend() == "torch" and not isinstance(
        numbers, (int, np.ndarray, np.generic)
    ):
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

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))` and `PE(pos, 2i + 1)` the cosine of the same
    angle.

    d_model is even. With `ends_at_limit` the exponent is `2i / (d_model - 2)`, which ends at 1.
    """
    last = max(d_model - 2, 1) if ends_at_limit else d_model
    exponents = ops.arange(0, d_model, 2, dtype="float32") / last  # (d_model / 2,)
    angles = ops.cast(position_ids, "float32")[..., None] * ops.power(10000.0, -exponents)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., d_model / 2, 2)
    return reshape_inferring(interleaved, (*ops.shape(angles)[:-1], d_model))
