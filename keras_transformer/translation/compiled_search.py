"""The search of a batch as a program that XLA compiles, for each of a few shapes.

A step of a search is more than a hundred small operations, and starting them takes longer than
computing them. A program starts once. Its tensors have fixed sizes, so that a batch is padded to
the sizes of a program. A batch that is too large for every program, or fills less than half of one,
uses the plain search.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..tensors import Tensor, last_size
from ..tokenizers import Tokenizer
from .search import SearchedModel, Sources, constraints_of, search_hypotheses

# The most candidates of a program besides those that any translation may have.
_MOST_LISTED = 4096
# A request of more batches of the largest size than this is divided as for the plain search.
_MOST_BATCHES = 4
# Larger than any size.
_NO_SIZE = 2**30

TokensAndScores = tuple[
    Annotated[Tensor, "int32 (n, n_best, length)"], Annotated[Tensor, "float32 (n, n_best)"]
]


class SearchShapes(NamedTuple):
    """The shapes for which searches are compiled: every length with every number of texts.

    Attributes:
        lengths: tokens of the longest source of a batch, with its end token.
        batch_sizes: texts of a batch.
    """

    lengths: tuple[int, ...] = (16, 24, 32, 48, 64)
    batch_sizes: tuple[int, ...] = (1, 16)

    def up_to(self, max_length: int) -> "SearchShapes":
        """Returns the shapes for a model, sorted: it reads no source beyond `max_length`."""
        lengths = {min(length, max_length) for length in self.lengths}
        return SearchShapes(tuple(sorted(lengths)), tuple(sorted(set(self.batch_sizes))))


class CompiledSearch:
    """Searches the batches that fit a shape by a program.

    The signatures of a SavedModel share one function for each number of translations and set of
    inputs. TensorFlow compiles it once for each shape that it is called with.

    Args:
        searched: the model.
        variables: the variables that the model reads. A program takes their values as arguments,
            so that several may run side by side.
        shapes: of the programs.
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

    def max_rows(self, num_texts: Tensor, otherwise: Tensor) -> Tensor:
        """Returns the most texts of a batch.

        A request of many texts is not divided into batches of a program's size: a large batch in
        the plain search is faster than many small ones.

        Args:
            num_texts: of the request.
            otherwise: the most texts of a batch of the plain search.
        """
        largest = max(self.shapes.batch_sizes)
        return tf.where(num_texts <= _MOST_BATCHES * largest, largest, otherwise)

    def with_fallback(
        self,
        plain: Callable[[Tensor], TokensAndScores],
        source: Sources,
        max_lengths: Annotated[Tensor, "int32 (batch,)"],
        n_best: int,
        placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None,
        width: Tensor,
    ) -> Callable[[Tensor], TokensAndScores]:
        """Returns a function like `plain`, which it calls for batches that fit no shape.

        Args:
            plain: takes row numbers, int32 (n,), and returns tokens, padded to `width`, and scores.
            source: see `search_tokens`, which also explains `max_lengths`, `n_best` and
                `placeholders`.
            width: int32 (). The length that the tokens of all batches are padded to.
        """
        searched = self._searched
        lengths = tf.cast(source.row_lengths(), tf.int32)

        def search_batch(rows: Tensor) -> TokensAndScores:
            num_rows = tf.size(rows)
            length = _smallest(self.shapes.lengths, tf.reduce_max(tf.gather(lengths, rows)))
            batch = _smallest(self.shapes.batch_sizes, num_rows)
            # A batch that fills less than half of a program is faster in the plain search. A batch
            # of more texts than any program fails this test too: its size is _NO_SIZE.
            fits = (length < _NO_SIZE) & (batch <= 2 * num_rows)
            # Small sizes where no program fits: with _NO_SIZE, the products below would overflow.
            length = tf.where(fits, length, 1)
            batch = tf.where(fits, batch, num_rows)
            limits = tf.gather(max_lengths, rows)
            # Placeholders may raise a limit above what a program has room for.
            fits &= tf.reduce_max(limits) <= self._most_tokens(length)
            source_ids = tf.gather(source, rows).to_tensor()
            candidates = None
            if searched.candidates is not None:
                candidates = searched.candidates.of(source_ids, None)
                table = searched.candidates.by_source
                num_listed = tf.minimum(batch * length * table.shape[1], _MOST_LISTED)
                num_places = tf.minimum(
                    searched.candidates.always.shape[0] + num_listed, searched.candidates.vocab_size
                )
                fits &= tf.size(candidates) <= num_places

            def compiled() -> TokensAndScores:
                missing = batch - num_rows
                inputs = {
                    "source": tf.pad(
                        source_ids, [[0, missing], [0, length - tf.shape(source_ids)[1]]]
                    ),
                    # A row of padding is finished before the first step.
                    "max_lengths": tf.pad(limits, [[0, missing]]),
                }
                if placeholders is not None:
                    inputs["placeholders"] = tf.pad(
                        tf.gather(placeholders, rows), [[0, missing], [0, 0]]
                    )
                if candidates is not None:
                    inputs["candidates"] = self._with_fillers(candidates, num_places)
                    inputs["num_candidates"] = tf.size(candidates)
                weights = [variable.value for variable in self._variables]
                token_ids, scores = self._function(n_best, inputs)(inputs, weights)
                token_ids = token_ids[:num_rows, :, :width]
                room = width - tf.shape(token_ids)[2]
                return tf.pad(token_ids, [[0, 0], [0, 0], [0, room]]), scores[:num_rows]

            return tf.cond(fits, compiled, lambda: plain(rows))

        return search_batch

    def _most_tokens(self, length: Tensor) -> Tensor:
        """The most tokens of the translations of sources of a length."""
        decoding, config = self._searched.decoding, self._searched.model.config
        return tf.minimum(length + decoding.max_extra_tokens, config.max_length)

    @property
    def _num_placeholders(self) -> int:
        """How many of the candidates are placeholders; these are the last ones."""
        candidates = self._searched.candidates
        return 0 if candidates is None else candidates.num_also

    def _with_fillers(self, candidates: Tensor, num_places: Tensor) -> Tensor:
        """Returns candidates for a program's number of places, with fillers before placeholders.

        A filler repeats the candidate before it: `Constraints` finds a token by its first place in
        an ascending list, which is then the token's own.
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
            if "placeholders" in specs:
                specs["placeholders"] = tf.TensorSpec(
                    [None, inputs["placeholders"].shape[1]], tf.bool
                )
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
        searched = self._searched
        candidates = inputs.get("candidates")
        options: dict[str, Any] = {}
        if candidates is not None:
            options["candidates"] = candidates
        if searched.output_projection is not None:
            options["output_projection"] = searched.output_projection
        max_length = self._most_tokens(tf.shape(inputs["source"])[1])
        values = list(zip(self._variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=values):
            step, state = searched.model.start_decoding(
                inputs["source"],
                searched.decoding.beam_size,
                max_length=max_length,
                **options,
            )
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
            )
        return hypotheses.token_ids, hypotheses.scores

    def _forbid_fillers(self, step: Any, inputs: dict[str, Tensor]) -> Any:
        """Returns a step that forbids the fillers among the candidates."""
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


def _smallest(sizes: Sequence[int], needed: Tensor) -> Tensor:
    """Returns the smallest size that is large enough, or `_NO_SIZE`."""
    known = tf.constant(sorted(sizes), tf.int32)
    return tf.reduce_min(tf.where(known >= needed, known, _NO_SIZE))
