"""Decodes one token per step with caches, so only attention slows down as sequences grow.

A beam search reorders its hypotheses without copying keys or values. The cache entries of all
hypotheses and all steps stay where they were written. Each hypothesis has a mask that selects the
entries of its ancestors. A prefix is written once, before the first step, and every hypothesis
attends to it.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, cast

import keras
import numpy as np
from keras import ops, tree

from ..gather import gather_in_rows
from ..layers import Decoder, PositionalEmbedding, TiedProjection
from ..tensors import Dimension, Tensor, last_size


class DecoderState(NamedTuple):
    """The state between two steps. Every tensor has one row per sequence.

    Attributes:
        is_ancestor: whether a cache entry belongs to the hypothesis itself or to an ancestor; () if
            all entries do.
        caches: any nest of caches. The entries of the prefix come first. After them, the entry of a
            hypothesis at a position has the index `position * beam_size + hypothesis`.
        source: any nest of tensors, which the model's step reads.
        first_positions: int32 (batch, 1), the position in each sequence at which the search starts;
            () without a prefix.
    """

    is_ancestor: Annotated[Tensor, "bool (batch, beam_size, number of entries)"] | tuple[()]
    caches: Any
    source: Any
    first_positions: Tensor | tuple[()]


# Like `keras_transformer.decoding.Step`, but if `parents` is None, the step writes a prefix to the
# caches and computes no logits.
DecoderStep = Callable[[Tensor, Tensor | None, Dimension, DecoderState], tuple[Any, DecoderState]]


class NewPositions(NamedTuple):
    """The positions that a step computes: the next position of every hypothesis, or a prefix.

    Attributes:
        first_entry: the index of the first new cache entry.
        mask: the entries that each position attends to, before a layer applies its sliding window;
            () for all entries.
        position_ids: the positions in the sequence.
        entry_position_ids: function that returns the position ids of the entries, (batch, number of
            entries), or (1, number of entries) if all sequences have the same ids. Few layers need
            them.
    """

    first_entry: Dimension
    mask: Annotated[Tensor, "bool (batch, n, number of entries)"] | tuple[()]
    position_ids: Annotated[Tensor, "int32, broadcasts to (batch, n)"]
    entry_position_ids: Callable[[], Tensor]

    def arguments_for(self, layer: Any) -> dict[str, Any]:
        """Returns the position arguments for the `step` method of a layer."""
        mask = None if isinstance(self.mask, tuple) else self.mask
        arguments: dict[str, Any] = dict(position=self.first_entry, mask=mask)
        if layer.needs_position_ids:
            arguments["position_ids"] = self.position_ids
            arguments["entry_position_ids"] = self.entry_position_ids()
        return arguments


class CacheEntries(NamedTuple):
    """The mapping from cache entries to hypotheses and positions.

    All fields except `batch_size` are arguments of `Decodable.start_decoding`.
    """

    batch_size: Dimension
    beam_size: int
    max_length: Dimension | None
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None

    def start(
        self, step: DecoderStep, init_caches: Callable[..., Any], source: Any
    ) -> DecoderState:
        """Writes the prefix, if there is one, and returns the state for the first step.

        Args:
            step: the model's step, which writes the prefix.
            init_caches: function that returns a nest of empty caches for a batch size and a number
                of entries, which is None for caches that grow.
            source: see `DecoderState`.
        """
        batch_size, beam_size, max_length, prefix = self
        num_entries = None if max_length is None else max_length * beam_size
        if prefix is None and beam_size == 1 and num_entries is None:
            # There is only one hypothesis, so all entries belong to its ancestors.
            return DecoderState((), init_caches(batch_size, None), source, ())
        # Without a maximum length, there are 0 entries. Unless the batch size is static, this size
        # is not static either, so a loop can change it.
        no_ancestor = ops.zeros(
            (batch_size, beam_size, 0 * batch_size if num_entries is None else num_entries), "bool"
        )
        if prefix is None:
            return DecoderState(no_ancestor, init_caches(batch_size, num_entries), source, ())
        is_token = prefix >= 0
        # `ops.repeat` would lose the static beam size.
        is_ancestor = ops.concatenate(
            [ops.concatenate([is_token[:, None]] * beam_size, axis=1), no_ancestor], axis=2
        )
        num_tokens = ops.sum(ops.cast(is_token, "int32"), axis=1, keepdims=True)
        # Write the prefix to caches of its own length. If caches have a fixed size, then append
        # room for the steps.
        caches = init_caches(batch_size, None if num_entries is None else ops.shape(prefix)[1])
        state = DecoderState(is_ancestor, caches, source, num_tokens)
        _, written = step(ops.maximum(ops.cast(prefix, "int32"), 0), None, 0, state)
        caches = written.caches
        if num_entries is not None:
            room = init_caches(batch_size, num_entries)
            caches = tree.map_structure(lambda *parts: ops.concatenate(parts, axis=2), caches, room)
        return state._replace(caches=caches)

    def new_positions(
        self,
        parents: Annotated[Tensor, "int32 (batch, beam_size)"] | None,
        position: Dimension,
        state: DecoderState,
    ) -> NewPositions:
        """Returns the positions that a `DecoderStep` computes.

        The next state stores their mask as `is_ancestor`.
        """
        beam_size = self.beam_size
        prefix_length = None if self.prefix is None else ops.shape(self.prefix)[1]
        if parents is None:
            entries = ops.arange(prefix_length, dtype="int32")
            prefix_ids = ops.maximum(
                entries - prefix_length + state.first_positions, 0
            )  # (batch, prefix length)
            is_token = cast(Tensor, state.is_ancestor)[:, :1, :prefix_length]
            mask = ops.logical_and(entries[:, None] >= entries[None, :], is_token)
            return NewPositions(0, mask, prefix_ids, lambda: prefix_ids)
        first_entry = position * beam_size
        position_ids = ops.reshape(position, (1, 1))
        if prefix_length is not None:
            first_entry = first_entry + prefix_length
            position_ids = position_ids + state.first_positions
        mask = self._with_own_entries(state.is_ancestor, parents, first_entry)

        @functools.cache
        def entry_position_ids() -> Tensor:
            num_entries = first_entry + beam_size if isinstance(mask, tuple) else ops.shape(mask)[2]
            entries = ops.arange(num_entries, dtype="int32")[None]
            if prefix_length is None:
                return entries // beam_size
            entries = entries - prefix_length
            return state.first_positions + ops.where(entries < 0, entries, entries // beam_size)

        return NewPositions(first_entry, mask, position_ids, entry_position_ids)

    def _with_own_entries(
        self, is_ancestor: Tensor | tuple[()], parents: Tensor, first_entry: Dimension
    ) -> Tensor | tuple[()]:
        """Returns a mask that selects the parent's entries and the new entry of each hypothesis."""
        if isinstance(is_ancestor, tuple):
            return ()
        is_ancestor = gather_in_rows(is_ancestor, parents)
        batch_size, beam_size, num_entries = ops.shape(is_ancestor)
        if self.max_length is None:
            is_own = ops.broadcast_to(
                np.eye(beam_size, dtype="bool"), (batch_size, beam_size, beam_size)
            )
            return ops.concatenate([is_ancestor, is_own], axis=2)
        own_entries = first_entry + ops.arange(beam_size, dtype="int32")[:, None]
        return ops.logical_or(
            is_ancestor, ops.equal(ops.arange(num_entries, dtype="int32"), own_entries)
        )


def decoder_step(
    embedding: PositionalEmbedding,
    decoder: Decoder,
    output_projection: keras.layers.Layer,
    entries: CacheEntries,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
) -> DecoderStep:
    """Returns a step that applies an embedding, a decoder and a projection to logits.

    With `candidates`, it computes only the logits of these tokens. The `source` in the state is a
    tuple of the result of `decoder.project_source` and the source mask, or () without a source. The
    projection's `kernel` is (d_model, vocab_size), and its `bias` is (vocab_size,) or None.
    """
    logits_of = _logits_function(output_projection, decoder.compute_dtype, candidates)
    num_candidates = None if candidates is None else last_size(candidates)

    def step(
        token_ids: Tensor, parents: Tensor | None, position: Dimension, state: DecoderState
    ) -> tuple[Tensor | None, DecoderState]:
        positions = entries.new_positions(parents, position, state)
        source_key_values, source_mask = state.source or (None, None)
        hidden, caches = decoder.step(
            embedding(token_ids, position_ids=positions.position_ids),
            state.caches,
            source_key_values=source_key_values,
            source_mask=source_mask,
            **positions.arguments_for(decoder),
        )
        state = state._replace(is_ancestor=positions.mask, caches=caches)
        if parents is None:
            return None, state
        logits = logits_of(
            ops.reshape(hidden, (-1, embedding.d_model))
        )  # (batch * beam_size, vocab_size)
        num_logits = last_size(logits) if num_candidates is None else num_candidates
        return ops.reshape(logits, (-1, entries.beam_size, num_logits)), state

    return step


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
