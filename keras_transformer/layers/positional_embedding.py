"""Token embeddings with positions (sections 3.4 and 3.5 of the paper)."""

from typing import Any, get_args

import keras
from keras import ops

from ..checks import boolean, non_negative_int, one_of, positive_int, rate, require
from ..config.layer_options import AddedPositions
from ..errors import ConfigError
from ..gather import take_rows
from ..keras_versions import infers_shapes
from ..masks import PADDING_ID, padding_mask, refuse_ragged
from ..tensors import Dimension, Shape, Tensor
from .absolute_positions import (
    add_position_table,
    check_positions,
    consecutive_positions,
    own_initializer,
    position_vectors,
)
from .argument_hints import ArgumentHints
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(ArgumentHints, keras.layers.Layer):
    """Token embeddings times `sqrt(d_model)`, plus positions (sections 3.4 and 3.5).

    The sum is computed in float32. Positions are the sinusoids of section 3.5, the sinusoids of the
    authors' code, or a learned table (Table 3, row E). The implicit mask of the output is False at
    padding. `TiedProjection` uses the same token table to compute logits (section 3.4). If your
    inputs are features instead of token ids, use `PositionalEncoding`.

    Args:
        vocab_size: int. Size of the vocabulary, including the padding id.
        d_model: int. Width of the embeddings. It must be even for sinusoids.
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors'
            code and of Marian, whose lowest frequency is exactly 1/10000; "learned"; or None to add
            no positions. Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions, required if `positions="learned"`.
            Defaults to None.
        dropout: float. Dropout rate on the sum (section 5.4). Defaults to 0.
        scale_embedding: bool. Whether to multiply the token embeddings by `sqrt(d_model)`. Defaults
            to True.
        padding_id: int or None. Token id to mask. None masks no tokens. Defaults to 0.
        embeddings_initializer: str, `keras.initializers.Initializer` or None. Initializer for both
            tables, tokens and learned positions. Defaults to None: a normal distribution with a
            standard deviation of `d_model ** -0.5` for tokens and 0.02 for positions.
        embeddings_regularizer: str, `keras.regularizers.Regularizer` or None. Applied to both
            tables. Defaults to None.
        embeddings_constraint: str, `keras.constraints.Constraint` or None. Applied to both tables.
            Defaults to None.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        token_ids: int (batch, length). Floats are accepted only where Keras creates them: from a
            `keras.Input` without a dtype, or in a `Sequential` model without an input.
        position_ids: int, broadcasts to (batch, length). Defaults to `start_index`,
            `start_index + 1`, ...
        training: bool. Whether to apply dropout.
        start_index: int or int scalar. Position of the first token. Do not pass it together with
            `position_ids`. Defaults to 0.

    Returns:
        (batch, length, d_model).

    Raises:
        ConfigError: An argument is invalid, the inputs are not token ids, or a position is beyond
            the table of learned positions. A ConfigError is a ValueError.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=8000, d_model=512)
        >>> embedding(np.array([[5, 7, 2, 0]])).shape
        (1, 4, 512)
    """

    # Both tables are variables of this layer, not of two sublayers, because the files of saved
    # models depend on this. For the same reason, the layer does not use
    # `keras.layers.ReversibleEmbedding`. Its logits would also read a transposed table at every
    # step of a search, which takes up to 50% longer.

    other_names = {
        "dropout_rate": "dropout",
        "embed_dim": "d_model",
        "embedding_dim": "d_model",
        "input_dim": "vocab_size",
        "maxlen": "max_length",
        "output_dim": "d_model",
        "rate": "dropout",
        "sequence_length": "max_length",
        "vocabulary_size": "vocab_size",
    }

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: AddedPositions | None = "sinusoidal",
        *,
        max_length: int | None = None,
        dropout: float = 0.0,
        scale_embedding: bool = True,
        padding_id: int | None = PADDING_ID,
        embeddings_initializer: str | keras.initializers.Initializer | None = None,
        embeddings_regularizer: str | keras.regularizers.Regularizer | None = None,
        embeddings_constraint: str | keras.constraints.Constraint | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = positive_int("vocab_size", vocab_size)
        self.d_model = positive_int("d_model", d_model)
        self.positions = one_of("positions", positions, get_args(AddedPositions), optional=True)
        self.max_length = positive_int("max_length", max_length, optional=True)
        self.dropout = rate("dropout", dropout)
        self.scale_embedding = boolean("scale_embedding", scale_embedding)
        self.padding_id = non_negative_int("padding_id", padding_id, optional=True)
        self.embeddings_initializer = own_initializer(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        if self.positions == "learned":
            rule = "given if positions='learned'"
            require(self.max_length is not None, "max_length", rule, max_length)
        elif self.positions is not None:
            require(self.d_model % 2 == 0, "d_model", f"even if positions={positions!r}", d_model)
        if self.padding_id is not None:
            rule = f"below vocab_size={vocab_size}"
            require(self.padding_id < self.vocab_size, "padding_id", rule, padding_id)
        self.input_spec = None if self.positions is None else keras.InputSpec(ndim=2)
        self.supports_masking = True
        # Keras may pass ids as floats, which a mixed precision policy would round.
        self.autocast = False
        self._input_is_float = False

    def __call__(self, token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_ragged("token_ids", token_ids)
        if hasattr(token_ids, "dtype") and keras.backend.is_float_dtype(token_ids.dtype):
            self._check_floats(token_ids)
        return super().__call__(token_ids, *args, **kwargs)

    def _check_floats(self, inputs: Tensor) -> None:
        # Keras turns ids into floats if `keras.Input` has no dtype, or if it infers output shapes
        # from input shapes alone, as when it loads a subclassed model. Other floats are features
        # that were passed by mistake.
        if len(inputs.shape) == 2 and (keras.utils.is_keras_tensor(inputs) or infers_shapes()):
            self._input_is_float = self._input_is_float or keras.utils.is_keras_tensor(inputs)
        elif len(inputs.shape) != 2 or not self._input_is_float:
            raise ConfigError(
                "token_ids must be integers of shape (batch, length); received "
                f"{keras.backend.standardize_dtype(inputs.dtype)} of shape {tuple(inputs.shape)}. "
                "For features, use PositionalEncoding"
            )

    def build(self, input_shape: Shape) -> None:
        initializer = self.embeddings_initializer
        if initializer is None:
            # With this standard deviation, embeddings times sqrt(d_model) and tied logits both
            # start with unit variance.
            initializer = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.token_table = self.add_weight(
            shape=(self.vocab_size, self.d_model),
            initializer=initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            autocast=False,
            name="tokens",
        )
        if self.positions == "learned":
            self.position_table = add_position_table(self)
        self.sum_dropout = Dropout(self.dropout, dtype=self.dtype_policy)

    def call(
        self,
        token_ids: Tensor,
        position_ids: Tensor | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> Tensor:
        check_positions(self, "token_ids", token_ids.shape[1], position_ids, start_index)
        tokens = take_rows(ops.convert_to_tensor(self.token_table), ops.cast(token_ids, "int32"))
        embedded = ops.cast(tokens, "float32")  # (batch, length, d_model)
        if self.scale_embedding:
            embedded = embedded * self.d_model**0.5
        if self.positions is not None:
            if position_ids is None:
                position_ids = consecutive_positions(ops.shape(token_ids)[1], start_index)
            embedded = embedded + self.encode_positions(position_ids)
        return self.sum_dropout(ops.cast(embedded, self.compute_dtype), training=training)

    def encode_positions(self, position_ids: Tensor) -> Tensor:
        """Returns the encodings that are added to the token embeddings at the given positions."""
        if self.positions is None:
            return ops.zeros((*ops.shape(position_ids), self.d_model), "float32")
        return position_vectors(self, position_ids)

    def compute_mask(
        self,
        token_ids: Tensor,
        previous_mask: Tensor | None = None,
    ) -> Tensor | None:
        return None if self.padding_id is None else padding_mask(token_ids, self.padding_id)

    def compute_output_spec(
        self,
        token_ids: Tensor,
        position_ids: Tensor | None = None,
        training: bool | None = None,
        start_index: Dimension = 0,
    ) -> keras.KerasTensor:
        check_positions(self, "token_ids", token_ids.shape[1], position_ids, start_index)
        return keras.KerasTensor((*token_ids.shape, self.d_model), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "positions": self.positions,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "scale_embedding": self.scale_embedding,
            "padding_id": self.padding_id,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
        }
