"""Searches for or samples translations of tokenized sources, inside the TensorFlow graph.

A request is divided into batches of texts of similar length. `search_plain` searches a batch of any
size; `search_compiled` searches batches that fit a compiled shape.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import tensorflow as tf

from ..tensors import Dimension, Tensor
from .compiled_search import search_compiled
from .executor import PackedTensors
from .plain_search import search_plain
from .searched_model import (
    FoundTokens,
    Sampling,
    SearchedModel,
    SearchRequest,
    Sources,
    TokensAndScores,
)
from .shapes import MIN_TEXTS_PER_BATCH, POSITIONS_PER_BATCH

# A nest of tensors.
Results = TypeVar("Results")

# Maximum number of batches of a request that run in parallel. Most operations of a search are too
# small to use several cores.
PARALLEL_SEARCHES = 4


class TranslationTensors(NamedTuple):
    """Translations of a batch of texts, best first.

    Attributes:
        texts: translations.
        scores: log probabilities divided by `((5 + length) / 6) ** length_penalty`. With a beam
            size of 1, the scores are log probabilities.
        token_ids: tokens of the translations, without prefixes and with end tokens, padded with 0.
        source_lengths: numbers of tokens in the sources.
        margins: margin of each text, see `decoding.margins`. None if they are not computed.
    """

    texts: Annotated[Tensor, "string (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    token_ids: Annotated[Tensor, "int32 (batch, n_best, length)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]
    margins: Annotated[Tensor, "float32 (batch,)"] | None = None


def search_tokens(
    searched: SearchedModel,
    source: Sources,
    max_lengths: Annotated[Tensor, "int32 (batch,)"],
    n_best: int = 1,
    prefix: Annotated[tf.RaggedTensor, "int32 (batch, None)"] | None = None,
    placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None = None,
    sampling: Sampling | None = None,
) -> FoundTokens:
    """Returns the tokens of the best translations of each text, padded with 0, and their scores.

    Args:
        searched: model and search settings. Its variables must already be read as tensors.
        source: source tokens with end tokens.
        max_lengths: maximum number of tokens in each translation, without its prefix.
        n_best: number of translations per text, at most the beam size, and 1 with sampling.
            Defaults to 1.
        prefix: tokens at the start of each translation. Defaults to None.
        placeholders: mask of the placeholders in each text. The translation contains each of them
            exactly once. Placeholders are the last tokens of the vocabulary. Defaults to None.
        sampling: options for sampling instead of search. Defaults to None.
    """
    width = tf.reduce_max(tf.concat([max_lengths, [1]], 0))
    request = SearchRequest(source, max_lengths, width, n_best, prefix, placeholders, sampling)
    # Prefixes and sampling are not compiled, see docs/compiling.md.
    if searched.compiled_functions is None or prefix is not None or sampling is not None:
        return FoundTokens(
            *_search_in_batches(
                searched, request, lambda rows: search_plain(searched, request, rows)
            )
        )
    weights = PackedTensors([variable.value for variable in searched.variables])

    def search_batch(rows: Tensor) -> TokensAndScores:
        def otherwise() -> TokensAndScores:
            return search_plain(searched, request, rows)

        return search_compiled(searched, request, rows, weights, otherwise)

    # A single text is a batch of its own. Without the loop over batches, a compiled search of it
    # launches about half as many operations. With several texts, there are no rows, which fit no
    # shape.
    single_text = tf.range(tf.cast(request.num_texts == 1, tf.int32))
    return FoundTokens(
        *search_compiled(
            searched,
            request,
            single_text,
            weights,
            otherwise=lambda: _search_in_batches(searched, request, search_batch),
        )
    )


def _search_in_batches(
    searched: SearchedModel,
    request: SearchRequest,
    search_batch: Callable[[Tensor], TokensAndScores],
) -> TokensAndScores:
    """Searches for the translations of a request in batches of texts of similar length."""
    num_texts, n_best = request.num_texts, request.n_best
    nothing: TokensAndScores = (
        tf.zeros([num_texts, n_best, request.width], tf.int32),
        tf.zeros([num_texts, n_best]),
    )
    if searched.with_margins:
        nothing += (tf.zeros([num_texts]),)
    return map_in_length_batches(
        search_batch,
        tf.cast(request.source.row_lengths(), tf.int32),
        searched.most_tokens(request.source),
        nothing,
        max_rows=tf.maximum((num_texts + 1) // 2, MIN_TEXTS_PER_BATCH),
        parallel_iterations=PARALLEL_SEARCHES,
    )


def map_in_length_batches(
    function: Callable[[Tensor], Results],
    lengths: Annotated[Tensor, "int32 (num_rows,)"],
    positions: Annotated[Tensor, "int32 (num_rows,)"],
    results: Results,
    max_rows: Dimension = POSITIONS_PER_BATCH,
    parallel_iterations: int = 1,
) -> Results:
    """Applies a function to the rows of a request in batches of similar length.

    In this way, a long text does not cause padding and extra steps for all other texts of the
    request. Results are in the order of the rows.

    Args:
        function: function that accepts row indices, int32 (n,), and returns a nest of tensors
            (n, ...).
        lengths: lengths by which rows are sorted, longest first.
        positions: number of positions that each row occupies in a batch of rows of the same length,
            at least 1. A longer row must not occupy fewer positions.
        results: nest of tensors (num_rows, ...) into which the results are written.
        max_rows: maximum number of rows in a batch. Defaults to 4096, so that only the number of
            positions limits a batch.
        parallel_iterations: maximum number of batches that run in parallel. Batches only run in
            parallel if `function` reads no variables. Defaults to 1.

    Returns:
        The nest `results` with the results of the function.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    num_rows = tf.size(order)

    def map_batch(begin: Tensor, results: Results) -> tuple[Tensor, Results]:
        size = tf.clip_by_value(POSITIONS_PER_BATCH // positions[order[begin]], 1, max_rows)
        end = tf.minimum(begin + size, num_rows)
        rows = order[begin:end]
        written = tf.nest.map_structure(
            lambda all, some: tf.tensor_scatter_nd_update(all, rows[:, None], some),
            results,
            function(rows),
        )
        return end, written

    _, results = tf.while_loop(
        lambda begin, _: begin < num_rows,
        map_batch,
        (tf.constant(0), results),
        parallel_iterations=parallel_iterations,
    )
    return results
