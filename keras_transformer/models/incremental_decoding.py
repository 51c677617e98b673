"""Decoding one token of every hypothesis at a time, at a cost that grows with the prefix in attention only.

No key or value is copied when a beam search reorders its hypotheses. The caches keep the entries of all hypotheses of
all steps where they were written; each hypothesis carries a mask of the entries of its ancestors. A prefix is written
once, before the first step, and is an ancestor of all.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import keras
import numpy as np
from keras import ops, tree

from ..decoding.protocol import Step
from ..gather import gather_in_rows
from ..layers import Decoder, DecoderLayer, PositionalEmbedding, TiedProjection
from ..shapes import last_size, reshape_inferring
from ..tensors import Dimension, Tensor


class DecoderState(NamedTuple):
    """What is known between two steps. Every tensor has one row for each sequence.

    Attributes:
        is_ancestor: for each hypothesis, whether an entry of the caches is of one of its ancestors or its own.
        caches: any nest of caches. The entries of the prefix come first; after them, the entry of a hypothesis at a
            position is number `position * beam_size + hypothesis`.
        source: any nest of tensors, which the network reads.
        first_positions: int32 (batch, 1), where in the sequence position 0 of the search is; () without a prefix.
    """

    is_ancestor: Annotated[Tensor, "bool (batch, beam_size, number of entries)"]
    caches: Any
    source: Any
    first_positions: Tensor | tuple[()]


class NewPositions:
    """Positions that a network computes: one of every hypothesis, or those of a prefix.

    Args:
        first_entry: the number of the first entry that is written.
        mask: the entries that each position may attend to, disregarding neighborhoods.
        position_ids: the places of the positions in the sequence.
        find_entry_position_ids: returns the places of the entries: (number of entries,) if all sequences have the same,
            as they do without a prefix.
    """

    def __init__(
        self,
        first_entry: Dimension,
        mask: Annotated[Tensor, "bool (batch, n, number of entries)"],
        position_ids: Annotated[Tensor, "int32, broadcasts to (batch, n)"],
        find_entry_position_ids: Callable[[], Tensor],
    ) -> None:
        self.first_entry = first_entry
        self.mask = mask
        self.position_ids = position_ids
        self._find_entry_position_ids = find_entry_position_ids

    @functools.cached_property
    def _entry_position_ids(self) -> Tensor:
        # Few layers need them.
        return self._find_entry_position_ids()

    def arguments_for(self, layer: Decoder | DecoderLayer) -> dict[str, Any]:
        """Returns the arguments for the `step` of a layer that are about positions."""
        mask = self.mask if layer.neighborhood is None else self._mask_within(layer.neighborhood)
        arguments = dict(position=self.first_entry, mask=mask)
        if layer.relative_positions is not None:
            entries = self._entry_position_ids
            entries = ops.expand_dims(entries, 0) if len(entries.shape) == 1 else entries
            arguments |= dict(position_ids=self.position_ids, entry_position_ids=entries)
        return arguments

    def _mask_within(self, neighborhood: int) -> Tensor:
        """Leaves out what is before the neighborhoods; what is after them does not exist yet."""
        entries, first = self._entry_position_ids, self.position_ids - neighborhood // 2
        if len(entries.shape) == 1:
            return ops.logical_and(self.mask, entries >= first)
        return ops.logical_and(self.mask, entries[:, None, :] >= first[:, :, None])


class Network(Protocol):
    """Computes new positions of the target."""

    def init_caches(self, batch_size: Dimension, max_length: Dimension | None) -> Any:
        """Returns a nest of empty caches, see `DecoderLayer.init_cache`."""
        ...

    def __call__(
        self,
        token_ids: Annotated[Tensor, "int32 (batch, n)"],
        caches: Any,
        source: Any,
        positions: NewPositions,
        needs_logits: bool = True,
    ) -> tuple[Annotated[Any, "(batch, n, vocab_size)"], Any]:
        """Returns the logits of the tokens after the new ones, if they are needed, and the caches with the entries."""
        ...


class DecoderNetwork:
    """An embedding, a decoder and a projection to logits.

    Its source is a tuple of what `decoder.project_source` returns and of the source's mask.

    Args:
        embedding: the embedding of the target.
        decoder: the decoder.
        output_projection: layer with a `kernel` (d_model, vocab_size) and a `bias` (vocab_size,) or None, or a
            quantized one, which is called.
        candidates: the tokens whose logits are computed. Defaults to None: all.
    """

    def __init__(
        self,
        embedding: PositionalEmbedding,
        decoder: Decoder,
        output_projection: keras.layers.Layer,
        candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
    ) -> None:
        self.embedding = embedding
        self.decoder = decoder
        self._logits_of = logits_function(output_projection, decoder.compute_dtype, candidates)

    def init_caches(self, batch_size: Dimension, max_length: Dimension | None) -> Any:
        return self.decoder.init_cache(batch_size, max_length)

    def __call__(
        self, token_ids: Tensor, caches: Any, source: Any, positions: NewPositions, needs_logits: bool = True
    ) -> tuple[Tensor | None, Any]:
        key_values, source_mask = source
        decoded, caches = self.decoder.step(
            self.embedding(token_ids, position_ids=positions.position_ids),
            caches,
            source_key_values=key_values,
            source_mask=source_mask,
            **positions.arguments_for(self.decoder),
        )
        if not needs_logits:
            return None, caches
        logits = self._logits_of(ops.reshape(decoded, (-1, self.embedding.d_model)))  # (batch * n, vocab_size)
        return reshape_inferring(logits, (*ops.shape(token_ids), last_size(logits))), caches


def start_steps(
    network: Network,
    source: Any,
    batch_size: Dimension,
    beam_size: int,
    max_length: Dimension | None,
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
) -> tuple[Step[DecoderState], DecoderState]:
    """Prepares to decode, see `Transformer.start_decoding`.

    Args:
        network: what computes new positions.
        source: any nest of tensors, which the network reads.
        batch_size: how many sequences.
        beam_size: hypotheses per sequence.
        max_length: tokens for which caches have room after the prefix, or None.
        prefix: tokens before position 0; negative before a sequence's beginning.
    """
    num_entries = None if max_length is None else max_length * beam_size
    # Without a length, 0 entries: as unknown as the batch size, so that a loop may change it.
    no_ancestor = ops.zeros((batch_size, beam_size, 0 * batch_size if num_entries is None else num_entries), "bool")
    prefix_length = 0 if prefix is None else ops.shape(prefix)[1]
    if prefix is None:
        state = DecoderState(no_ancestor, network.init_caches(batch_size, num_entries), source, ())
    else:
        caches, is_ancestor, first_positions = _write_prefix(network, source, batch_size, num_entries, prefix)
        # Not `ops.repeat`, which loses the static beam size.
        is_ancestor = ops.concatenate([is_ancestor[:, None]] * beam_size, axis=1)
        state = DecoderState(ops.concatenate([is_ancestor, no_ancestor], axis=2), caches, source, first_positions)
    add_newest = _append_newest if max_length is None else _set_newest

    def step(token_ids: Tensor, parents: Tensor, position: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        first_entry = position * beam_size
        position_ids = ops.reshape(position, (1, 1))
        if prefix is not None:
            first_entry = first_entry + prefix_length
            position_ids = position_ids + state.first_positions
        is_ancestor = add_newest(gather_in_rows(state.is_ancestor, parents), first_entry)

        def entry_position_ids() -> Tensor:
            entries = ops.arange(ops.shape(is_ancestor)[2], dtype="int32")
            if prefix is None:
                return entries // beam_size
            entries = entries - prefix_length
            return state.first_positions + ops.where(entries < 0, entries, entries // beam_size)

        positions = NewPositions(first_entry, is_ancestor, position_ids, entry_position_ids)
        logits, caches = network(token_ids, state.caches, state.source, positions)
        return logits, state._replace(is_ancestor=is_ancestor, caches=caches)

    return step, state


def _write_prefix(
    network: Network, source: Any, batch_size: Dimension, num_entries: Dimension | None, prefix: Tensor
) -> tuple[Any, Tensor, Tensor]:
    """Returns caches with a prefix, bool (batch, prefix length) where it has tokens, and their numbers (batch, 1)."""
    length = ops.shape(prefix)[1]
    is_token = prefix >= 0
    num_tokens = ops.sum(ops.cast(is_token, "int32"), axis=1, keepdims=True)
    entries = ops.arange(length, dtype="int32")
    position_ids = ops.maximum(entries - length + num_tokens, 0)  # (batch, prefix length)
    mask = ops.logical_and(entries[:, None] >= entries[None, :], is_token[:, None, :])
    # Attention reads only the prefix; where the caches are of fixed size, room for the steps comes after it.
    caches = network.init_caches(batch_size, None if num_entries is None else length)
    positions = NewPositions(0, mask, position_ids, lambda: position_ids)
    _, caches = network(ops.maximum(ops.cast(prefix, "int32"), 0), caches, source, positions, needs_logits=False)
    if num_entries is not None:
        room = network.init_caches(batch_size, num_entries)
        caches = tree.map_structure(lambda *parts: ops.concatenate(parts, axis=2), caches, room)
    return caches, is_token, num_tokens


def logits_function(
    output_projection: keras.layers.Layer,
    compute_dtype: str,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
) -> Callable[[Tensor], Tensor]:
    """Returns the function from hidden states (rows, d_model) to float32 logits (rows, vocab_size or candidates)."""
    if output_projection.quantization_mode:
        # Its kernel holds integers, whose scales the layer itself applies.
        def logits_of_quantized(rows: Tensor) -> Tensor:
            logits = ops.cast(output_projection(rows), "float32")
            return logits if candidates is None else ops.take(logits, candidates, axis=1)

        return logits_of_quantized
    # Cast, and transposed if it is tied, once for all steps: for few rows that takes longer than their product.
    kernel = ops.cast(ops.convert_to_tensor(_columns(output_projection, candidates)), compute_dtype)
    bias = output_projection.bias
    bias = None if bias is None else ops.cast(ops.convert_to_tensor(bias), "float32")
    if bias is not None and candidates is not None:
        bias = ops.take(bias, candidates, axis=0)

    def logits_of(rows: Tensor) -> Tensor:
        logits = ops.cast(ops.matmul(rows, kernel), "float32")
        return logits if bias is None else ops.add(logits, bias)

    return logits_of


def _columns(output_projection: keras.layers.Layer, candidates: Tensor | None) -> Tensor:
    if candidates is None:
        return output_projection.kernel
    if isinstance(output_projection, TiedProjection):
        return output_projection.columns(candidates)
    return ops.take(ops.convert_to_tensor(output_projection.kernel), candidates, axis=1)


def _set_newest(is_ancestor: Tensor, first_entry: Tensor) -> Tensor:
    """Marks the entries of a position, of which each hypothesis is its own ancestor."""
    beam_size = is_ancestor.shape[1]
    entries = ops.arange(ops.shape(is_ancestor)[2], dtype="int32")
    itself = first_entry + ops.arange(beam_size, dtype="int32")[:, None]
    return ops.logical_or(is_ancestor, ops.equal(entries, itself))


def _append_newest(is_ancestor: Tensor, first_entry: Tensor) -> Tensor:
    beam_size = is_ancestor.shape[1]
    itself = ops.broadcast_to(np.eye(beam_size, dtype="bool"), (ops.shape(is_ancestor)[0], beam_size, beam_size))
    return ops.concatenate([is_ancestor, itself], axis=2)
