"""Decoding one token of every hypothesis at a time, at a cost that grows with the prefix in attention only.

Nothing is copied when a beam search reorders its hypotheses. The caches keep the entries of all hypotheses of all
steps where they were written; each hypothesis carries a list of its ancestors and attends to their entries alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from ..layers import Decoder, PositionalEmbedding
from ..layers.key_value_cache import Cache, KeyValues
from ..masks import ancestor_mask
from ..shapes import reshape_inferring

# (token_ids, parents, position, state) -> (logits, state), see `keras_transformer.decoding`
Step = Callable[[Any, Any, Any, "DecoderState"], tuple[Any, "DecoderState"]]


class DecoderState(NamedTuple):
    """What is known between two steps. Every tensor has one row for each source.

    Attributes:
        ancestors: int32 (batch, beam_size, length). For each hypothesis and position, the index of its ancestor.
        caches: keys and values of the target's positions, for each layer; the entry of a hypothesis at a position
            is number `position * beam_size + hypothesis`.
        source_key_values: keys and values of the source, for each layer.
        source_mask: bool (batch, source length).
    """

    ancestors: Any
    caches: list[Cache]
    source_key_values: list[KeyValues]
    source_mask: Any


def start_decoding(
    decoder: Decoder,
    embedding: PositionalEmbedding,
    kernel: Any,
    encoded: Any,
    source_mask: Any,
    beam_size: int,
    max_length: Any,
) -> tuple[Step, DecoderState]:
    """Prepares to decode from an encoded source, see `Transformer.start_decoding`.

    Args:
        decoder: Decoder.
        embedding: PositionalEmbedding of the target.
        kernel: (d_model, vocab_size), of the output projection.
        encoded: (batch, source length, d_model), the encoder's output.
        source_mask: bool (batch, source length).
        beam_size: int.
        max_length: int, int scalar or None.
    """
    batch_size = ops.shape(encoded)[0]
    # Without a length, 0: as unknown as the batch size, so that a loop may change it.
    length = 0 * batch_size if max_length is None else max_length
    state = DecoderState(
        ancestors=ops.zeros((batch_size, beam_size, length), dtype="int32"),
        caches=decoder.init_cache(batch_size, None if max_length is None else max_length * beam_size),
        source_key_values=decoder.project_source(encoded),
        source_mask=source_mask,
    )
    add_position = _set_newest if max_length is not None else _append_newest
    # Cast, and transposed if it is tied, once for all steps: for few rows that takes longer than their product.
    kernel = ops.cast(ops.convert_to_tensor(kernel), decoder.compute_dtype)

    def step(token_ids: Any, parents: Any, position: Any, state: DecoderState) -> tuple[Any, DecoderState]:
        ancestors = add_position(_of_parents(state.ancestors, parents), parents, position)
        decoded, caches = decoder.step(
            embedding(token_ids, position_ids=ops.reshape(position, (1, 1))),
            state.caches,
            position * beam_size,
            ancestor_mask(ancestors, position, beam_size, decoder.neighborhood),
            state.source_key_values,
            state.source_mask,
        )
        rows = ops.reshape(decoded, (-1, embedding.d_model))
        logits = ops.cast(ops.matmul(rows, kernel), "float32")  # (batch * beam_size, vocab_size)
        logits = reshape_inferring(logits, (*ops.shape(token_ids), kernel.shape[1]))
        return logits, state._replace(ancestors=ancestors, caches=caches)

    return step, state


def _of_parents(ancestors: Any, parents: Any) -> Any:
    # ancestors: (batch, beam_size, length), parents: (batch, beam_size)
    batch_size, beam_size, length = ops.shape(ancestors)
    rows = ops.arange(batch_size, dtype="int32")[:, None] * beam_size + parents
    return ops.take(ops.reshape(ancestors, (batch_size * beam_size, length)), rows, axis=0)


def _set_newest(ancestors: Any, parents: Any, position: Any) -> Any:
    """At the newest position every hypothesis is its own ancestor."""
    is_newest = ops.equal(ops.arange(ops.shape(ancestors)[2], dtype="int32"), position)
    itself = ops.arange(parents.shape[1], dtype="int32")[None, :, None]
    return ops.where(is_newest, itself, ancestors)


def _append_newest(ancestors: Any, parents: Any, position: Any) -> Any:
    itself = ops.arange(parents.shape[1], dtype="int32") + ops.zeros_like(parents)  # (batch, beam_size)
    return ops.concatenate([ancestors, ops.expand_dims(itself, 2)], axis=2)
