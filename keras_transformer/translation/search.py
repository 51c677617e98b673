"""Searches for or samples translations of tokenized sources, inside the TensorFlow graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from ..checks import integer
from ..config import DecodingConfig, TransformerConfig
from ..decoding import Constraints, Decodable, beam_search, forced_search, greedy_search, sample
from ..decoding.protocol import Hypotheses, Step
from ..decoding.sampling import check_sampling
from ..model_dir.shortlist_file import Shortlist
from ..tensors import Dimension, Tensor
from ..tokenizers import Tokenizer
from .executor import BatchFunctions, TracedFunctions

if TYPE_CHECKING:
    from .compiled_search import CompiledSearch

Sources = Annotated[tf.RaggedTensor, "int32 (batch, None)"]
# The fields of `FoundTokens`. Margins are left out if they are not computed.
TokensAndScores = tuple[Tensor, ...]
# A nest of tensors.
Results = TypeVar("Results")

# Maximum number of positions, including padding, in a batch. It limits the memory of a batch. A
# batch with a single text may have more positions.
POSITIONS_PER_BATCH = 4096
# Maximum number of batches of a request that run in parallel. Most operations of a search are too
# small to use several cores.
PARALLEL_SEARCHES = 4
# Requests with more texts than this are divided into at least two batches, to use two cores.
MIN_TEXTS_PER_BATCH = 16
# Token ids for the values of `decoding.forbidden_tokens`.
_FORBIDDEN_IDS: dict[str, tuple[int, ...]] = {
    "none": (),
    "special": (Tokenizer.pad_id, Tokenizer.start_id),
    "unknown": (Tokenizer.pad_id, Tokenizer.start_id, Tokenizer.unk_id),
}


class TranslationModel(Decodable, Protocol):
    """Protocol of models for a translator."""

    @property
    def config(self) -> TransformerConfig: ...

    @property
    def weights(self) -> list[keras.Variable]: ...


class Sampling(NamedTuple):
    """Options for random sampling of translations, see `keras_transformer.decoding.sample`.

    If an attribute is a tensor, it is an input of the graph.

    Attributes:
        seed: random seed. Only its low 32 bits are used. The same seed returns the same
            translations.
        temperature: values below 1 favor probable tokens, and values above 1 increase variety.
            Defaults to 1.
        top_k: number of most probable tokens to sample from. Defaults to None: all tokens.
        top_p: cumulative probability of the most probable tokens to sample from. Defaults to None,
            which is the same as 1.
        first_row: number of the first text. The samples for a text depend only on the seed and the
            number of the text. Defaults to 0.
    """

    seed: int | Tensor
    temperature: float | Tensor = 1.0
    top_k: int | None = None
    top_p: float | Tensor | None = None
    first_row: int | Tensor = 0

    def inputs(self) -> dict[str, Tensor]:
        """Checks the values and returns the inputs of a graph as tensors."""
        integer("seed", self.seed)
        integer("first_row", self.first_row, at_least=0, at_most=2**31 - 1)
        check_sampling(self.temperature, self.top_k, self.top_p)
        # Seeds of 2**31 or more become negative in int32.
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


class FoundTokens(NamedTuple):
    """Tokens of the translations of a batch of texts, best first. See `Translations`.

    Attributes:
        token_ids: tokens.
        scores: scores.
        margins: margin of each text, see `decoding.margins`. None if they are not computed.
    """

    token_ids: Annotated[Tensor, "int32 (batch, n_best, length)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    margins: Annotated[Tensor, "float32 (batch,)"] | None = None


class Candidates:
    """Shortlist of target tokens, stored in variables.

    Args:
        shortlist: the shortlist.
        vocab_size: number of target tokens.
        also: ids of additional tokens that may occur in any translation.
    """

    def __init__(self, shortlist: Shortlist, vocab_size: int, also: range) -> None:
        self.vocab_size = vocab_size
        self.num_also = len(also)
        self.by_source = keras.Variable(
            shortlist.by_source, trainable=False, dtype="int32", name="by_source"
        )
        always = np.union1d(shortlist.always, [*also])
        self.always = keras.Variable(always, trainable=False, dtype="int32", name="always")
        # A source token adds this many tokens on average to those that may always occur.
        is_added = ~np.isin(shortlist.by_source, always)
        self.mean_num_added = float(is_added.sum(axis=1).mean())

    def of(
        self,
        source: Annotated[Tensor, "int32 (batch, source length)"],
        prefix: Annotated[Tensor, "int32 (batch, prefix length)"] | None,
    ) -> Annotated[Tensor, "int32 (number of candidates,)"]:
        """Returns the tokens that may occur in the translations of a batch, in ascending order.

        They include the tokens of prefixes.
        """
        parts = [self.always.value, tf.reshape(tf.gather(self.by_source.value, source), [-1])]
        if prefix is not None:
            parts.append(tf.maximum(tf.reshape(prefix, [-1]), Tokenizer.pad_id))
        token_ids = tf.concat(parts, 0)
        # Counting is faster than sorting.
        counts = tf.math.unsorted_segment_sum(tf.ones_like(token_ids), token_ids, self.vocab_size)
        return tf.cast(tf.where(counts > 0)[:, 0], tf.int32)


class SearchedModel(NamedTuple):
    """A model with its search settings.

    Attributes:
        model: the model.
        decoding: search settings.
        candidates: tokens that may occur in translations. None for all tokens.
        output_projection: layer that computes the logits. Defaults to None: the model's layer.
        compiled: compiled search for batches that fit its shapes. Defaults to None.
        batch_functions: functions in which the plain search of each batch runs. Defaults to None:
            it is a part of the graph.
        with_margins: whether to compute margins, see `decoding.margins`. Not supported by compiled
            searches. Defaults to False.
        known_tokens: tokens of the translations of all texts, or -1 for missing translations. They
            are not searched for: their scores are computed, -inf if the search cannot find them.
            Defaults to None.
    """

    model: TranslationModel
    decoding: DecodingConfig
    candidates: Candidates | None
    output_projection: keras.layers.Layer | None = None
    compiled: "CompiledSearch | None" = None
    batch_functions: BatchFunctions | TracedFunctions | None = None
    with_margins: bool = False
    known_tokens: Annotated[Tensor, "int32 (num_texts, n_best, length)"] | None = None

    def most_tokens(self, source: Sources) -> Annotated[Tensor, "int32 (batch,)"]:
        """Returns the maximum length of each translation, including its prefix and end token."""
        return self.most_tokens_of(tf.cast(source.row_lengths(), tf.int32))

    def most_tokens_of(self, lengths: Annotated[Tensor, "int32"]) -> Annotated[Tensor, "int32"]:
        """Returns the maximum lengths of translations of sources with these numbers of tokens."""
        return tf.minimum(lengths + self.decoding.max_extra_tokens, self.model.config.max_length)


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
    num_texts = source.nrows(tf.int32)
    width = tf.reduce_max(tf.concat([max_lengths, [1]], 0))
    # Sampling is not part of any SavedModel.
    functions = None if sampling is not None else searched.batch_functions

    def search_inputs(inputs: dict[str, Tensor]) -> TokensAndScores:
        return _search_batch(searched, n_best, sampling, inputs)

    def search_batch(rows: Tensor) -> TokensAndScores:
        inputs = {
            "source": tf.gather(source, rows).to_tensor(),
            "max_lengths": tf.gather(max_lengths, rows),
            "width": width,
        }
        if prefix is not None:
            starts = tf.fill([tf.size(rows), 1], Tokenizer.start_id)
            beginnings = tf.concat([starts, tf.gather(prefix, rows)], axis=1)
            # Align prefixes at their ends, with -1 in front of shorter prefixes.
            inputs["start_id"] = tf.reverse(beginnings[:, ::-1].to_tensor(-1), [1])
        if placeholders is not None:
            inputs["placeholders"] = tf.gather(placeholders, rows)
        if sampling is not None:
            inputs["rows"] = rows + sampling.first_row
        if searched.known_tokens is not None:
            inputs["known_tokens"] = tf.gather(searched.known_tokens, rows)
        if functions is None:
            return search_inputs(inputs)
        return functions.call(n_best, search_inputs, inputs)

    compiled = searched.compiled
    # Prefixes and sampling are not compiled, see docs/compiling.md.
    if prefix is not None or sampling is not None:
        compiled = None
    if compiled is not None:
        with_fallback = compiled.with_fallback(source, max_lengths, n_best, placeholders, width)

    def search_rows(rows: Tensor) -> TokensAndScores:
        if compiled is None:
            return search_batch(rows)
        return with_fallback(lambda: search_batch(rows), rows)

    nothing: TokensAndScores = (
        tf.zeros([num_texts, n_best, width], tf.int32),
        tf.zeros([num_texts, n_best]),
    )
    if searched.with_margins:
        nothing += (tf.zeros([num_texts]),)

    def search_all() -> TokensAndScores:
        return map_in_length_batches(
            search_rows,
            tf.cast(source.row_lengths(), tf.int32),
            searched.most_tokens(source),
            nothing,
            max_rows=tf.maximum((num_texts + 1) // 2, MIN_TEXTS_PER_BATCH),
            parallel_iterations=PARALLEL_SEARCHES,
        )

    if compiled is None:
        return FoundTokens(*search_all())
    # A single text is a batch of its own. Without the loop over batches, a compiled search of it
    # launches about half as many operations.
    single_text = tf.range(tf.cast(num_texts == 1, tf.int32))
    return FoundTokens(*with_fallback(search_all, single_text))


def _search_batch(
    searched: SearchedModel, n_best: int, sampling: Sampling | None, inputs: dict[str, Tensor]
) -> TokensAndScores:
    """Returns the tokens of the best translations of each text in a batch, and their scores.

    Args:
        searched: see `search_tokens`, also for `n_best` and `sampling`.
        inputs: tensors by name: "source", int32 (batch, length), "max_lengths", and "width", the
            length to which the tokens are padded; "start_id", the start token and the prefix of
            each text, with prefixes; "placeholders" with placeholders; "rows", the numbers of the
            texts, with sampling; "known_tokens", int32 (batch, n_best, width), if they are known.
    """
    decoding = searched.decoding
    if "known_tokens" in inputs:
        return _score_batch(searched, n_best, inputs)
    step, state, arguments = _start_search(searched, 1 if sampling else decoding.beam_size, inputs)
    if sampling:
        hypotheses = sample(
            step,
            state,
            rows=inputs["rows"],
            seed=sampling.seed,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            **arguments,
        )
    else:
        arguments["with_margins"] = searched.with_margins
        hypotheses = search_hypotheses(decoding, step, state, n_best=n_best, **arguments)
    padding = [[0, 0], [0, 0], [0, inputs["width"] - tf.shape(hypotheses.token_ids)[2]]]
    results = tf.pad(hypotheses.token_ids, padding), hypotheses.scores
    return results if hypotheses.margins is None else (*results, hypotheses.margins)


def _score_batch(
    searched: SearchedModel, n_best: int, inputs: dict[str, Tensor]
) -> TokensAndScores:
    """Returns the known tokens of each text in a batch, and their scores.

    The score is -inf if the search cannot find the tokens. See `_search_batch` for the arguments.
    """
    width = inputs["width"]
    known_tokens = tf.reshape(inputs["known_tokens"], [-1, width])
    token_ids = tf.maximum(known_tokens, Tokenizer.pad_id)
    # A row for each translation.
    rows = {
        name: tf.repeat(tensor, n_best, axis=0)
        for name, tensor in inputs.items()
        if name not in ("width", "known_tokens")
    }
    step, state, arguments = _start_search(searched, 1, rows)
    decoding = searched.decoding
    hypotheses = forced_search(
        step,
        state,
        token_ids[:, : arguments["max_length"]],
        length_penalty=decoding.length_penalty if decoding.beam_size > 1 else 0.0,
        **arguments,
    )
    found = tf.pad(hypotheses.token_ids[:, 0], [[0, 0], [0, width - arguments["max_length"]]])
    is_found = tf.reduce_all(found == known_tokens, axis=1, keepdims=True)
    scores = tf.where(is_found, hypotheses.scores, -np.inf)
    return tf.reshape(token_ids, [-1, n_best, width]), tf.reshape(scores, [-1, n_best])


def _start_search(
    searched: SearchedModel, beam_size: int, inputs: dict[str, Tensor]
) -> tuple[Step[Any], Any, dict[str, Any]]:
    """Returns the step function, its first state, and arguments of all searches of a batch.

    See `_search_batch` for the arguments.
    """
    start_id: Any = inputs.get("start_id", Tokenizer.start_id)
    options: dict[str, Any] = {}
    if "start_id" in inputs:
        options["prefix"] = start_id[:, :-1]
    if searched.candidates is not None:
        options["candidates"] = searched.candidates.of(inputs["source"], inputs.get("start_id"))
    if searched.output_projection is not None:
        options["output_projection"] = searched.output_projection
    step, state = searched.model.start_decoding(inputs["source"], beam_size, **options)
    constraints = constraints_of(
        searched.decoding, inputs.get("placeholders"), options.get("candidates")
    )
    arguments = dict(
        max_lengths=inputs["max_lengths"],
        max_length=tf.reduce_max(inputs["max_lengths"]),
        start_id=start_id,
        end_id=Tokenizer.end_id,
        constraints=constraints,
        drop_finished=True,
    )
    return step, state, arguments


def constraints_of(
    decoding: DecodingConfig,
    exactly_once: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None,
) -> Constraints:
    """Returns the constraints for a search, see `Constraints`."""
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
    """Runs greedy search if the beam size is 1, otherwise beam search. See `beam_search`."""
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
