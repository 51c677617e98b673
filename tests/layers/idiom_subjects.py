"""The layers that `keras_idioms.py` tries: ours, Keras' own and KerasHub's, with what each is called with."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_transformer

VOCAB_SIZE, WIDTH, LENGTH = 9, 8, 6
generator = np.random.default_rng(0)
TOKEN_IDS = generator.integers(1, VOCAB_SIZE, size=(4, LENGTH)).astype("int32")
TOKEN_IDS[::2, -2:] = 0
FEATURES = generator.normal(size=(4, LENGTH, WIDTH)).astype("float32")


class Subject(NamedTuple):
    """A layer, and how it is used.

    Attributes:
        make: makes the layer, from arguments of every layer such as `dtype`.
        inputs: how many float tensors (batch, length, WIDTH) it takes; 0 for token ids.
        has_dropout: whether `make` takes `dropout` too.
    """

    make: Callable[..., keras.layers.Layer]
    inputs: int = 1
    has_dropout: bool = False

    def call(self, layer: keras.layers.Layer, tensor: Any, **kwargs: Any) -> Any:
        return layer(*[tensor] * max(self.inputs, 1), **kwargs)

    def example(self) -> np.ndarray:
        return FEATURES if self.inputs else TOKEN_IDS

    def model(self, scope: Any = None, **kwargs: Any) -> keras.Model:
        """A user's model: from token ids (batch, length) through the layer to logits (batch, length, VOCAB_SIZE).

        Args:
            scope: in which the layer is made and called. Defaults to None.
            **kwargs: of the layer; `dtype` also of the others.
        """
        dtype = kwargs.get("dtype")
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        hidden = keras.layers.Embedding(VOCAB_SIZE, WIDTH, mask_zero=True, dtype=dtype)(token_ids)
        with scope or contextlib.nullcontext():
            layer = self.make(**kwargs)
            if not self.inputs:
                hidden = layer(token_ids)
            elif isinstance(layer, keras_transformer.TiedProjection):
                hidden = layer(layer.embedding(token_ids))
            else:
                hidden = self.call(layer, hidden)
        return keras.Model(token_ids, keras.layers.Dense(VOCAB_SIZE, dtype=dtype, name="logits")(hidden))


def _of(layer_class: Callable[..., keras.layers.Layer], /, *args: Any, **arguments: Any) -> Callable[..., Any]:
    return lambda **kwargs: layer_class(*args, **{**arguments, **kwargs})


def _tied_projection(**kwargs: Any) -> keras.layers.Layer:
    embedding = keras_transformer.PositionalEmbedding(VOCAB_SIZE, WIDTH, dtype=kwargs.get("dtype"))
    embedding.build((None, None))
    return keras_transformer.TiedProjection(embedding, **kwargs)


_BLOCK = dict(num_heads=2, d_ff=12, dropout=0.0)
_OTHER_BLOCK = {**_BLOCK, "norm_first": True, "neighborhood": 5, "attention_bias": True, "activation": "silu"}
OURS = {
    "MultiHeadAttention": Subject(_of(keras_transformer.MultiHeadAttention, 2, 4), 2, True),
    "MultiHeadAttention(other)": Subject(_of(keras_transformer.MultiHeadAttention, 2, 4, neighborhood=5), 2, True),
    "PositionalEmbedding": Subject(_of(keras_transformer.PositionalEmbedding, VOCAB_SIZE, WIDTH), 0, True),
    "PositionalEmbedding(learned)": Subject(
        _of(keras_transformer.PositionalEmbedding, VOCAB_SIZE, WIDTH, positions="learned", max_length=12), 0, True
    ),
    "TiedProjection": Subject(_tied_projection),
    "FeedForward": Subject(_of(keras_transformer.FeedForward, 12), 1, True),
    "EncoderLayer": Subject(_of(keras_transformer.EncoderLayer, **_BLOCK), 1, True),
    "EncoderLayer(other)": Subject(_of(keras_transformer.EncoderLayer, **_OTHER_BLOCK), 1, True),
    "DecoderLayer": Subject(_of(keras_transformer.DecoderLayer, **_BLOCK), 2, True),
    "DecoderLayer(other)": Subject(_of(keras_transformer.DecoderLayer, **_OTHER_BLOCK), 1, True),
    "Encoder": Subject(_of(keras_transformer.Encoder, num_layers=2, **_BLOCK), 1, True),
    "Decoder": Subject(_of(keras_transformer.Decoder, num_layers=1, **_BLOCK), 2, True),
}
STOCK = {
    "MultiHeadAttention": Subject(_of(keras.layers.MultiHeadAttention, 2, 4), 2, True),
    "LayerNormalization": Subject(_of(keras.layers.LayerNormalization)),
    "Dense": Subject(_of(keras.layers.Dense, WIDTH, activation="relu")),
    "Embedding": Subject(_of(keras.layers.Embedding, VOCAB_SIZE, WIDTH, mask_zero=True), 0),
}


def keras_hub_subjects() -> dict[str, Subject]:
    import keras_hub

    layers = keras_hub.layers
    return {
        "CachedMultiHeadAttention": Subject(_of(layers.CachedMultiHeadAttention, 2, 4), 2, True),
        "TransformerEncoder": Subject(_of(layers.TransformerEncoder, 12, 2), 1, True),
        "TransformerDecoder": Subject(_of(layers.TransformerDecoder, 12, 2), 2, True),
        "TokenAndPositionEmbedding": Subject(
            _of(layers.TokenAndPositionEmbedding, VOCAB_SIZE, LENGTH, WIDTH, mask_zero=True), 0
        ),
    }
