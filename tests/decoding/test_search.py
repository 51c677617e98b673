"""Greedy and beam search against hand-worked numbers, exhaustive and plain Python searches."""

import functools

import numpy as np
import pytest
from keras import ops
from searches_in_python import (
    END,
    NEVER,
    START,
    as_arrays,
    as_lists,
    assert_same,
    assert_same_sentences,
    exhaustive_search,
    follow,
    initial_state,
    markov_step,
    next_log_probs,
    penalty,
    plain_beam_search,
    plain_greedy_search,
    random_tables,
    search,
    step,
)

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample

# Worked by hand.

# After start: a 0.6, b 0.4. After a: end 0.3, a 0.4, b 0.3. After b: end 0.9, a 0.1.
A, B = 2, 3
TRAP = [
    [0.0, 0.0, 0.6, 0.4],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 0.3, 0.4, 0.3],
    [0.0, 0.9, 0.1, 0.0],
]


def test_greedy_follows_the_best_token_and_is_cut():
    # a (0.6), then a (0.4), then cut: P = 0.24.
    hypotheses = greedy_search(
        markov_step(TRAP), (), [2], max_length=4, start_ids=START, end_ids=END
    )
    token_ids, lengths, scores = as_arrays(hypotheses)
    np.testing.assert_array_equal(token_ids, [[[A, A, 0, 0]]])
    np.testing.assert_array_equal(lengths, [[2]])
    np.testing.assert_allclose(scores, [[np.log(0.24)]], rtol=1e-6)


def test_beam_search_finds_what_greedy_misses():
    # Step 1: both a (0.6) and b (0.4) live. Step 2, the best 4 of 2 * 3 possible candidates:
    # b end 0.36, a a 0.24, a end 0.18, a b 0.18 (the lower token id first); all finish, 2 are kept.
    # lp = ((5 + 2) / 6) ** 1 = 7/6.
    hypotheses = beam_search(
        markov_step(TRAP), (), [2], max_length=4, start_ids=START, end_ids=END,
        beam_size=2, length_penalty=1.0, n_best=2,
    )  # fmt: skip
    token_ids, lengths, scores = as_arrays(hypotheses)
    np.testing.assert_array_equal(token_ids, [[[B, END, 0, 0], [A, A, 0, 0]]])
    np.testing.assert_array_equal(lengths, [[2, 2]])
    np.testing.assert_allclose(scores, [[np.log(0.36) * 6 / 7, np.log(0.24) * 6 / 7]], rtol=1e-6)


@pytest.mark.parametrize(
    ("length_penalty", "sentence", "score"),
    [
        # P(end) = 0.35 in 1 token, P(a end) = 0.65 * 0.5 = 0.325 in 2 tokens.
        (0.0, [END], -1.049822),  # log 0.35 = -1.049822 > log 0.325 = -1.123930
        (1.0, [A, END], -0.963369),  # -1.049822 / (6/6) < -1.123930 / (7/6) = -0.963369
    ],
)
def test_length_penalty_turns_the_order(length_penalty, sentence, score):
    probabilities = [[0.0, 0.35, 0.65], [0.0, 1.0, 0.0], [0.2, 0.5, 0.3]]
    hypotheses = beam_search(
        markov_step(probabilities), (), [2], max_length=2, start_ids=START, end_ids=END,
        beam_size=2, length_penalty=length_penalty,
    )  # fmt: skip
    assert_same_sentences(as_lists(hypotheses)[0], [(score, sentence)])


def test_equals_come_in_the_order_of_time_beam_and_token():
    # Four equal tokens. Step 1: [1] ends with 1/4, [0] and [2] live. Step 2: the first 4 of the 8
    # continuations with 1/16 each are those of [0].
    hypotheses = beam_search(
        markov_step(np.full((4, 4), 0.25)), (), [2], max_length=2, start_ids=START, end_ids=END,
        beam_size=2, length_penalty=0.0, n_best=2,
    )  # fmt: skip
    expected = [(np.log(1 / 4), [1]), (np.log(1 / 16), [0, 0])]
    assert_same_sentences(as_lists(hypotheses)[0], expected)


# Against exhaustive search.


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("vocab_size", "max_lengths", "n_best", "forbidden"),
    [
        (3, [4, 1, 3, 2, 4, 0], 1, 0.0),
        (3, [4, 1, 3, 2, 4, 4], 5, 0.0),  # Of length 1 there are 3: two places stay empty.
        (4, [3, 3, 2], 7, 0.0),
        (2, [5, 4], 6, 0.0),  # [end], [0, end], ... , and one cut.
        (4, [3, 3, 3, 3, 3, 2], 4, 0.4),
        (3, [4] * 8, 5, 0.6),  # With many dead ends, some of them at the first token.
    ],
)
def test_a_wide_beam_equals_exhaustive_search(vocab_size, max_lengths, n_best, forbidden, alpha):
    tables = random_tables(17, len(max_lengths), vocab_size, forbidden)
    beam_size = 27  # No fewer than the continuations in any step but the last, in which all end.
    hypotheses = search(tables, max_lengths, beam_size, length_penalty=alpha, n_best=n_best)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(hypotheses)):
        if max_length == 0:
            expected = [(0.0, [])]
        else:
            expected = exhaustive_search(
                lambda prefix: next_log_probs(table, prefix), vocab_size, max_length, alpha, n_best
            )
        assert_same_sentences(sentences, expected)


# Against plain searches.


@pytest.mark.parametrize(
    "alpha", [0.6, *(pytest.param(alpha, marks=pytest.mark.slow) for alpha in (0.0, 1.0))]
)
@pytest.mark.parametrize(
    ("vocab_size", "beam_size", "n_best", "forbidden"),
    [
        (7, 1, 1, 0.0),
        (7, 2, 1, 0.0),
        (5, 3, 3, 0.0),
        (11, 4, 2, 0.0),
        (240, 2, 2, 0.0),
        (3, 4, 4, 0.0),
        (6, 3, 2, 0.5),
        (6, 3, 3, 0.8),
    ],
)
def test_narrow_beams_equal_a_plain_beam_search(vocab_size, beam_size, n_best, forbidden, alpha):
    tables = random_tables(vocab_size * beam_size, 24, vocab_size, forbidden)
    max_lengths = [1 + i % 8 for i in range(24)]
    hypotheses = search(tables, max_lengths, beam_size, length_penalty=alpha, n_best=n_best)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(hypotheses)):
        expected, _ = plain_beam_search(
            lambda prefix: next_log_probs(table, prefix), max_length, beam_size, alpha, n_best
        )
        assert_same_sentences(sentences, expected)


@pytest.mark.parametrize("forbidden", [0.0, 0.7])
def test_greedy_equals_a_plain_greedy_search(forbidden):
    tables = random_tables(3, 40, 6, forbidden)
    max_lengths = [1 + i % 9 for i in range(40)]
    hypotheses = follow(tables, max_lengths, max_length=12)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(hypotheses)):
        expected = plain_greedy_search(lambda prefix: next_log_probs(table, prefix), max_length)
        assert_same_sentences(sentences, [expected])


# Sentences in a batch.


@pytest.mark.slow
def test_a_neighbor_that_goes_on_for_long_changes_nothing():
    # All sentences but the last are done before position 20. What their models answer from there
    # on, here that they are sure of an end, must not be seen.
    tables = random_tables(37, 6, 5)
    tables[:5, :, END] += 2.0
    tables[5, :, END] = -np.inf

    def tempting_step(token_ids, parents, position, state):
        logits, state = step(token_ids, parents, position, state)
        sure = ops.where(ops.arange(5) == END, 1000.0, 0.0)
        tempted = (position >= 20) & ops.reshape(ops.arange(6) < 5, (6, 1, 1))
        return ops.where(tempted, sure, logits), state

    options = dict(max_length=40, start_ids=START, end_ids=END)
    for searched_step in (step, tempting_step):
        beam = beam_search(
            searched_step, initial_state(tables, 3), [40] * 6, beam_size=3, n_best=2, **options
        )
        greedy = greedy_search(searched_step, initial_state(tables, 1), [40] * 6, **options)
        assert int(beam.lengths[5, 0]) == int(greedy.lengths[5, 0]) == 40
        for table, sentences, followed in zip(tables[:5], as_lists(beam), as_lists(greedy)):

            def log_probs(prefix):
                return next_log_probs(table, prefix)

            expected, num_steps = plain_beam_search(log_probs, 40, 3, 0.6, 2)
            assert num_steps < 20
            assert_same_sentences(sentences, expected)
            assert_same_sentences(followed, [plain_greedy_search(log_probs, 20)])


def test_each_sentence_is_cut_at_its_own_maximum_length():
    tables = random_tables(41, 5, 4)
    max_lengths = [3, 0, 1, 6, 9]  # The capacity is 7: the last one is lowered to it.
    options = dict(max_length=7, end_ids=NEVER)
    beam, greedy = (
        search(tables, max_lengths, 2, n_best=2, **options),
        follow(tables, max_lengths, **options),
    )
    np.testing.assert_array_equal(beam.lengths, [[3, 3], [0, 0], [1, 1], [6, 6], [7, 7]])
    np.testing.assert_array_equal(greedy.lengths, [[3], [0], [1], [6], [7]])
    np.testing.assert_array_equal(ops.convert_to_numpy(beam.scores)[1], [0.0, -np.inf])
    for alpha, hypotheses in [(0.6, beam), (0.0, greedy)]:
        assert ops.shape(hypotheses.token_ids)[-1] == 7
        for i, sentences in enumerate(as_lists(hypotheses)):
            for score, tokens in sentences:
                log_prob = sum(
                    next_log_probs(tables[i], tokens[:n])[token] for n, token in enumerate(tokens)
                )
                np.testing.assert_allclose(score, log_prob / penalty(len(tokens), alpha), rtol=1e-5)


def test_a_batch_of_no_sentences_gives_no_hypotheses():
    tables = random_tables(0, 0, 5)
    max_lengths = np.zeros(0, "int32")
    hypotheses = search(tables, max_lengths, 4, max_length=6, n_best=2)
    assert [tuple(x.shape) for x in hypotheses[:3]] == [(0, 2, 6), (0, 2), (0, 2)]
    hypotheses = follow(tables, max_lengths, max_length=6)
    assert [tuple(x.shape) for x in hypotheses[:3]] == [(0, 1, 6), (0, 1), (0, 1)]


def test_a_capacity_of_nothing_gives_empty_sentences():
    tables = random_tables(0, 2, 5)
    for hypotheses in (search(tables, [0, 0], 4), follow(tables, [0, 0])):
        assert tuple(hypotheses.token_ids.shape) == (2, 1, 0)
        np.testing.assert_array_equal(hypotheses.scores, [[0.0], [0.0]])


# Unusual logits.


# After start: a 0.4, b 0.6. After a: nothing. After b: end 0.6, b 0.4.
DEAD_END = [[0, 0, 0.4, 0.6], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0.6, 0, 0.4]]


@pytest.mark.parametrize(
    ("length_penalty", "expected"),
    [
        # log 0.4 = -0.916291 of 1 token; log 0.36 = -1.021651 of 2; log 0.24 = -1.427116 of 2.
        (0.0, [(-0.916291, [A]), (-1.021651, [B, END])]),
        # -0.916291 / (6/6); -1.021651 / (7/6) = -0.875701.
        (1.0, [(-0.875701, [B, END]), (-0.916291, [A])]),
    ],
)
def test_in_a_beam_a_dead_end_is_finished_and_the_others_go_on(length_penalty, expected):
    hypotheses = beam_search(
        markov_step(DEAD_END), (), [3], max_length=3, start_ids=START, end_ids=END,
        beam_size=2, length_penalty=length_penalty, n_best=2,
    )  # fmt: skip
    assert_same_sentences(as_lists(hypotheses)[0], expected)


def test_a_dead_end_ends_a_sequence_where_it_is_with_its_score():
    # After start: a 0.9, b 0.1. After a: a 0.3, c 0.7. After c: nothing.
    c = 4
    dead_end_step = markov_step(
        [[0, 0, 0.9, 0.1, 0], [0, 1, 0, 0, 0], [0, 0, 0.3, 0, 0.7], [0, 1, 0, 0, 0], [0] * 5]
    )
    options = dict(max_length=5, start_ids=START, end_ids=END)
    for hypotheses in (
        greedy_search(dead_end_step, (), [5, 1, 0], **options),
        sample(dead_end_step, (), [5, 1, 0], **options, seed=1, top_k=1),
        beam_search(dead_end_step, (), [5, 1, 0], **options, beam_size=1, length_penalty=0.0),
    ):
        token_ids, lengths, scores = as_arrays(hypotheses)
        np.testing.assert_array_equal(token_ids[:, 0], [[A, c, 0, 0, 0], [A, *[0] * 4], [0] * 5])
        np.testing.assert_array_equal(lengths, [[2], [1], [0]])
        np.testing.assert_allclose(scores, [[np.log(0.63)], [np.log(0.9)], [0.0]], rtol=1e-6)


@pytest.mark.parametrize("logit", [-np.inf, 0.0])
def test_a_sequence_that_no_token_may_begin_is_empty(logit):
    def no_step(token_ids, parents, position, state):
        return ops.full((*ops.shape(token_ids), 3), logit), state

    constraints = Constraints(forbidden_ids=[0, 1, 2])
    options = dict(max_length=4, start_ids=START, end_ids=END, constraints=constraints)
    for hypotheses in (
        greedy_search(no_step, (), [4, 0], **options),
        sample(no_step, (), [4, 0], **options, seed=1),
        beam_search(no_step, (), [4, 0], **options, beam_size=2, n_best=2),
    ):
        assert as_lists(hypotheses) == [[(0.0, [])], [(0.0, [])]]


def test_a_model_that_answers_not_a_number_spoils_its_own_sentence_alone():
    tables = random_tables(43, 3, 5)
    first, _, last = as_lists(search(tables, [6, 6, 6], beam_size=3))
    tables[1] = np.nan
    hypotheses = as_lists(search(tables, [6, 6, 6], beam_size=3))
    for sentences, expected in zip(hypotheses, (first, [], last)):
        assert_same_sentences(sentences, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_are_float32_whatever_the_logits_are(dtype):
    tables = ops.cast(random_tables(47, 3, 5), dtype)
    rounded = ops.convert_to_numpy(ops.cast(tables, "float32"))
    options = dict(max_lengths=[8, 8, 8], beam_size=3, n_best=2)
    assert_same(search(tables, **options), search(rounded, **options))


def test_log_probabilities_stay_exact_beside_huge_logits():
    # Shifting all logits by 1e4 changes no probability: 3/4 and 1/4 of e^0 and e^-log 3.
    logits = np.array([1e4, 1e4 - np.float32(np.log(3.0))], "float32")
    gap = np.float64(logits[0]) - np.float64(logits[1])

    def huge(token_ids, parents, position, state):
        return ops.broadcast_to(logits, (*ops.shape(token_ids), 2)), state

    hypotheses = greedy_search(huge, (), [100], max_length=100, start_ids=0, end_ids=1)
    np.testing.assert_allclose(hypotheses.scores, [[-100 * np.log1p(np.exp(-gap))]], rtol=1e-5)


def test_a_vocabulary_of_one_token():
    def only(token_ids, parents, position, state):
        return ops.zeros((*ops.shape(token_ids), 1)), state

    hypotheses = beam_search(
        only, (), [3], max_length=3, start_ids=0, end_ids=0, beam_size=3, n_best=2
    )
    assert as_lists(hypotheses) == [[(0.0, [0])]]
    hypotheses = beam_search(only, (), [3], max_length=3, start_ids=0, end_ids=NEVER, beam_size=3)
    assert as_lists(hypotheses) == [[(0.0, [0, 0, 0])]]


# Bad arguments.


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (dict(beam_size=0), "be positive; received beam_size=0"),
        (dict(beam_size=2.0), "be of type int; received beam_size=2.0"),
        (dict(beam_size=True), "be of type int; received beam_size=True"),
        (dict(n_best=0), "be from 1 to beam_size=4; received n_best=0"),
        (dict(n_best=2.0), "be of type int; received n_best=2.0"),
        (dict(n_best=5), "be from 1 to beam_size=4; received n_best=5"),
        (dict(length_penalty=-0.1), "be at least 0 and finite; received length_penalty=-0.1"),
        (
            dict(length_penalty=float("nan")),
            "be at least 0 and finite; received length_penalty=nan",
        ),
        (
            dict(length_penalty=float("inf")),
            "be at least 0 and finite; received length_penalty=inf",
        ),
        (dict(length_penalty="1"), "be of type float; received length_penalty='1'"),
        (dict(max_length=-1), "be at least 0; received max_length=-1"),
        (dict(max_length=np.int64(-1)), "be at least 0; received max_length=-1"),
        (dict(start_ids=-2), "be at least 0; received start_ids=-2"),
        (dict(end_ids=-3), "be at least 0; received end_ids=-3"),
        (dict(max_lengths=4), "have shape (batch,); received max_lengths of shape ()"),
        (dict(max_lengths=[[4]]), "have shape (batch,); received max_lengths of shape (1, 1)"),
    ],
)
def test_bad_arguments_are_named(arguments, rule):
    given = dict(max_lengths=[4], max_length=4, start_ids=START, end_ids=END) | arguments
    (name,) = arguments
    searches = [beam_search]
    if name not in ("beam_size", "n_best", "length_penalty"):
        searches += [greedy_search, functools.partial(sample, seed=1)]
    for function in searches:
        with pytest.raises(ValueError) as error:
            function(markov_step(TRAP), (), **given)
        assert str(error.value) == f"{name} must {rule}"


def test_integers_of_numpy_are_integers():
    numbers = dict(max_length=4, start_ids=START, end_ids=END)
    searches = [
        (beam_search, dict(beam_size=7, n_best=2)),
        (greedy_search, {}),
        (sample, dict(seed=2**40 - 1, top_k=7)),
        (sample, dict(seed=-1)),
    ]
    for function, options in searches:
        expected = function(markov_step(TRAP), (), [4, 3], **numbers, **options)
        options = {name: np.int64(value) for name, value in (numbers | options).items()}
        assert as_lists(function(markov_step(TRAP), (), [4, 3], **options)) == as_lists(expected)
    start_ids = [[END, START], [-1, START]]
    hypotheses = greedy_search(markov_step(TRAP), (), [4, 3], **numbers | dict(start_ids=start_ids))
    assert as_lists(hypotheses) == as_lists(greedy_search(markov_step(TRAP), (), [4, 3], **numbers))
