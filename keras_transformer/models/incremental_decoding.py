"""Decodes one token per step with caches, so only attention slows down as sequences grow.

A beam search reorders its hypotheses without copying keys or values. The cache entries of all
hypotheses and all steps stay where they were written. Each hypothesis has a mask that selects the
entries of its ancestors. A prefix is written once, before the first step, and every hypothesis
attends to it.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..decoding.protocol import Step
from ..gather import gather_in_rows
from ..layers import Decoder, NewPositions, PositionalEmbedding, TiedProjection
from ..tensors import Dimension, Tensor, last_size


class DecoderState(NamedTuple):
    """The state between two steps. Every tensor has one row per sequence.

    A loop cannot carry None from step to step, so () stands for a part that is missing.

    Attributes:
        mask: whether a cache entry belongs to the hypothesis itself or to an ancestor; () if all
            entries do.
        caches: a cache for each layer of the decoder. The entries of the prefix come first. After
            them, the entry of a hypothesis at a position has the index
            `position * beam_size + hypothesis`.
        source: a tuple of the result of `decoder.project_source` and the source mask; () without a
            source.
        first_positions: int32 (batch, 1), the position in each sequence at which the search starts;
            () without a prefix.
    """

    mask: Annotated[Tensor, "bool (batch, beam_size, number of entries)"] | tuple[()]
    caches: Any
    source: Any
    first_positions: Tensor | tuple[()]


class CacheEntries(NamedTuple):
    """The mapping from cache entries to hypotheses and positions.

    All fields except `batch_size` are arguments of `Decodable.start_decoding`.
    """

    batch_size: Dimension
    beam_size: int
    max_length: Dimension | None
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None

    def new_positions(
        self,
        parents: Annotated[Tensor, "int32 (batch, beam_size)"],
        position: Dimension,
        state: DecoderState,
    ) -> NewPositions:
        """Returns the next position of every hypothesis. The next state stores their mask."""
        beam_size = self.beam_size
        prefix_length = None if self.prefix is None else ops.shape(self.prefix)[1]
        first_entry = position * beam_size
        position_ids = ops.reshape(position, (1, 1))
        if prefix_length is not None:
            first_entry = first_entry + prefix_length
            position_ids = position_ids + state.first_positions
        mask = self._with_own_entries(state.mask, parents, first_entry)

        def entry_position_ids() -> Tensor:
            num_entries = first_entry + beam_size if mask is None else ops.shape(mask)[2]
            entries = ops.arange(num_entries, dtype="int32")[None]
            if prefix_length is None:
                return entries // beam_size
            entries = entries - prefix_length
            return state.first_positions + ops.where(entries < 0, entries, entries // beam_size)

        return NewPositions(first_entry, mask, position_ids, entry_position_ids)

    def _with_own_entries(
        self, mask: Tensor | tuple[()], parents: Tensor, first_entry: Dimension
    ) -> Tensor | None:
        """Returns a mask that selects the parent's entries and the new entry of each hypothesis."""
        if isinstance(mask, tuple):
            return None
        mask = gather_in_rows(mask, parents)
        batch_size, beam_size, num_entries = ops.shape(mask)
        if self.max_length is None:
            is_own = ops.broadcast_to(
                np.eye(beam_size, dtype="bool"), (batch_size, beam_size, beam_size)
            )
            return ops.concatenate([mask, is_own], axis=2)
        own_entries = first_entry + ops.arange(beam_size, dtype="int32")[:, None]
        return ops.logical_or(mask, ops.equal(ops.arange(num_entries, dtype="int32"), own_entries))


def start_state(
    embedding: PositionalEmbedding, decoder: Decoder, entries: CacheEntries, source: Any = ()
) -> DecoderState:
    """Returns the state for the first step, with the prefix in the caches if there is one.

    See `DecoderState` for the `source`.
    """
    batch_size, beam_size, max_length, prefix = entries
    num_entries = None if max_length is None else max_length * beam_size
    if prefix is None and beam_size == 1 and num_entries is None:
        # There is only one hypothesis, so all entries belong to its ancestors.
        return DecoderState((), decoder.init_cache(batch_size), source, ())
    # Without a maximum length, there are 0 entries. Unless the batch size is static, this size is
    # not static either, so a loop can change it.
    mask = ops.zeros(
        (batch_size, beam_size, 0 * batch_size if num_entries is None else num_entries), "bool"
    )
    if prefix is None:
        return DecoderState(mask, decoder.init_cache(batch_size, num_entries), source, ())
    is_token = prefix >= 0
    # `ops.repeat` would lose the static beam size.
    mask = ops.concatenate([ops.concatenate([is_token[:, None]] * beam_size, axis=1), mask], axis=2)
    first_positions = ops.sum(ops.cast(is_token, "int32"), axis=1, keepdims=True)
    # Write the prefix to caches of its own length. If caches have a fixed size, then append room
    # for the steps.
    caches = decoder.init_cache(batch_size, None if num_entries is None else ops.shape(prefix)[1])
    state = DecoderState(mask, caches, source, first_positions)
    caches = write_prefix(embedding, decoder, prefix, state)
    if num_entries is not None:
        room = decoder.init_cache(batch_size, num_entries)
        caches = tree.map_structure(lambda *parts: ops.concatenate(parts, axis=2), caches, room)
    return state._replace(caches=caches)


def write_prefix(
    embedding: PositionalEmbedding,
    decoder: Decoder,
    prefix: Annotated[Tensor, "int (batch, prefix length)"],
    state: DecoderState,
) -> Any:
    """Returns the caches with a prefix, to whose tokens every hypothesis attends.

    Shorter prefixes are padded on the left with negative ids.
    """
    prefix_length = ops.shape(prefix)[1]
    entries = ops.arange(prefix_length, dtype="int32")
    position_ids = ops.maximum(
        entries - prefix_length + state.first_positions, 0
    )  # (batch, prefix length)
    is_token = prefix[:, None] >= 0
    mask = ops.logical_and(entries[:, None] >= entries[None, :], is_token)
    positions = NewPositions(0, mask, position_ids, position_ids)
    token_ids = ops.maximum(ops.cast(prefix, "int32"), 0)
    _, caches = _hidden_states(embedding, decoder, token_ids, positions, state)
    return caches


def decoder_step(
    embedding: PositionalEmbedding,
    decoder: Decoder,
    output_projection: keras.layers.Layer,
    entries: CacheEntries,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
) -> Step[DecoderState]:
    """Returns a step that applies an embedding, a decoder and a projection to logits.

    With `candidates`, it computes only the logits of these tokens. The projection's `kernel` is
    (d_model, vocab_size), and its `bias` is (vocab_size,) or None.
    """
    logits_of = _logits_function(output_projection, decoder.compute_dtype, candidates)
    num_candidates = None if candidates is None else last_size(candidates)

    def step(
        token_ids: Tensor, parents: Tensor, position: Dimension, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        positions = entries.new_positions(parents, position, state)
        hidden, caches = _hidden_states(embedding, decoder, token_ids, positions, state)
        logits = logits_of(
            ops.reshape(hidden, (-1, embedding.d_model))
        )  # (batch * beam_size, vocab_size)
        num_logits = last_size(logits) if num_candidates is None else num_candidates
        logits = ops.reshape(logits, (-1, entries.beam_size, num_logits))
        mask = () if positions.mask is None else positions.mask
        return logits, state._replace(mask=mask, caches=caches)

    return step


def _hidden_states(
    embedding: PositionalEmbedding,
    decoder: Decoder,
    token_ids: Annotated[Tensor, "int32 (batch, n)"],
    positions: NewPositions,
    state: DecoderState,
) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], Any]:
    """Returns the decoder's outputs for new tokens, and the caches with their entries."""
    inputs = embedding(token_ids, position_ids=positions.position_ids)
    return decoder.step(inputs, state.caches, positions, *state.source)


def _logits_function(
    output_projection: keras.layers.Layer, compute_dtype: str, candidates: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Returns a function from hidden states (rows, d_model) to float32 logits (rows, vocab_size).

    With candidates, the logits are (rows, number of candidates).
    """
    is_stock = type(output_projection) in (keras.layers.Dense, TiedProjection)
    if output_projection.quantization_mode or not is_stock:
        # Call the layer: a quantized kernel contains integers, whose scales only the layer knows,
        # and other layers may define their own `call`, for inputs (batch, length, d_model).
        def logits_of_layer(rows: Tensor) -> Tensor:
            logits = output_projection(ops.expand_dims(rows, 1))
            logits = ops.cast(ops.squeeze(logits, 1), "float32")
            return logits if candidates is None else ops.take(logits, candidates, axis=1)

        return logits_of_layer
    if candidates is not None and isinstance(output_projection, TiedProjection):
        kernel = output_projection.columns(candidates)
    else:
        kernel = ops.convert_to_tensor(output_projection.kernel)
        kernel = kernel if candidates is None else ops.take(kernel, candidates, axis=1)
    # Cast (and transpose) the kernel once for all steps, because with few rows, this takes longer
    # than the product.
    kernel = ops.cast(kernel, compute_dtype)
    bias = output_projection.bias
    if bias is not None:
        bias = ops.cast(ops.convert_to_tensor(bias), "float32")
        bias = bias if candidates is None else ops.take(bias, candidates, axis=0)

    def logits_of(rows: Tensor) -> Tensor:
        logits = ops.cast(ops.matmul(rows, kernel), "float32")
        return logits if bias is None else ops.add(logits, bias)

    return logits_of
