"""Search compiled by XLA for a few batch shapes.

A search step launches more than a hundred small operations, and launching them takes longer than
computing them. A compiled search is launched only once. Its tensor shapes are fixed, so each batch
is padded to a compiled shape. A batch that fits no shape, or that would fill less than half of one,
uses the plain search.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..checks import integer, require
from ..decoding import Growth, Step
from ..tensors import Tensor, last_size
from ..tokenizers import Tokenizer
from .executor import PackedTensors, only_if
from .search import (
    MIN_TEXTS_PER_BATCH,
    POSITIONS_PER_BATCH,
    Candidates,
    SearchedModel,
    Sources,
    TokensAndScores,
    constraints_of,
    search_hypotheses,
)

# A compiled search has room for all candidates of this many different source tokens.
_MIN_SOURCE_TOKENS = 4
# Otherwise, it has at most this many candidates in addition to those that every search has.
_MOST_ADDED = 4096
# Greater than any size.
_NO_SIZE = 2**30

PlainSearch = Callable[[], TokensAndScores]


class SearchShapes(NamedTuple):
    """Shapes of compiled searches: all combinations of lengths and batch sizes.

    Attributes:
        lengths: numbers of tokens in the longest source of a batch, including its end token.
        batch_sizes: numbers of texts in a batch. Single texts benefit most: a plain search of a
            large batch launches few operations per text, and drops finished texts.
    """

    lengths: tuple[int, ...] = (16, 24, 32, 48, 64)
    batch_sizes: tuple[int, ...] = (1,)

    def up_to(self, max_length: int) -> "SearchShapes":
        """Checks the sizes, and returns sorted shapes for sources of at most `max_length` tokens.

        Raises:
            ConfigError: If a size is not positive, or a batch size is more than 16.
        """
        for name, sizes, at_most in (
            ("lengths", self.lengths, None),
            ("batch_sizes", self.batch_sizes, MIN_TEXTS_PER_BATCH),
        ):
            require(len(sizes) > 0, name, "at least one size", list(sizes))
            for place, size in enumerate(sizes):
                integer(f"{name}[{place}]", size, at_least=1, at_most=at_most)
        lengths = {min(length, max_length) for length in self.lengths}
        return SearchShapes(tuple(sorted(lengths)), tuple(sorted(set(self.batch_sizes))))


class CompiledSearch:
    """Compiled search for batches that fit a shape.

    The signatures of a SavedModel share a function for every combination of `n_best` and inputs.
    TensorFlow compiles the function once for every shape.

    Args:
        searched: model and search settings.
        variables: variables that the model reads. The compiled function takes their values as
            arguments, so that several searches can run in parallel.
        shapes: shapes to compile.
    """

    def __init__(
        self,
        searched: SearchedModel,
        variables: Sequence[keras.Variable],
        shapes: SearchShapes,
    ) -> None:
        self._searched = searched
        self._variables = list(variables)
        self.shapes = shapes
        self._functions: dict[tuple[object, ...], Callable[..., TokensAndScores]] = {}

    def with_fallback(
        self,
        source: Sources,
        max_lengths: Annotated[Tensor, "int32 (batch,)"],
        n_best: int,
        placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None,
        width: Tensor,
    ) -> Callable[[PlainSearch, Tensor], TokensAndScores]:
        """Returns a function that runs the compiled search, or a plain search if no shape fits.

        The function accepts a plain search, which it calls without arguments inside `only_if`, and
        the rows of a batch, int32 (n,). Both searches return tokens, padded to `width`, and scores.
        Without rows, it runs the plain search, and `search_tokens` uses this for several texts.

        Args:
            source: see `search_tokens`, also for `max_lengths`, `n_best` and `placeholders`.
            width: int32 (). Length to which the tokens of all batches are padded.
        """
        searched = self._searched
        lengths = tf.constant(self.shapes.lengths, tf.int32)
        batch_sizes = tf.constant(self.shapes.batch_sizes, tf.int32)
        weights = PackedTensors([variable.value for variable in self._variables])

        def search_batch(plain: PlainSearch, rows: Tensor) -> TokensAndScores:
            num_rows = tf.size(rows)
            batch = _smallest(batch_sizes, batch_sizes >= num_rows)
            # A batch that fills less than half of a shape is faster in the plain search. If a batch
            # has more texts than any shape, its size is _NO_SIZE, which fails this test too.
            fits = batch <= 2 * num_rows
            # _NO_SIZE would overflow in the products below.
            batch = tf.where(fits, batch, num_rows)
            source_ids = tf.gather(source, rows).to_tensor()
            limits = tf.gather(max_lengths, rows)
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
                    "source": tf.pad(
                        source_ids, [[0, missing], [0, length - tf.shape(source_ids)[1]]]
                    ),
                    # Padding rows have a limit of 0, so they are finished before the first step.
                    "max_lengths": tf.pad(limits, [[0, missing]]),
                }
                if placeholders is not None:
                    inputs["placeholders"] = tf.pad(
                        tf.gather(placeholders, rows), [[0, missing], [0, 0]]
                    )
                if searched.candidates is not None and candidates is not None:
                    inputs["candidates"] = self._with_fillers(
                        candidates, num_places(searched.candidates, batch * length)
                    )
                    inputs["num_candidates"] = tf.size(candidates)
                token_ids, scores = self._function(n_best, inputs)(inputs, weights.unpack())
                token_ids = token_ids[:num_rows, :, :width]
                room = width - tf.shape(token_ids)[2]
                return tf.pad(token_ids, [[0, 0], [0, 0], [0, room]]), scores[:num_rows]

            def nothing() -> TokensAndScores:
                return tf.zeros([num_rows, n_best, width], tf.int32), tf.zeros([num_rows, n_best])

            def plain_with_weights() -> TokensAndScores:
                values = list(zip(self._variables, weights.unpack(), strict=True))
                with keras.StatelessScope(state_mapping=values):
                    return plain()

            # A compiled search is a single operation, which may be in a condition. The plain search
            # must not be in one, see `only_if`.
            return only_if(~fits, plain_with_weights, tf.cond(fits, compiled, nothing))

        return search_batch

    @property
    def _num_placeholders(self) -> int:
        """The number of placeholders, which are the last candidates."""
        candidates = self._searched.candidates
        return 0 if candidates is None else candidates.num_also

    def _with_fillers(self, candidates: Tensor, num_places: Tensor) -> Tensor:
        """Pads candidates to the size of a compiled search, with fillers before placeholders.

        A filler repeats the preceding candidate. `Constraints` looks up a token by its first
        position in the ascending list, which is still correct.
        """
        missing = num_places - tf.size(candidates)
        places = tf.range(num_places)
        first_filler = tf.size(candidates) - self._num_placeholders
        return tf.gather(
            candidates,
            tf.where(places < first_filler, places, tf.maximum(places - missing, first_filler - 1)),
        )

    def _function(self, n_best: int, inputs: dict[str, Tensor]) -> Callable[..., TokensAndScores]:
        key = (n_best, tuple(inputs))
        if key not in self._functions:
            specs = {
                name: tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)
                for name, tensor in inputs.items()
            }
            if "placeholders" in inputs:
                num_placeholders = inputs["placeholders"].shape[1]
                specs["placeholders"] = tf.TensorSpec([None, num_placeholders], tf.bool)
            weights = [
                tf.TensorSpec(variable.shape, variable.dtype) for variable in self._variables
            ]
            self._functions[key] = tf.function(
                lambda inputs, weights: self._search(n_best, inputs, weights),
                input_signature=[specs, weights],
                autograph=False,
                jit_compile=True,
            )
        return self._functions[key]

    def _search(
        self, n_best: int, inputs: dict[str, Tensor], weights: Sequence[Tensor]
    ) -> TokensAndScores:
        """Searches in a graph whose shapes are all known when it is compiled.

        Search settings are constants of the graph, and sequences that are finished stay in it. With
        candidates, the search computes with their places in the list, and fillers have logits of
        -inf.
        """
        searched = self._searched
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

        values = list(zip(self._variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=values):
            # Few translations are much longer than their sources, so start with a small state. XLA
            # merges the equal computations of both states.
            num_first_steps = tf.minimum(length, max_length)
            step, state = start(num_first_steps)
            _, full_state = start(max_length)
            if candidates is not None:
                step = self._forbid_fillers(step, inputs)
            hypotheses = search_hypotheses(
                searched.decoding,
                step,
                state,
                inputs["max_lengths"],
                n_best,
                max_length=max_length,
                start_id=Tokenizer.start_id,
                end_id=Tokenizer.end_id,
                constraints=constraints_of(
                    searched.decoding, inputs.get("placeholders"), candidates
                ),
                growth=Growth(num_first_steps, functools.partial(_with_values_of, full_state)),
            )
        return hypotheses.token_ids, hypotheses.scores

    def _forbid_fillers(self, step: Any, inputs: dict[str, Tensor]) -> Any:
        """Returns a step function that masks the logits of fillers."""
        num_places = last_size(inputs["candidates"])
        places = tf.range(num_places)
        is_filler = (places >= inputs["num_candidates"] - self._num_placeholders) & (
            places < num_places - self._num_placeholders
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
