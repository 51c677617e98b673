"""Token embeddings with positions (sections 3.4 and 3.5 of the paper)."""

import keras
from keras import ops

from ..masks import padding_mask
from ..shapes import reshape
from .dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """Token embeddings times sqrt(d_model), plus positions; the same table turned round gives logits.

    Positions are the sinusoids of section 3.5, `sin(pos / 10000^(2i/d_model))` and the cosine interleaved,
    computed in float32, or a learned table (Table 3, row E). Id 0 is padding: the layer's implicit mask is False
    there.

    Args:
        vocab_size: number of tokens, the padding id included.
        d_model: width of the embeddings.
        positions: "sinusoidal" or "learned".
        max_length: number of learned positions; sinusoids need none.
        dropout: rate of dropout on the sums.

    Call arguments:
        inputs: int (batch, length), token ids; with `reverse`, (batch, length, d_model).
        positions: int, broadcast to the ids' shape; 0, 1, 2 … along the length if None.
        reverse: whether to project hidden states to logits with the transposed table (section 3.4).

    Returns:
        (batch, length, d_model); with `reverse`, float32 logits (batch, length, vocab_size).

    Raises:
        ValueError: a size is not positive, `d_model` is odd with sinusoids, `positions` is unknown, or learned
            positions come without `max_length`.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=8000, d_model=512)
        >>> hidden = embedding(np.array([[5, 7, 2, 0]]))
        >>> embedding(hidden, reverse=True).shape
        (1, 4, 8000)
    """

    def __init__(
        self, vocab_size, d_model, positions="sinusoidal", max_length=None, dropout=0.0, **kwargs
    ):
        super().__init__(**kwargs)
        for name, size in (("vocab_size", vocab_size), ("d_model", d_model), ("max_length", max_length)):
            if size is not None and size < 1:
                raise ValueError(f"{name} must be positive; received {name}={size}")
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(f"positions must be 'sinusoidal' or 'learned'; received {positions!r}")
        if positions == "learned" and max_length is None:
            raise ValueError("max_length must be given for learned positions; received None")
        if positions == "sinusoidal" and d_model % 2:
            raise ValueError(f"d_model must be even for sinusoidal positions; received d_model={d_model}")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.positions = positions
        self.max_length = max_length
        self.dropout = dropout
        self.supports_masking = True
        # Ids may come as floats, which a mixed policy would round.
        self.autocast = False

    def build(self, input_shape):
        # With this deviation embeddings times sqrt(d_model) and logits both start with unit variance.
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

    def call(self, inputs, positions=None, reverse=False, training=None):
        if reverse:
            rows = ops.reshape(ops.cast(inputs, self.compute_dtype), (-1, self.d_model))
            table = ops.cast(self.token_table, self.compute_dtype)
            logits = ops.cast(ops.matmul(rows, ops.transpose(table)), "float32")
            return reshape(logits, (*ops.shape(inputs)[:-1], self.vocab_size))
        if positions is None:
            length = ops.shape(inputs)[1]
            if self.positions == "learned" and isinstance(length, int) and length > self.max_length:
                raise ValueError(
                    f"sequences must not be longer than max_length={self.max_length}; received length {length}"
                )
            positions = ops.arange(length, dtype="int32")[None, :]
        tokens = ops.cast(ops.take(self.token_table, ops.cast(inputs, "int32"), axis=0), "float32")
        embedded = tokens * self.d_model**0.5 + self.encode_positions(positions)
        return self.sum_dropout(ops.cast(embedded, self.compute_dtype), training=training)

    def encode_positions(self, positions):
        """What is added to the tokens at `positions`, int of any shape: float32 (…, d_model)."""
        if self.positions == "learned":
            return ops.cast(ops.take(self.position_table, positions, axis=0), "float32")
        exponents = ops.arange(0, self.d_model, 2, dtype="float32") / self.d_model
        angles = ops.cast(positions, "float32")[..., None] * ops.power(10000.0, -exponents)
        interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        return reshape(interleaved, (*ops.shape(angles)[:-1], self.d_model))

    def compute_mask(self, inputs, previous_mask=None):
        return padding_mask(inputs) if len(inputs.shape) == 2 else previous_mask

    def compute_output_spec(self, inputs, positions=None, reverse=False, training=None):
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), dtype="float32")
        return keras.KerasTensor((*inputs.shape, self.d_model), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "positions": self.positions,
            "max_length": self.max_length,
            "dropout": self.dropout,
        }
