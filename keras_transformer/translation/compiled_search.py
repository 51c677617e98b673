"""Search compiled by XLA for a few batch shapes.

A search step launches more than a hundred small operations, and launching them takes longer than
computing them. A compiled search is launched only once. Its tensor shapes are fixed, so each batch
is padded to a compiled shape. A batch that fits no shape, or that would fill less than half of one,
uses the plain search.
"""

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, cast

import keras
import numpy as np
import tensorflow as tf

from ..decoding import Growth, Step
from ..tensors import Tensor, last_size
from ..tokenizers import Tokenizer
from .executor import CompiledFunctions, PackedTensors, only_if
from .plain_search import constraints_of, search_hypotheses
from .searched_model import Candidates, SearchedModel, SearchRequest, TokensAndScores
from .shapes import POSITIONS_PER_BATCH

# A compiled search has room for all candidates of this many different source tokens.
_MIN_SOURCE_TOKENS = 4
# Otherwise, it has at most this many candidates in addition to those that every search has.
_MOST_ADDED = 4096
# Greater than any size.
_NO_SIZE = 2**30


def search_compiled(
    searched: SearchedModel,
    request: SearchRequest,
    rows: Annotated[Tensor, "int32 (n,)"],
    weights: PackedTensors,
    otherwise: Callable[[], TokensAndScores],
) -> TokensAndScores:
    """Searches for the translations of a batch: these rows of the request.

    If the batch fits no compiled shape, or there are no rows, it returns `otherwise()`.

    Args:
        searched: model and search settings.
        request: the request.
        rows: rows of the batch.
        weights: values of `searched.variables`.
        otherwise: function that searches in another way. It runs inside `only_if`.
    """
    functions = cast(CompiledFunctions, searched.compiled_functions)
    lengths = tf.constant(functions.shapes.lengths, tf.int32)
    batch_sizes = tf.constant(functions.shapes.batch_sizes, tf.int32)

    def search_inputs(inputs: dict[str, Tensor]) -> TokensAndScores:
        return _search_inputs(searched, request.n_best, inputs)

    num_rows = tf.size(rows)
    batch = _smallest(batch_sizes, batch_sizes >= num_rows)
    # A batch that fills less than half of a shape is faster in the plain search. If a batch
    # has more texts than any shape, its size is _NO_SIZE, which fails this test too.
    fits = batch <= 2 * num_rows
    # _NO_SIZE would overflow in the products below.
    batch = tf.where(fits, batch, num_rows)
    source_ids = tf.gather(request.source, rows).to_tensor()
    limits = tf.gather(request.max_lengths, rows)
    # Placeholders may raise a limit above the maximum length of a compiled search.
    most_tokens = searched.most_tokens_of(lengths)
    suffices = (lengths >= tf.shape(source_ids)[1]) & (most_tokens >= tf.reduce_max(limits))
    # Requests that fill a larger shape are divided, so warm-up requests cannot compile it.
    suffices &= (batch == 1) | (batch * most_tokens <= POSITIONS_PER_BATCH)
    candidates = None
    if searched.candidates is not None:
        candidates = searched.candidates.of(source_ids, None)
        suffices &= num_places(searched.candidates, batch * lengths) >= tf.size(candidates)
    fits &= tf.reduce_any(suffices)
    length = _smallest(lengths, suffices)

    def compiled() -> TokensAndScores:
        missing = batch - num_rows
        inputs = {
            "source": tf.pad(source_ids, [[0, missing], [0, length - tf.shape(source_ids)[1]]]),
            # Padding rows have a limit of 0, so they are finished before the first step.
            "max_lengths": tf.pad(limits, [[0, missing]]),
        }
        if request.placeholders is not None:
            inputs["placeholders"] = tf.pad(
                tf.gather(request.placeholders, rows), [[0, missing], [0, 0]]
            )
        if searched.candidates is not None and candidates is not None:
            inputs["candidates"] = _with_fillers(
                searched, candidates, num_places(searched.candidates, batch * length)
            )
            inputs["num_candidates"] = tf.size(candidates)
        token_ids, scores = functions.call(request.n_best, search_inputs, inputs, weights.unpack())
        token_ids = token_ids[:num_rows, :, : request.width]
        room = request.width - tf.shape(token_ids)[2]
        return tf.pad(token_ids, [[0, 0], [0, 0], [0, room]]), scores[:num_rows]

    def nothing() -> TokensAndScores:
        token_ids = tf.zeros([num_rows, request.n_best, request.width], tf.int32)
        return token_ids, tf.zeros([num_rows, request.n_best])

    def otherwise_with_weights() -> TokensAndScores:
        values = list(zip(searched.variables, weights.unpack(), strict=True))
        with keras.StatelessScope(state_mapping=values):
            return otherwise()

    # A compiled search is a single operation, which may be in a condition. The plain search
    # must not be in one, see `only_if`.
    return only_if(~fits, otherwise_with_weights, tf.cond(fits, compiled, nothing))


def _search_inputs(
    searched: SearchedModel, n_best: int, inputs: dict[str, Tensor]
) -> TokensAndScores:
    """Searches in a graph whose shapes are all known when it is compiled.

    Search settings are constants of the graph, and sequences that are finished stay in it. With
    candidates, the search computes with their places in the list, and fillers have logits of
    -inf.
    """
    candidates = inputs.get("candidates")
    options: dict[str, Any] = {}
    if candidates is not None:
        options["candidates"] = candidates
    if searched.output_projection is not None:
        options["output_projection"] = searched.output_projection
    length = tf.shape(inputs["source"])[1]
    max_length = searched.most_tokens_of(length)

    def start(num_steps: Tensor) -> tuple[Step[Any], Any]:
        return searched.model.start_decoding(
            inputs["source"], searched.decoding.beam_size, max_length=num_steps, **options
        )

    # Few translations are much longer than their sources, so start with a small state. XLA
    # merges the equal computations of both states.
    num_first_steps = tf.minimum(length, max_length)
    step, state = start(num_first_steps)
    _, full_state = start(max_length)
    if candidates is not None:
        step = _forbid_fillers(searched, step, inputs)
    hypotheses = search_hypotheses(
        searched.decoding,
        step,
        state,
        inputs["max_lengths"],
        n_best,
        max_length=max_length,
        start_ids=Tokenizer.start_id,
        end_ids=Tokenizer.end_id,
        constraints=constraints_of(searched.decoding, inputs.get("placeholders"), candidates),
        growth=Growth(num_first_steps, functools.partial(_with_values_of, full_state)),
    )
    return hypotheses.token_ids, hypotheses.scores


def _num_placeholders(searched: SearchedModel) -> int:
    """Returns the number of placeholders, which are the last candidates."""
    return 0 if searched.candidates is None else searched.candidates.num_also


def _with_fillers(searched: SearchedModel, candidates: Tensor, num_places: Tensor) -> Tensor:
    """Pads candidates to the size of a compiled search, with fillers before placeholders.

    A filler repeats the preceding candidate. `Constraints` looks up a token by its first
    position in the ascending list, which is still correct.
    """
    missing = num_places - tf.size(candidates)
    places = tf.range(num_places)
    first_filler = tf.size(candidates) - _num_placeholders(searched)
    return tf.gather(
        candidates,
        tf.where(places < first_filler, places, tf.maximum(places - missing, first_filler - 1)),
    )


def _forbid_fillers(searched: SearchedModel, step: Any, inputs: dict[str, Tensor]) -> Any:
    """Returns a step function that masks the logits of fillers."""
    num_placeholders = _num_placeholders(searched)
    num_places = last_size(inputs["candidates"])
    places = tf.range(num_places)
    is_filler = (places >= inputs["num_candidates"] - num_placeholders) & (
        places < num_places - num_placeholders
    )
    forbidden = tf.where(is_filler, np.float32(-np.inf), 0.0)

    def masked(*arguments: Any) -> tuple[Tensor, Any]:
        logits, state = step(*arguments)
        return logits + tf.cast(forbidden, logits.dtype), state

    return masked


def _with_values_of(full_state: Any, state: Any) -> Any:
    """Returns a state with room for all steps and the values of a smaller state."""

    def replaced(tensor: Tensor, values: Tensor) -> Tensor:
        missing = tf.shape(tensor) - tf.shape(values)
        paddings = tf.stack([tf.zeros_like(missing), missing], axis=1)
        # A model server does not register the operation that updates a slice.
        is_value = tf.pad(tf.ones_like(values, tf.bool), paddings)
        return tf.ensure_shape(tf.where(is_value, tf.pad(values, paddings), tensor), tensor.shape)

    return tf.nest.map_structure(replaced, full_state, state)


def _smallest(sizes: Tensor, is_large_enough: Tensor) -> Tensor:
    """Returns the smallest size that is large enough, or `_NO_SIZE`."""
    return tf.reduce_min(tf.where(is_large_enough, sizes, _NO_SIZE))


def num_places(candidates: Candidates, num_tokens: Tensor) -> Tensor:
    """Returns the size of the candidate list of a compiled search.

    Args:
        candidates: the shortlist.
        num_tokens: number of source tokens in the batch of the compiled search.
    """
    num_added = tf.clip_by_value(
        num_tokens * math.ceil(candidates.mean_num_added),
        _MIN_SOURCE_TOKENS * candidates.by_source.shape[1],
        _MOST_ADDED,
    )
    return tf.minimum(candidates.always.shape[0] + num_added, candidates.vocab_size)
