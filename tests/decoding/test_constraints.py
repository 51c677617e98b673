"""Constraints against NumPy: greedy search by steps, beam search exhaustively, sampling by its
numbers."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import as_lists

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample
from keras_transformer.decoding.random_numbers import uniform_numbers
from keras_transformer.errors import ConfigError

END, START, VOCAB_SIZE = 1, 0, 6
LOGITS = (
    np.random.default_rng(4).normal(0, 2, (VOCAB_SIZE, VOCAB_SIZE)).astype("float32")
)  # [previous][next]
CONSTRAINTS = [
    {},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"repetition_penalty": 2.0},
    {"min_length": 3},
    {"min_length": 4, "no_repeat_ngram_size": 2},
    {"min_length": 3, "forbidden_ids": [2]},
    {"min_length": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.7, "forbidden_ids": [3]},
    # Of tokens 4 and 5.
    {"exactly_once": [False, False]},
    {"exactly_once": [True, False]},
    {"exactly_once": [False, True], "min_length": 4},
    {
        "exactly_once": [True, True],
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.7,
        "forbidden_ids": [0],
    },
]


def step(token_ids, parents, position, state):
    return ops.take(LOGITS, token_ids, axis=0), state


def constraints_of(num_rows, exactly_once=None, **constraints):
    if exactly_once is not None:
        constraints["exactly_once"] = ops.convert_to_tensor([exactly_once] * num_rows)
    return Constraints(**constraints)


def allowed_log_probs(
    starts,
    tokens,
    max_length,
    no_repeat_ngram_size=0,
    min_length=0,
    repetition_penalty=1.0,
    forbidden_ids=(),
    exactly_once=None,
):
    """Log probabilities of the next token; and those of what may be chosen, -inf for the others."""
    seen = [token for token in (*starts, *tokens) if token >= 0]
    logits = LOGITS[seen[-1]].astype("float64")
    for token in set(seen):
        logits[token] = (
            logits[token] / repetition_penalty
            if logits[token] > 0
            else logits[token] * repetition_penalty
        )
    log_probs = logits - np.log(np.exp(logits).sum())
    n = no_repeat_ngram_size
    ngrams = {tuple(seen[i : i + n]) for i in range(len(seen) - n + 1)} if n else ()
    never = {token for token in range(VOCAB_SIZE) if n and tuple([*seen, token][-n:]) in ngrams} | {
        *forbidden_ids
    }
    if len(tokens) + 1 < min_length:
        never.add(END)
    if exactly_once is not None:
        special = range(VOCAB_SIZE - len(exactly_once), VOCAB_SIZE)
        missing = {token for token, is_required in zip(special, exactly_once) if is_required} - {
            *seen
        }
        never |= {*special} - missing
        if missing:
            never |= (
                {*range(VOCAB_SIZE)} - missing
                if len(missing) >= max_length - len(tokens)
                else {END}
            )
    return log_probs, np.where(np.isin(range(VOCAB_SIZE), [*never]), -np.inf, log_probs)


def greedy_reference(starts, max_length, **constraints):
    tokens, score = [], 0.0
    while len(tokens) < max_length and END not in tokens:
        _, allowed = allowed_log_probs(starts, tokens, max_length, **constraints)
        if allowed.max() == -np.inf:
            break
        tokens.append(int(allowed.argmax()))
        score += allowed.max()
    return [(pytest.approx(score, rel=1e-4), tokens)]


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("starts", [[[0], [2], [4]], [[-1, 3], [2, 4], [4, 4]], [[5, 4, 2]] * 3])
def test_greedy_search_is_the_best_of_what_is_allowed(constraints, starts):
    start_ids = ops.convert_to_tensor(starts, "int32")
    arguments = dict(
        max_length=9, start_ids=start_ids, end_ids=END, constraints=constraints_of(3, **constraints)
    )
    hypotheses = greedy_search(step, (), [9, 7, 2], **arguments)
    expected = [
        greedy_reference(start, limit, **constraints) for start, limit in zip(starts, (9, 7, 2))
    ]
    assert as_lists(hypotheses) == expected


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_a_beam_that_holds_all_finds_the_best_sequences_that_are_allowed(constraints):
    length, scores = 4, {}
    for tokens in itertools.product(range(VOCAB_SIZE), repeat=length):
        tokens = tokens[: tokens.index(END) + 1] if END in tokens else tokens
        if tokens not in scores:
            allowed = [
                allowed_log_probs([START], tokens[:i], length, **constraints)[1]
                for i in range(len(tokens))
            ]
            scores[tokens] = sum(log_probs[token] for log_probs, token in zip(allowed, tokens))
    best = sorted(score for score in scores.values() if score > -np.inf)[::-1][:6]
    hypotheses = beam_search(
        step, (), [length], max_length=length, start_ids=START, end_ids=END,
        beam_size=VOCAB_SIZE**3, length_penalty=0.0, n_best=6,
        constraints=constraints_of(1, **constraints),
    )  # fmt: skip
    (sequences,) = as_lists(hypotheses)
    np.testing.assert_allclose([score for score, _ in sequences], best, rtol=1e-4)
    # Of sequences with the same pairs of tokens any may come first.
    np.testing.assert_allclose([scores[tuple(tokens)] for _, tokens in sequences], best, rtol=1e-4)
    assert len({tuple(tokens) for _, tokens in sequences}) == len(best) == 6


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.slow), 2.5])
def test_sampling_draws_from_what_is_allowed_by_its_own_numbers(constraints, temperature):
    rows, length = 60, 8
    arguments = dict(
        max_length=length, start_ids=START, end_ids=END, seed=5, temperature=temperature
    )
    hypotheses = sample(
        step, (), [length] * rows, **arguments, constraints=constraints_of(rows, **constraints)
    )
    numbers = ops.convert_to_numpy(uniform_numbers(5, ops.arange(rows), length))
    for row, sequences in enumerate(as_lists(hypotheses)):
        tokens, score = [], 0.0
        while len(tokens) < length and END not in tokens:
            log_probs, allowed = allowed_log_probs([START], tokens, length, **constraints)
            if allowed.max() == -np.inf:
                break
            weights = np.exp(allowed / temperature)
            tokens.append(
                int((np.cumsum(weights) / weights.sum() > numbers[row, len(tokens)]).argmax())
            )
            # The probability is that of the model.
            score += log_probs[tokens[-1]]
        assert sequences == [(pytest.approx(score, rel=1e-4), tokens)]


SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *args, **kwargs: beam_search(*args, **kwargs, beam_size=3),
    "sample": lambda *args, **kwargs: sample(*args, **kwargs, seed=3, top_k=2),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_where_nothing_is_left_a_sequence_ends(search):
    arguments = dict(max_length=VOCAB_SIZE + 3, start_ids=START, end_ids=())
    constraints = Constraints(no_repeat_ngram_size=1)
    # Five other tokens after the first: the second sequence has room for one more.
    limits = [VOCAB_SIZE - 1, VOCAB_SIZE]
    [[(score, tokens)], [(same_score, same_tokens)]] = as_lists(
        search(step, (), limits, **arguments, constraints=constraints)
    )
    assert sorted(tokens) == [1, 2, 3, 4, 5]
    if search is SEARCHES["sample"]:
        # The rows draw other numbers.
        assert sorted(same_tokens) == sorted(tokens)
    else:
        assert (same_score, same_tokens) == (score, tokens)
    constraints = Constraints(forbidden_ids=range(VOCAB_SIZE))
    assert as_lists(search(step, (), [3], **arguments, constraints=constraints)) == [[(0.0, [])]]


def test_an_n_gram_may_be_longer_than_the_text_and_a_limit_below_the_minimum():
    arguments = dict(max_length=4, start_ids=START, end_ids=END)
    [[(score, tokens)]] = as_lists(greedy_search(step, (), [4], **arguments))
    hypotheses = greedy_search(
        step, (), [4], **arguments, constraints=Constraints(no_repeat_ngram_size=50)
    )
    assert as_lists(hypotheses) == [[(pytest.approx(score), tokens)]]
    hypotheses = greedy_search(step, (), [2, 0], **arguments, constraints=Constraints(min_length=4))
    assert ops.convert_to_numpy(hypotheses.lengths).tolist() == [[2], [0]]


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            dict(no_repeat_ngram_size=-1),
            "no_repeat_ngram_size must be at least 0; received no_repeat_ngram_size=-1",
        ),
        (dict(min_length=-2), "min_length must be at least 0; received min_length=-2"),
        (dict(repetition_penalty=-1.0), "repetition_penalty must be at least 0.01; received"),
        (
            dict(forbidden_ids=[-1], min_length=2),
            r"forbidden_ids must be from 0 to 5; received forbidden_ids=\(-1,\)",
        ),
        (
            dict(forbidden_ids=[6]),
            r"forbidden_ids must be from 0 to 5; received forbidden_ids=\(6,\)",
        ),
    ],
)
def test_constraints_are_checked(constraints, message):
    for search in SEARCHES.values():
        with pytest.raises(ConfigError, match=message):
            search(
                step,
                (),
                [2],
                max_length=2,
                start_ids=START,
                end_ids=END,
                constraints=Constraints(**constraints),
            )


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.slow
    @pytest.mark.parametrize("limits", [[2, 2, 2, 2], [3, 1, 2, 2], [9, 5, 7, 2]])
    def test_required_tokens_are_there_with_other_constraints_and_rows_that_leave_the_batch(limits):
        required = [[False, False], [True, False], [False, True], [True, True]]
        constraints = dict(
            no_repeat_ngram_size=2, repetition_penalty=2.0, min_length=2, forbidden_ids=[0]
        )
        for name, search in SEARCHES.items():

            @tf.function(
                input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 2], tf.bool)]
            )
            def run(limits, required, search=search):
                arguments = dict(
                    max_length=tf.reduce_max(limits),
                    start_ids=START,
                    end_ids=END,
                    drop_finished=True,
                )
                return search(
                    step,
                    (),
                    limits,
                    **arguments,
                    constraints=Constraints(**constraints, exactly_once=required),
                )

            for sequences, counts, limit in zip(
                as_lists(run(tf.constant(limits), tf.constant(required))), required, limits
            ):
                tokens = sequences[0][1]
                assert [tokens.count(4), tokens.count(5)] == [int(count) for count in counts], (
                    name,
                    tokens,
                )
                assert tokens[-1] == END or len(tokens) == limit, (name, tokens)
