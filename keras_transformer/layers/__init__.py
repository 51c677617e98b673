"""The layers, one subject to a file; the public ones are imported here, where they learn other
libraries' names."""

import functools
import inspect
from typing import Any

import keras

from .attention import MultiHeadAttention
from .blocks import BlockOptions, DecoderLayer, EncoderLayer, FeedForward
from .positional_embedding import PositionalEmbedding, PositionalEncoding
from .stacks import Decoder, Encoder
from .tied_projection import TiedProjection

__all__ = [
    "BlockOptions",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "PositionalEmbedding",
    "PositionalEncoding",
    "TiedProjection",
]

# What KerasHub, PyTorch and Keras call our arguments.
_OUR_NAMES = {
    "decoder_attention_mask": "attention_mask",
    "decoder_padding_mask": "target_mask",
    "decoder_sequence": "target",
    "dim_feedforward": "d_ff",
    "embed_dim": "d_model",
    "embedding_dim": "d_model",
    "encoder_attention_mask": "source_attention_mask",
    "encoder_padding_mask": "source_mask",
    "encoder_sequence": "source",
    "head_dim": "key_dim",
    "input_dim": "vocab_size",
    "intermediate_dim": "d_ff",
    "is_causal": "use_causal_mask",
    "layer_norm_eps": "epsilon",
    "layer_norm_epsilon": "epsilon",
    "memory": "source",
    "nhead": "num_heads",
    "normalize_first": "norm_first",
    "num_query_heads": "num_heads",
    "output_dim": "d_model",
    "padding_mask": "mask",
    "sequence_length": "max_length",
    "vocabulary_size": "vocab_size",
}


def _name_ours(layer_class: Any) -> None:
    """Makes an argument by another library's name an error that says our name."""

    def with_hints(method: Any, signature: inspect.Signature) -> Any:
        hints = {
            name: our_name
            for name, our_name in _OUR_NAMES.items()
            if our_name in signature.parameters
        }

        @functools.wraps(method)
        def method_with_hints(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() & hints.keys():
                # A subclass may have its own names.
                if type(self).call is layer_class.call:
                    raise TypeError(
                        f"{layer_class.__name__} has no argument {name!r}; it is called "
                        f"{hints[name]!r}"
                    )
            return method(self, *args, **kwargs)

        # Keras reads the signature of the wrapper.
        method_with_hints.__signature__ = signature  # type: ignore[attr-defined]
        return method_with_hints

    layer_class.__init__ = with_hints(layer_class.__init__, inspect.signature(layer_class.__init__))
    layer_class.__call__ = with_hints(layer_class.__call__, inspect.signature(layer_class.call))


for _layer_class in (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    PositionalEmbedding,
):
    _name_ours(_layer_class)
