"""Decoding one token of every hypothesis at a time, at a cost that grows with the prefix in attention only.

No key or value is copied when a beam search reorders its hypotheses. The caches keep the entries of all hypotheses of
all steps where they were written; each hypothesis carries a mask of the entries of its ancestors.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import keras
import numpy as np
from keras import ops

from ..decoding.protocol import Step
from ..gather import gather_in_rows
from ..layers import Decoder, PositionalEmbedding
from ..layers.key_value_cache import Cache, KeyValues
from ..shapes import reshape_inferring
from ..tensors import Dimension, Tensor


class DecoderState(NamedTuple):
    """What is known between two steps. Every tensor has one row for each source.

    Attributes:
        is_ancestor: for each hypothesis, whether an entry of the caches is of one of its ancestors or its own.
        caches: keys and values of the target's positions, for each layer; the entry of a hypothesis at a position
            is number `position * beam_size + hypothesis`.
        source_key_values: keys and values of the source, for each layer.
        source_mask: where the source is not padding.
    """

    is_ancestor: Annotated[Tensor, "bool (batch, beam_size, number of entries)"]
    caches: list[Cache]
    source_key_values: list[KeyValues]
    source_mask: Annotated[Tensor, "bool (batch, source length)"]


def start_decoding(
    decoder: Decoder,
    embedding: PositionalEmbedding,
    output_projection: keras.layers.Layer,
    encoded: Annotated[Tensor, "(batch, source length, d_model)"],
    source_mask: Annotated[Tensor, "bool (batch, source length)"],
    beam_size: int,
    max_length: Dimension | None,
) -> tuple[Step[DecoderState], DecoderState]:
    """Prepares to decode from an encoded source, see `Transformer.start_decoding`.

    Args:
        decoder: the decoder.
        embedding: the embedding of the target.
        output_projection: layer with a `kernel` (d_model, vocab_size) and a `bias` (vocab_size,) or None, or a
            quantized one, which is called.
        encoded: the encoder's output.
        source_mask: where the source is not padding.
        beam_size: hypotheses per source.
        max_length: tokens for which caches have room, or None.
    """
    batch_size = ops.shape(encoded)[0]
    num_entries = None if max_length is None else max_length * beam_size
    state = DecoderState(
        # Without a length, 0 entries: as unknown as the batch size, so that a loop may change it.
        is_ancestor=ops.zeros((batch_size, beam_size, 0 * batch_size if num_entries is None else num_entries), "bool"),
        caches=decoder.init_cache(batch_size, num_entries),
        source_key_values=decoder.project_source(encoded),
        source_mask=source_mask,
    )
    add_newest = _append_newest if max_length is None else _set_newest
    logits_of = _logits_function(output_projection, decoder.compute_dtype)

    def step(token_ids: Tensor, parents: Tensor, position: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        is_ancestor = add_newest(gather_in_rows(state.is_ancestor, parents), position)
        decoded, caches = decoder.step(
            embedding(token_ids, position_ids=ops.reshape(position, (1, 1))),
            state.caches,
            position * beam_size,
            _restricted(is_ancestor, position, decoder.neighborhood),
            state.source_key_values,
            state.source_mask,
        )
        rows = ops.reshape(decoded, (-1, embedding.d_model))
        logits = logits_of(rows)  # (batch * beam_size, vocab_size)
        logits = reshape_inferring(logits, (*ops.shape(token_ids), logits.shape[-1]))
        return logits, state._replace(is_ancestor=is_ancestor, caches=caches)

    return step, state


def _logits_function(output_projection: keras.layers.Layer, compute_dtype: str) -> Callable[[Tensor], Tensor]:
    """Returns the function from hidden states (rows, d_model) to float32 logits (rows, vocab_size)."""
    if output_projection.quantization_mode:
        # Its kernel holds integers, whose scales the layer itself applies.
        return lambda rows: ops.cast(output_projection(rows), "float32")
    # Cast, and transposed if it is tied, once for all steps: for few rows that takes longer than their product.
    kernel = ops.cast(ops.convert_to_tensor(output_projection.kernel), compute_dtype)
    bias = output_projection.bias
    bias = None if bias is None else ops.cast(ops.convert_to_tensor(bias), "float32")

    def logits_of(rows: Tensor) -> Tensor:
        logits = ops.cast(ops.matmul(rows, kernel), "float32")
        return logits if bias is None else ops.add(logits, bias)

    return logits_of


def _set_newest(is_ancestor: Tensor, position: Tensor) -> Tensor:
    """Marks the entries of a position, of which each hypothesis is its own ancestor."""
    beam_size = is_ancestor.shape[1]
    entries = ops.arange(ops.shape(is_ancestor)[2], dtype="int32")
    itself = position * beam_size + ops.arange(beam_size, dtype="int32")[:, None]
    return ops.logical_or(is_ancestor, ops.equal(entries, itself))


def _append_newest(is_ancestor: Tensor, position: Tensor) -> Tensor:
    beam_size = is_ancestor.shape[1]
    itself = ops.broadcast_to(np.eye(beam_size, dtype="bool"), (ops.shape(is_ancestor)[0], beam_size, beam_size))
    return ops.concatenate([is_ancestor, itself], axis=2)


def _restricted(is_ancestor: Tensor, position: Tensor, neighborhood: int | None) -> Tensor:
    """Leaves out what is before the neighborhood of a position; what is after it does not exist yet."""
    if neighborhood is None:
        return is_ancestor
    first_entry = (position - neighborhood // 2) * is_ancestor.shape[1]
    return ops.logical_and(is_ancestor, ops.arange(ops.shape(is_ancestor)[2], dtype="int32") >= first_entry)
