"""Logits processors: searches with one equal searches with a step function that does the same."""

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import (
    END,
    START,
    as_lists,
    assert_same,
    markov_step,
    run_step_by_step,
)

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample
from keras_transformer.errors import ConfigError

VOCAB_SIZE = 6
# [previous][next]
LOGITS = np.random.default_rng(8).normal(0, 2, (VOCAB_SIZE, VOCAB_SIZE)).astype("float32")
SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *args, **kwargs: beam_search(*args, **kwargs, beam_size=3, n_best=3),
    "sample": lambda *args, **kwargs: sample(*args, **kwargs, seed=3, temperature=2.0, top_k=4),
}
search_each = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def step(token_ids, parents, position, state):
    return ops.take(LOGITS, token_ids, axis=0), state


class Changed:
    """Lowers the logits of the two newest tokens, and that of END by the position."""

    def __call__(self, token_ids, logits, position):
        newest = ops.one_hot(token_ids[..., -2:], VOCAB_SIZE)  # zeros for -1
        ends = ops.one_hot(END, VOCAB_SIZE) * ops.cast(position, "float32")
        return logits - 1.5 * ops.sum(newest, axis=2) - 0.5 * ends


def step_with_the_same_change(token_ids, parents, position, state):
    """The state holds the token before the newest one."""
    previous = ops.take_along_axis(state, parents, axis=1)
    logits = ops.take(LOGITS, token_ids, axis=0)
    newest = ops.one_hot(previous, VOCAB_SIZE) + ops.one_hot(token_ids, VOCAB_SIZE)
    ends = ops.one_hot(END, VOCAB_SIZE) * ops.cast(position, "float32")
    return logits - 1.5 * newest - 0.5 * ends, token_ids


@search_each
@pytest.mark.parametrize(
    "constraints", [{}, dict(repetition_penalty=1.5, no_repeat_ngram_size=2, forbidden_ids=[2])]
)
@pytest.mark.parametrize("starts", [[[START]] * 3, [[-1, -1, 3], [-1, 2, 3], [4, 5, 5]]])
def test_searches_equal_those_of_a_step_that_does_the_same(search, constraints, starts):
    start_ids = ops.convert_to_tensor(starts, "int32")
    options = dict(max_length=7, start_ids=start_ids, end_ids=END)
    with_processor = Constraints(logits_processor=Changed(), **constraints)
    processed = search(step, (), [7, 4, 0], **options, constraints=with_processor)
    beam_size = 3 if search is SEARCHES["beam"] else 1
    previous = np.array([start[-2] if len(start) > 1 else -1 for start in starts], "int32")
    state = ops.broadcast_to(previous[:, None], (3, beam_size))
    options["constraints"] = Constraints(**constraints)
    expected = search(step_with_the_same_change, state, [7, 4, 0], **options)
    assert_same(processed, expected)


@search_each
def test_a_processor_may_forbid_everything(search):
    def three_tokens(token_ids, logits, position):
        return ops.where(position < 3, logits, -np.inf)

    constraints = Constraints(logits_processor=three_tokens)
    hypotheses = search(
        step, (), [5, 2], max_length=5, start_ids=START, end_ids=(), constraints=constraints
    )
    for sequences, length in zip(as_lists(hypotheses), (3, 2)):
        assert {len(tokens) for _, tokens in sequences} == {length}


def test_scores_by_hand():
    # Of 1/2, 1/4 and 1/4 the first is forbidden: 1/2 and 1/2, where a search that forbids it keeps
    # the probabilities of the others.
    thirds = markov_step([[0.5, 0.25, 0.25]] * 3)

    def not_the_first(token_ids, logits, position):
        return ops.where(ops.arange(3) == 0, -np.inf, logits)

    for constraints, score in (
        (Constraints(logits_processor=not_the_first), np.log(0.5)),
        (Constraints(forbidden_ids=[0]), np.log(0.25)),
    ):
        hypotheses = greedy_search(
            thirds, (), [1], max_length=1, start_ids=0, end_ids=(), constraints=constraints
        )
        assert as_lists(hypotheses) == [[(pytest.approx(score), [1])]]


def test_the_arguments_of_a_processor():
    calls = []

    def record(token_ids, logits, position):
        calls.append([ops.convert_to_numpy(token_ids), tuple(logits.shape), int(position)])
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        return logits

    start_ids = ops.convert_to_tensor([[-1, 4], [3, 2]], "int32")
    constraints = Constraints(logits_processor=record)
    with run_step_by_step():
        hypotheses = greedy_search(
            step, (), [3, 3], max_length=3, start_ids=start_ids, end_ids=(), constraints=constraints
        )
    first, second = ops.convert_to_numpy(hypotheses.token_ids)[:, 0, :2].T
    assert [(shape, position) for _, shape, position in calls] == [
        ((2, 1, VOCAB_SIZE), position) for position in range(3)
    ]
    padding = [-1] * (calls[0][0].shape[2] - 4)
    expected = [[[*padding, -1, -1, -1, 4]], [[*padding, -1, -1, 3, 2]]]
    assert calls[0][0].tolist() == expected
    assert calls[2][0].tolist() == [
        [[*padding, -1, 4, first[0], second[0]]],
        [[*padding, 3, 2, first[1], second[1]]],
    ]


@search_each
@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (dict(logits_processor=3), "logits_processor must be a function or None"),
        (
            dict(logits_processor=lambda token_ids, logits, position: logits[:, 0]),
            "logits_processor must return logits of the shape it is given",
        ),
        (
            dict(logits_processor=Changed(), candidates=np.arange(VOCAB_SIZE, dtype="int32")),
            "logits_processor must be None if candidates are given",
        ),
    ],
)
def test_processors_that_are_refused(search, constraints, message):
    with pytest.raises(ConfigError, match=message):
        search(
            step, (), [2], max_length=2, start_ids=START, end_ids=END,
            constraints=Constraints(**constraints),
        )  # fmt: skip
