"""Margins of searches, and scores of known sequences."""

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import (
    END,
    START,
    as_arrays,
    as_lists,
    exhaustive_search,
    follow,
    initial_state,
    markov_step,
    next_log_probs,
    random_tables,
    search,
    step,
)

from keras_transformer.decoding import (
    Constraints,
    beam_search,
    forced_search,
    greedy_search,
)

# After start: a 0.6, b 0.4. After a: end 0.3, a 0.4, b 0.3. After b: end 0.9, a 0.1.
A, B = 2, 3
PROBABILITIES = [
    [0.0, 0.0, 0.6, 0.4],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 0.3, 0.4, 0.3],
    [0.0, 0.9, 0.1, 0.0],
]
OPTIONS = dict(start_ids=START, end_ids=END, with_margins=True)


def margins_of(hypotheses):
    assert hypotheses.margins.dtype in ("float32", keras.ops.convert_to_tensor(0.0).dtype)
    return ops.convert_to_numpy(hypotheses.margins).tolist()


def test_margin_of_greedy_search_equals_closest_choice():
    # Step 1: a 0.6, b 0.4. Step 2: a 0.4, end 0.3, b 0.3. A sequence without tokens has no choice.
    hypotheses = greedy_search(markov_step(PROBABILITIES), (), [2, 1, 0], max_length=2, **OPTIONS)
    assert margins_of(hypotheses) == pytest.approx([np.log(4 / 3), np.log(3 / 2), np.inf])


def test_margin_of_greedy_search_with_equal_tokens_is_zero():
    hypotheses = greedy_search(markov_step([[0.5, 0.5]] * 2), (), [3], max_length=3, **OPTIONS)
    assert margins_of(hypotheses) == [0.0]


def test_margin_of_greedy_search_ignores_forbidden_tokens():
    constraints = Constraints(forbidden_ids=[B])
    arguments = dict(max_length=1, constraints=constraints, **OPTIONS)
    hypotheses = greedy_search(markov_step(PROBABILITIES), (), [1], **arguments)
    assert margins_of(hypotheses) == [np.inf]  # Only a is possible.


# Step 1: a 0.6 and b 0.4, and nothing is dropped. Step 2: b end 0.36, a a 0.24, a end 0.18,
# a b 0.18, b a 0.04. All end. The first two are among the best 2, and so become results.
@pytest.mark.parametrize(
    ("n_best", "margin"),
    [
        # The results are 0.36 and 0.24. If a a were 0.18, it would not be a result.
        (2, np.log(0.24 / 0.18)),
        # The result is 0.36. Even if a a were no result, it would not matter.
        (1, np.log(0.36 / 0.24) * 6 / 7),
    ],
)
def test_margin_of_beam_search_worked_by_hand(n_best, margin):
    hypotheses = beam_search(
        markov_step(PROBABILITIES), (), [2], max_length=2, beam_size=2, length_penalty=1.0,
        n_best=n_best, **OPTIONS,
    )  # fmt: skip
    assert margins_of(hypotheses) == pytest.approx([margin])


def test_margin_of_beam_search_includes_the_dropped_continuation():
    # Step 1: tokens 2, 3 and 4 with 0.35, 0.33 and 0.32; the beam keeps two. Step 2: all end with
    # 0.9, so that 0.315 wins against 0.297, and both against 0.288, which was dropped.
    probabilities = [[0.0, 0.0, 0.35, 0.33, 0.32], [0.0, 1.0, 0.0, 0.0, 0.0]]
    probabilities += [[0.1, 0.9, 0.0, 0.0, 0.0]] * 3
    arguments = dict(max_length=2, beam_size=2, length_penalty=0.0, n_best=2, **OPTIONS)
    hypotheses = beam_search(markov_step(probabilities), (), [2], **arguments)
    assert margins_of(hypotheses) == pytest.approx([np.log(0.33 / 0.32)], rel=1e-5)


def test_margin_of_beam_search_includes_the_decision_to_stop():
    # Step 1: end 0.4 is a result; the best unfinished hypothesis, 0.39, cannot overtake it.
    probabilities = [[0.0, 0.4, 0.39, 0.21], [0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.25, 0.25]]
    probabilities += [[0.0, 0.0, 0.0, 1.0]]
    arguments = dict(max_length=9, beam_size=2, length_penalty=0.0, **OPTIONS)
    hypotheses = beam_search(markov_step(probabilities), (), [9], **arguments)
    assert as_lists(hypotheses) == [[(pytest.approx(np.log(0.4)), [END])]]
    assert margins_of(hypotheses) == pytest.approx([np.log(0.4 / 0.39)], rel=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2, 27])
def test_margin_of_search_with_a_single_possible_sequence_is_infinite(beam_size):
    tables = random_tables(5, 2, 4)
    tables[:, :, :3] = -np.inf
    options = dict(with_margins=True, length_penalty=0.6)
    assert margins_of(search(tables, [3, 0], beam_size, **options)) == [np.inf, np.inf]


@pytest.mark.parametrize("n_best", [1, 4])
def test_margin_of_wide_beam_is_at_most_the_differences_of_the_best_sequences(n_best):
    tables = random_tables(19, 12, 4, forbidden=0.2)
    hypotheses = search(tables, [3] * 12, 27, n_best=n_best, with_margins=True)
    for table, margin in zip(tables, margins_of(hypotheses), strict=True):
        best = exhaustive_search(
            lambda prefix: next_log_probs(table, prefix), 4, 3, 0.6, n_best + 1
        )
        scores = np.array([score for score, _ in best])
        assert 0 <= margin <= (scores[:-1] - scores[1:]).min() + 1e-5


@pytest.mark.parametrize(
    ("beam_size", "n_best", "length_penalty", "forbidden"),
    [(1, 1, 0.0, 0.0), (2, 1, 0.6, 0.0), (3, 3, 1.0, 0.0), (4, 2, 0.0, 0.6), (27, 1, 2.0, 0.3)],
)
def test_changed_logits_change_only_tokens_with_a_small_margin(
    beam_size, n_best, length_penalty, forbidden
):
    max_length, num_tables = 5, 400
    tables = random_tables(beam_size, num_tables, 6, forbidden)
    limits = [1 + i % max_length for i in range(num_tables)]

    def find(tables):
        options = dict(max_length=max_length, with_margins=True)
        if beam_size == 1:
            return follow(tables, limits, **options)
        options |= dict(length_penalty=length_penalty, n_best=n_best)
        return search(tables, limits, beam_size, **options)

    expected = find(tables)
    margins = np.array(margins_of(expected))
    # Log probabilities change by at most `error`. As the changes have random signs, most change by
    # less than a quarter.
    error = 0.3
    changes = np.random.default_rng(0).choice([-1, 1], size=tables.shape) * error / (2 * max_length)
    token_ids, _, _ = as_arrays(find((tables + changes).astype("float32")))
    is_changed = (token_ids != ops.convert_to_numpy(expected.token_ids)).any(axis=(1, 2))
    assert is_changed.sum() >= 4
    assert (margins[is_changed] < error).all()
    assert np.median(margins) > error / 5


def test_search_without_margins_returns_none_and_equal_results():
    tables = random_tables(7, 5, 6)
    for with_margins, without in (
        (follow(tables, [6] * 5, with_margins=True), follow(tables, [6] * 5)),
        (
            search(tables, [6] * 5, 3, n_best=3, with_margins=True),
            search(tables, [6] * 5, 3, n_best=3),
        ),
    ):
        assert without.margins is None
        for tensor, expected in zip(with_margins[:3], without[:3], strict=True):
            np.testing.assert_array_equal(tensor, expected)


CONSTRAINTS = Constraints(no_repeat_ngram_size=2, min_length=3, repetition_penalty=1.3)


@pytest.mark.parametrize("constraints", [Constraints(), CONSTRAINTS])
@pytest.mark.parametrize("length_penalty", [None, 0.0, 1.0])
def test_forced_search_along_found_tokens_gives_their_scores(length_penalty, constraints):
    tables = random_tables(11, 8, 6, forbidden=0.3)
    limits = [7, 1, 0, 3, 5, 7, 7, 2]
    if length_penalty is None:
        found = follow(tables, limits, constraints=constraints)
    else:
        options = dict(length_penalty=length_penalty, constraints=constraints, n_best=3)
        found = search(tables, limits, 3, **options)
    for place in range(found.token_ids.shape[1]):
        forced = forced_search(
            step, initial_state(tables, 1), found.token_ids[:, place], limits, max_length=7,
            start_ids=START, end_ids=END, length_penalty=length_penalty or 0.0,
            constraints=constraints,
        )  # fmt: skip
        is_found = ops.convert_to_numpy(found.scores[:, place]) > -np.inf
        for tensor, expected in zip(forced[:3], found[:3], strict=True):
            tensor, expected = (ops.convert_to_numpy(x) for x in (tensor[:, 0], expected[:, place]))
            np.testing.assert_allclose(tensor[is_found], expected[is_found], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        ([A, B, END], dict(constraints=Constraints(forbidden_ids=[B]))),
        ([A, END, 0], dict(constraints=Constraints(min_length=3))),
        ([A, A, A], dict(constraints=Constraints(no_repeat_ngram_size=2))),
        ([B, B, END], {}),  # It has a probability of 0.
        ([A, 0, 0], {}),  # It does not end.
        ([A, END, A], {}),  # It goes on after its end.
        ([A, B, END], dict(constraints=Constraints(candidates=np.array([0, END, A], "int32")))),
        ([7, 7, 7], {}),  # It is not in the vocabulary.
    ],
)
def test_forced_search_along_impossible_tokens_returns_other_tokens(tokens, options):
    model_step = markov_step(PROBABILITIES)
    if "constraints" in options and options["constraints"].candidates is not None:

        def model_step(token_ids, parents, position, state):
            logits, state = markov_step(PROBABILITIES)(token_ids, parents, position, state)
            return logits[..., :3], state

    forced = forced_search(
        model_step,
        (),
        np.array([tokens]),
        [3],
        max_length=3,
        start_ids=START,
        end_ids=END,
        **options,
    )
    assert ops.convert_to_numpy(forced.token_ids)[0, 0].tolist() != tokens
