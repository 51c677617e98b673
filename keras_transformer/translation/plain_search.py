"""Searches for the translations of a batch with ordinary operations, for batches of any size."""

from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from ..config import DecodingConfig
from ..decoding import Constraints, beam_search, forced_search, greedy_search, sample
from ..decoding.protocol import Hypotheses, Step
from ..tensors import Tensor
from ..tokenizers import Tokenizer
from .searched_model import Sampling, SearchedModel, SearchRequest, TokensAndScores

# Token ids for the values of `decoding.forbidden_tokens`.
_FORBIDDEN_IDS: dict[str, tuple[int, ...]] = {
    "none": (),
    "special": (Tokenizer.pad_id, Tokenizer.start_id),
    "unknown": (Tokenizer.pad_id, Tokenizer.start_id, Tokenizer.unk_id),
}


def search_plain(
    searched: SearchedModel, request: SearchRequest, rows: Annotated[Tensor, "int32 (n,)"]
) -> TokensAndScores:
    """Searches for the translations of a batch: these rows of the request."""
    inputs = {
        "source": tf.gather(request.source, rows).to_tensor(),
        "max_lengths": tf.gather(request.max_lengths, rows),
        "width": request.width,
    }
    if request.prefix is not None:
        starts = tf.fill([tf.size(rows), 1], Tokenizer.start_id)
        beginnings = tf.concat([starts, tf.gather(request.prefix, rows)], axis=1)
        # Align prefixes at their ends, with -1 in front of shorter prefixes.
        inputs["start_ids"] = tf.reverse(beginnings[:, ::-1].to_tensor(-1), [1])
    if request.placeholders is not None:
        inputs["placeholders"] = tf.gather(request.placeholders, rows)
    sampling = request.sampling
    if sampling is not None:
        inputs["rows"] = rows + sampling.first_row
    if searched.known_tokens is not None:
        inputs["known_tokens"] = tf.gather(searched.known_tokens, rows)

    def search_inputs(inputs: dict[str, Tensor]) -> TokensAndScores:
        return _search_inputs(searched, request.n_best, sampling, inputs)

    # Sampling is not part of any SavedModel.
    if searched.batch_functions is None or sampling is not None:
        return search_inputs(inputs)
    return searched.batch_functions.call(request.n_best, search_inputs, inputs)


def _search_inputs(
    searched: SearchedModel, n_best: int, sampling: Sampling | None, inputs: dict[str, Tensor]
) -> TokensAndScores:
    """Returns the tokens of the best translations of each text in a batch, and their scores.

    Args:
        searched: see `search_tokens`, also for `n_best` and `sampling`.
        inputs: tensors by name: "source", int32 (batch, length), "max_lengths", and "width", the
            length to which the tokens are padded; "start_ids", the start token and the prefix of
            each text, with prefixes; "placeholders" with placeholders; "rows", the numbers of the
            texts, with sampling; "known_tokens", int32 (batch, n_best, width), if they are known.
    """
    decoding = searched.decoding
    if "known_tokens" in inputs:
        return _score_known_tokens(searched, n_best, inputs)
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


def _score_known_tokens(
    searched: SearchedModel, n_best: int, inputs: dict[str, Tensor]
) -> TokensAndScores:
    """Returns the known tokens of each text in a batch, and their scores.

    The score is -inf if the search cannot find the tokens. See `_search_inputs` for the arguments.
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

    See `_search_inputs` for the arguments.
    """
    start_ids: Any = inputs.get("start_ids", Tokenizer.start_id)
    options: dict[str, Any] = {}
    if "start_ids" in inputs:
        options["prefix"] = start_ids[:, :-1]
    if searched.candidates is not None:
        options["candidates"] = searched.candidates.of(inputs["source"], inputs.get("start_ids"))
    if searched.output_projection is not None:
        options["output_projection"] = searched.output_projection
    step, state = searched.model.start_decoding(inputs["source"], beam_size, **options)
    constraints = constraints_of(
        searched.decoding, inputs.get("placeholders"), options.get("candidates")
    )
    arguments = dict(
        max_lengths=inputs["max_lengths"],
        max_length=tf.reduce_max(inputs["max_lengths"]),
        start_ids=start_ids,
        end_ids=Tokenizer.end_id,
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
