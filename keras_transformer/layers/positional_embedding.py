"""Token embeddings with positions (sections 3.4 and 3.5 of the paper)."""

from typing import Annotated, Any, Literal

import keras
from keras import ops

from ..config.rules import Rate, Size, check_attributes, require
from ..masks import padding_mask
from ..shapes import reshape_inferring
from ..tensors import Shape, Tensor
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """Token embeddings times `sqrt(d_model)`, plus positions, both in float32.

    Positions are the sinusoids of section 3.5, those of its authors' program, or a learned table (Table 3, row E). Id 0
    is padding: the layer's implicit mask is False there. `TiedProjection` uses the same token table to compute logits
    (section 3.4).

    Args:
        vocab_size: int. Number of tokens, including the padding id.
        d_model: int. Width of the embeddings; even for sinusoids.
        positions: "sinusoidal" (section 3.5); "tensor2tensor", the sinusoids of the authors' program and of Marian,
            whose frequencies end at exactly 1/10000; or "learned". Defaults to "sinusoidal".
        max_length: int or None. Number of learned positions; sinusoids need none. Defaults to None.
        dropout: float. Rate of dropout on the sums (section 5.4). Defaults to 0.

    Call arguments:
        token_ids: int (batch, length).
        position_ids: int, broadcasts to (batch, length). Defaults to 0, 1, 2, ... along the length.
        training: bool. Whether to apply dropout.

    Returns:
        (batch, length, d_model).

    Raises:
        ValueError: An argument breaks its rule, or a sequence is longer than the learned positions.

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
        positions: Literal["sinusoidal", "tensor2tensor", "learned"] = "sinusoidal",
        max_length: Size | None = None,
        dropout: Rate = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.positions = positions
        self.max_length: Any = max_length
        self.dropout = dropout
        check_attributes(self, PositionalEmbedding)
        if positions == "learned":
            require(max_length is not None, "max_length", "given if positions='learned'", max_length)
        else:
            require(d_model % 2 == 0, "d_model", f"even if positions={positions!r}", d_model)
        self.supports_masking = True
        # Ids may come as floats, which a mixed policy would round.
        self.autocast = False

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
    ) -> Annotated[Tensor, "(batch, length, d_model)"]:
        if position_ids is None:
            position_ids = self._position_ids(token_ids)
        tokens = ops.take(self.token_table, ops.cast(token_ids, "int32"), axis=0)  # (batch, length, d_model)
        embedded = ops.cast(tokens, "float32") * self.d_model**0.5 + self.encode_positions(position_ids)
        return self.sum_dropout(ops.cast(embedded, self.compute_dtype), training=training)

    def _position_ids(self, token_ids: Tensor) -> Tensor:
        length = ops.shape(token_ids)[1]
        if self.positions == "learned" and isinstance(length, int) and length > self.max_length:
            raise ValueError(f"token_ids must have at most max_length={self.max_length} positions; received {length}")
        return ops.arange(length, dtype="int32")[None, :]

    def encode_positions(
        self, position_ids: Annotated[Tensor, "int (...)"]
    ) -> Annotated[Tensor, "float32 (..., d_model)"]:
        """Returns what is added to the tokens at the positions."""
        if self.positions == "learned":
            return ops.cast(ops.take(self.position_table, position_ids, axis=0), "float32")
        return sinusoids(position_ids, self.d_model, ends_at_limit=self.positions == "tensor2tensor")

    def compute_mask(
        self, token_ids: Annotated[Tensor, "int (batch, length)"], previous_mask: Tensor | None = None
    ) -> Annotated[Tensor, "bool (batch, length)"]:
        return padding_mask(token_ids)

    def compute_output_spec(
        self,
        token_ids: Annotated[Tensor, "int (batch, length)"],
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, length)"] | None = None,
        training: bool | None = None,
    ) -> keras.KerasTensor:
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
        }


def sinusoids(
    position_ids: Annotated[Tensor, "int (...)"], d_model: int, ends_at_limit: bool = False
) -> Annotated[Tensor, "float32 (..., d_model)"]:
    """Computes the positional encoding of section 3.5.

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))` and `PE(pos, 2i + 1)` the cosine of the same angle.

    Args:
        position_ids: positions, of any shape.
        d_model: int. The width, even.
        ends_at_limit: bool. Whether the exponent is `2i / (d_model - 2)`, which ends at 1. Defaults to False.
    """
    last = max(d_model - 2, 1) if ends_at_limit else d_model
    exponents = ops.arange(0, d_model, 2, dtype="float32") / last  # (d_model / 2,)
    angles = ops.cast(position_ids, "float32")[..., None] * ops.power(10000.0, -exponents)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., d_model / 2, 2)
    return reshape_inferring(interleaved, (*ops.shape(angles)[:-1], d_model))
