"""Token embeddings with positions (sections 3.4 and 3.5 of the paper)."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import keras
from keras import ops

from ..errors import ConfigError
from ..gather import take_rows
from ..keras_versions import infers_shapes
from ..masks import PADDING_ID, padding_mask
from ..rules import Count, Rate, Size, annotations_of, check_attributes, require
from ..tensors import Dimension, Shape, Tensor
from .arguments import LayerArguments, config_of, name_ours, refuse_ragged
from .elementary import Dropout
from .positional_encoding import check_positions, consecutive_positions, sinusoids


@keras.saving.register_keras_serializable("keras_transformer")
@name_ours
class PositionalEmbedding(keras.layers.Layer):
    """Token embeddings times `sqrt(d_model)`, plus positions, both in float32.

    Positions are the sinusoids of section 3.5, those of its authors' program, or a learned table (Table 3, row E). The
    layer's implicit mask is False at padding. `TiedProjection` uses the same token table to compute logits (section
    3.4). `PositionalEncoding` adds positions to features that are not token ids.

    Args:
        vocab_size: int. Number of tokens, including the padding id.
        d_model: int. Width of the embeddings; even for sinusoids.
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors' program and of Marian,
            whose frequencies end at exactly 1/10000; "learned"; or None to add no positions. Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions; sinusoids need none. Defaults to None.
        dropout: float. Rate of dropout on the sums (section 5.4). Defaults to 0.
        scale_embedding: bool. Whether to multiply the token embeddings by `sqrt(d_model)`. Defaults to True.
        padding_id: int or None. The token id that is masked; None masks none. Defaults to 0.

    Call arguments:
        token_ids: int (batch, length). Floats are only accepted where Keras makes them: from a `keras.Input` without a
            dtype, or in a `Sequential` without an input.
        position_ids: int, broadcasts to (batch, length). Defaults to consecutive positions from `start_index` on.
        training: bool. Whether to apply dropout.
        start_index: int or int scalar, the position of the first token; not with `position_ids`. Defaults to 0.

    Returns:
        (batch, length, d_model).

    Raises:
        ConfigError: An argument breaks its rule, the inputs are not ids, or a position is beyond the learned ones. It
            is a ValueError.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=8000, d_model=512)
        >>> embedding(np.array([[5, 7, 2, 0]])).shape
        (1, 4, 512)
    """

    # Both tables are variables of this layer, not of one layer for tokens and one for positions: the files in which
    # models are saved depend on it. For the same reason `keras.layers.ReversibleEmbedding` is not used; besides,
    # its logits read a transposed table at every step of a search, which takes up to half as long again.

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
            require(max_length is not None, "max_length", "given if positions='learned'", max_length)
        elif positions is not None:
            require(d_model % 2 == 0, "d_model", f"even if positions={positions!r}", d_model)
        if padding_id is not None:
            require(padding_id < vocab_size, "padding_id", f"below vocab_size={vocab_size}", padding_id)
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
        # Keras makes ids floats: in a model whose `keras.Input` was given no dtype, and where it infers shapes from
        # shapes alone, as for a subclassed model that is loaded. Other floats are features by mistake.
        if len(inputs.shape) == 2 and (keras.utils.is_keras_tensor(inputs) or infers_shapes()):
            self._input_is_float = self._input_is_float or keras.utils.is_keras_tensor(inputs)
        elif len(inputs.shape) != 2 or not self._input_is_float:
            raise ConfigError(
                "token_ids must be integers of shape (batch, length); received "
                f"{keras.backend.standardize_dtype(inputs.dtype)} of shape {tuple(inputs.shape)}. "
                "For features, use PositionalEncoding"
            )

    def build(self, input_shape: Shape) -> None:
        # With this deviation, embeddings times sqrt(d_model) and tied logits both start with unit variance.
        initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.token_table = self.add_weight(
            shape=(self.vocab_size, self.d_model), initializer=initializer, autocast=False, name="tokens"
        )
        if self.positions == "learned":
            self.position_table = self.add_weight(
                shape=(self.max_length, self.d_model),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
                autocast=False,
                name="positions",
            )
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)

    def call(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        self._check_positions(token_ids, position_ids, start_index)
        tokens = take_rows(ops.convert_to_tensor(self.token_table), ops.cast(token_ids, "int32"))
        embedded = ops.cast(tokens, "float32")  # (batch, length, d_model)
        if self.scale_embedding:
            embedded = embedded * self.d_model**0.5
        if self.positions is not None:
            if position_ids is None:
                position_ids = consecutive_positions(ops.shape(token_ids)[1], start_index)
            embedded = embedded + self.encode_positions(position_ids)
        return self.sum_dropout(ops.cast(embedded, self.compute_dtype), training=training)

    def _check_positions(self, token_ids: Tensor, position_ids: Tensor | None, start_index: Dimension) -> None:
        max_length = self.max_length if self.positions == "learned" else None
        check_positions("token_ids", token_ids.shape[1], position_ids, start_index, max_length)

    def encode_positions(
        self, position_ids: Annotated[Tensor, "int (...)"]
    ) -> Annotated[Tensor, "float32 (..., d_model)"]:
        """Returns what is added to the tokens at the positions."""
        if self.positions is None:
            return ops.zeros((*ops.shape(position_ids), self.d_model), "float32")
        if self.positions == "learned":
            return ops.cast(ops.take(self.position_table, position_ids, axis=0), "float32")
        return sinusoids(position_ids, self.d_model, ends_at_limit=self.positions == "tensor2tensor")

    def compute_mask(
        self, token_ids: Annotated[Tensor, "int (batch, length)"], previous_mask: Tensor | None = None
    ) -> Annotated[Tensor, "bool (batch, length)"] | None:
        return None if self.padding_id is None else padding_mask(token_ids, self.padding_id)

    def compute_output_spec(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> keras.KerasTensor:
        self._check_positions(token_ids, position_ids, start_index)
        return keras.KerasTensor((*token_ids.shape, self.d_model), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, annotations_of(PositionalEmbedding.__init__))}
