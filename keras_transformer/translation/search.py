"""Searches translations of tokenized sources, or draws them at random, in the TensorFlow graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from ..checks import integer
from ..config import DecodingConfig, TransformerConfig
from ..decoding import Constraints, Decodable, beam_search, greedy_search, sample
from ..decoding.protocol import Hypotheses, Step
from ..decoding.sampling import check_sampling
from ..model_dir.shortlist_file import Shortlist
from ..tensors import Dimension, Tensor
from ..tokenizers import Tokenizer

if TYPE_CHECKING:
    from .compiled_search import CompiledSearch

Sources = Annotated[tf.RaggedTensor, "int32 (batch, None)"]
# A nest of tensors.
Results = TypeVar("Results")

# The most positions of a batch, including padding, unless one text has more; bounds memory.
POSITIONS_PER_BATCH = 4096
# Batches of a request that may be searched side by side. Most operations of a search are too small
# to be shared among cores.
PARALLEL_SEARCHES = 4
# To use two cores, a request is divided in half, unless that makes batches smaller than this.
MIN_TEXTS_PER_BATCH = 16
# What `decoding.forbidden_tokens` stands for.
_FORBIDDEN_IDS: dict[str, tuple[int, ...]] = {
    "none": (),
    "special": (Tokenizer.pad_id, Tokenizer.start_id),
    "unknown": (Tokenizer.pad_id, Tokenizer.start_id, Tokenizer.unk_id),
}


class TranslationModel(Decodable, Protocol):
    """The part of a model that a translator uses."""

    @property
    def config(self) -> TransformerConfig: ...

    @property
    def weights(self) -> list[keras.Variable]: ...


class Sampling(NamedTuple):
    """How translations are drawn at random, see `keras_transformer.decoding.sample`.

    Tensors are inputs of a graph.

    Attributes:
        seed: of which 32 bits count. The same seed gives the same translations.
        temperature: below 1 for more probable tokens, above 1 for more variety.
        top_k: how many of the most probable tokens are drawn from. Defaults to None: all.
        top_p: the probability that the tokens that are drawn from have together. Defaults to None:
            1.
        first_row: the number of the first text. What is drawn for a text depends on the seed and
            its number alone.
    """

    seed: int | Tensor
    temperature: float | Tensor = 1.0
    top_k: int | None = None
    top_p: float | Tensor | None = None
    first_row: int | Tensor = 0

    def inputs(self) -> dict[str, Tensor]:
        """Checks the values and returns those that are inputs of a graph as tensors."""
        integer("seed", self.seed)
        integer("first_row", self.first_row, at_least=0, at_most=2**31 - 1)
        check_sampling(self.temperature, self.top_k, self.top_p)
        # As int32, a seed of 2**31 or more becomes negative.
        seed = np.array(int(cast(int, self.seed)) % 2**32, "uint32").astype("int32")
        inputs = {
            "seed": tf.constant(seed),
            "temperature": tf.constant(self.temperature, tf.float32),
            "first_row": tf.constant(self.first_row, tf.int32),
        }
        if self.top_p is not None:
            inputs["top_p"] = tf.constant(self.top_p, tf.float32)
        return inputs


class Translations(NamedTuple):
    """The translations that a search finds for every text, the best first.

    Attributes:
        scores: log probability divided by `((5 + length) / 6) ** length_penalty`; with a beam of 1,
            the log probability.
        token_ids: the tokens of the translations, after their prefixes and with end tokens, padded
            with 0.
    """

    texts: Annotated[Tensor, "string (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    token_ids: Annotated[Tensor, "int32 (batch, n_best, length)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]


class Candidates:
    """The tokens that translations may have: a shortlist, as variables.

    Args:
        vocab_size: the number of target tokens.
        also: ids of more tokens that any translation may have.
    """

    def __init__(self, shortlist: Shortlist, vocab_size: int, also: range) -> None:
        self.vocab_size = vocab_size
        self.num_also = len(also)
        self.by_source = keras.Variable(
            shortlist.by_source, trainable=False, dtype="int32", name="by_source"
        )
        always = np.union1d(shortlist.always, [*also])
        self.always = keras.Variable(always, trainable=False, dtype="int32", name="always")

    def of(
        self,
        source: Annotated[Tensor, "int32 (batch, source length)"],
        prefix: Annotated[Tensor, "int32 (batch, prefix length)"] | None,
    ) -> Annotated[Tensor, "int32 (number of candidates,)"]:
        """Returns the tokens that the translations of a batch may have, in ascending order.

        The tokens of prefixes are among them.
        """
        parts = [self.always.value, tf.reshape(tf.gather(self.by_source.value, source), [-1])]
        if prefix is not None:
            parts.append(tf.maximum(tf.reshape(prefix, [-1]), Tokenizer.pad_id))
        token_ids = tf.concat(parts, 0)
        # Counting is faster than sorting.
        counts = tf.math.unsorted_segment_sum(tf.ones_like(token_ids), token_ids, self.vocab_size)
        return tf.cast(tf.where(counts > 0)[:, 0], tf.int32)


class SearchedModel(NamedTuple):
    """A model with the settings of all its searches.

    Attributes:
        candidates: the tokens that translations may have; None for all.
        output_projection: computes the logits; None for the model's own.
        compiled: searches the batches that fit one of its shapes; None for no such search.
    """

    model: TranslationModel
    decoding: DecodingConfig
    candidates: Candidates | None
    output_projection: keras.layers.Layer | None = None
    compiled: "CompiledSearch | None" = None

    def most_tokens(self, source: Sources) -> Annotated[Tensor, "int32 (batch,)"]:
        """Returns how many tokens each translation may have, with its prefix and its end token."""
        lengths = tf.cast(source.row_lengths(), tf.int32)
        return tf.minimum(lengths + self.decoding.max_extra_tokens, self.model.config.max_length)


def search_tokens(
    searched: SearchedModel,
    source: Sources,
    max_lengths: Annotated[Tensor, "int32 (batch,)"],
    n_best: int = 1,
    prefix: Annotated[tf.RaggedTensor, "int32 (batch, None)"] | None = None,
    placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None = None,
    sampling: Sampling | None = None,
) -> tuple[
    Annotated[Tensor, "int32 (batch, n_best, length)"], Annotated[Tensor, "float32 (batch, n_best)"]
]:
    """Returns the tokens of the best translations of each text, padded with 0, and their scores.

    Args:
        searched: whose variables are read as tensors already.
        source: the tokens of each text, with end tokens.
        max_lengths: the most tokens of each translation, without its prefix.
        n_best: at most the beam size; 1 with sampling.
        prefix: the tokens that each translation begins with.
        placeholders: which placeholders each text has, and its translation exactly once. They are
            the last tokens of a vocabulary.
        sampling: for translations drawn at random instead of searched.
    """
    model, decoding, candidates, output_projection, compiled = searched
    beam_size = 1 if sampling else decoding.beam_size
    num_texts = source.nrows(tf.int32)
    width = tf.reduce_max(tf.concat([max_lengths, [1]], 0))

    def search_batch(rows: Tensor) -> tuple[Tensor, Tensor]:
        source_ids = tf.gather(source, rows).to_tensor()
        limits = tf.gather(max_lengths, rows)
        start_id: Any = Tokenizer.start_id
        options: dict[str, Any] = {}
        if prefix is not None:
            starts = tf.fill([tf.size(rows), 1], Tokenizer.start_id)
            beginnings = tf.concat([starts, tf.gather(prefix, rows)], axis=1)
            # Prefixes end together, with -1 before the shorter ones.
            start_id = tf.reverse(beginnings[:, ::-1].to_tensor(-1), [1])
            options["prefix"] = start_id[:, :-1]
        if candidates is not None:
            options["candidates"] = candidates.of(source_ids, None if prefix is None else start_id)
        if output_projection is not None:
            options["output_projection"] = output_projection
        step, state = model.start_decoding(source_ids, beam_size, **options)
        constraints = constraints_of(
            decoding,
            None if placeholders is None else tf.gather(placeholders, rows),
            options.get("candidates"),
        )
        arguments: dict[str, Any] = dict(
            max_length=tf.reduce_max(limits),
            start_id=start_id,
            end_id=Tokenizer.end_id,
            constraints=constraints,
            drop_finished=True,
        )
        if sampling:
            hypotheses = sample(
                step,
                state,
                limits,
                rows=rows + sampling.first_row,
                seed=sampling.seed,
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                **arguments,
            )
        else:
            hypotheses = search_hypotheses(decoding, step, state, limits, n_best, **arguments)
        padding = [[0, 0], [0, 0], [0, width - tf.shape(hypotheses.token_ids)[2]]]
        return tf.pad(hypotheses.token_ids, padding), hypotheses.scores

    function: Callable[[Tensor], tuple[Tensor, Tensor]] = search_batch
    if prefix is not None or sampling is not None:
        # These are not compiled; docs/compiling.md says why.
        compiled = None
    if compiled is not None:
        function = compiled.with_fallback(
            search_batch, source, max_lengths, n_best, placeholders, width
        )
    no_token_ids = tf.zeros([num_texts, n_best, width], tf.int32)
    no_scores = tf.zeros([num_texts, n_best])
    max_rows = tf.maximum((num_texts + 1) // 2, MIN_TEXTS_PER_BATCH)
    if compiled is not None:
        max_rows = compiled.max_rows(num_texts, otherwise=max_rows)
    return map_in_length_batches(
        function,
        tf.cast(source.row_lengths(), tf.int32),
        searched.most_tokens(source),
        (no_token_ids, no_scores),
        max_rows=max_rows,
        parallel_iterations=PARALLEL_SEARCHES,
    )


def constraints_of(
    decoding: DecodingConfig,
    exactly_once: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None,
) -> Constraints:
    """Returns the constraints of a search, see `Constraints`."""
    return Constraints(
        repetition_penalty=decoding.repetition_penalty,
        no_repeat_ngram_size=decoding.no_repeat_ngram_size,
        min_length=decoding.min_length,
        forbidden_ids=_FORBIDDEN_IDS[decoding.forbidden_tokens],
        exactly_once=exactly_once,
        candidates=candidates,
    )


def search_hypotheses(
    decoding: DecodingConfig,
    step: Step[Any],
    state: Any,
    max_lengths: Annotated[Tensor, "int32 (batch,)"],
    n_best: int,
    **arguments: Any,
) -> Hypotheses:
    """Searches by greedy or beam search, as the beam size says; see `beam_search`."""
    if decoding.beam_size == 1:
        return greedy_search(step, state, max_lengths, **arguments)
    return beam_search(
        step,
        state,
        max_lengths,
        beam_size=decoding.beam_size,
        length_penalty=decoding.length_penalty,
        n_best=n_best,
        **arguments,
    )


def map_in_length_batches(
    function: Callable[[Tensor], Results],
    lengths: Annotated[Tensor, "int32 (num_rows,)"],
    positions: Annotated[Tensor, "int32 (num_rows,)"],
    results: Results,
    max_rows: Dimension = POSITIONS_PER_BATCH,
    parallel_iterations: int = 1,
) -> Results:
    """Applies a function to the rows of a request in batches.

    Results are in the order of the rows. A batch has rows of similar length. One long text does not
    make all others of its request pay for padding, nor for the steps that it alone needs.

    Args:
        function: takes row numbers, int32 (n,), and returns a nest of tensors (n, ...).
        lengths: rows are sorted by it, the longest first.
        positions: what a row adds to a batch of its own length, at least 1; does not fall with the
            length.
        results: a nest of tensors (num_rows, ...) that the function's results are written into.
        max_rows: the most rows of a batch. Defaults to as many as fit, of one position each.
        parallel_iterations: how many batches may be computed side by side; they are only if
            `function` reads no variables.
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
