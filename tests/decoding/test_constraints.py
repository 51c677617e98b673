"""Constraints against NumPy: greedy search by steps, beam search exhaustively, sampling by its numbers."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample
from keras_transformer.decoding.sampling import uniform_numbers
from keras_transformer.errors import ConfigError

END, START, VOCAB_SIZE = 1, 0, 5
LOGITS = np.random.default_rng(4).normal(0, 2, (VOCAB_SIZE, VOCAB_SIZE)).astype("float32")  # [previous][next]
CONSTRAINTS = [
    {},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_length": 3},
    {"min_length": 4, "no_repeat_ngram_size": 2},
    {"min_length": 3, "forbidden_ids": [2]},
    {"min_length": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.7, "forbidden_ids": [3]},
]


def step(token_ids, parents, position, state):
    return ops.take(LOGITS, token_ids, axis=0), state


def allowed_log_probs(starts, tokens, no_repeat_ngram_size=0, min_length=0, repetition_penalty=1.0, forbidden_ids=()):
    """Log probabilities of the next token; and those of what may be chosen, -inf for the others."""
    seen = [token for token in (*starts, *tokens) if token >= 0]
    logits = LOGITS[seen[-1]].astype("float64")
    for token in set(seen):
        logits[token] = logits[token] / repetition_penalty if logits[token] > 0 else logits[token] * repetition_penalty
    log_probs = logits - np.log(np.exp(logits).sum())
    allowed = log_probs.copy()
    n = no_repeat_ngram_size
    ngrams = {tuple(seen[i : i + n]) for i in range(len(seen) - n + 1)} if n else ()
    for token in range(VOCAB_SIZE):
        is_repeat = n > 0 and tuple([*seen, token][-n:]) in ngrams and len(seen) + 1 >= n
        if is_repeat or token in forbidden_ids or (token == END and len(tokens) + 1 < min_length):
            allowed[token] = -np.inf
    return log_probs, allowed


def greedy_reference(starts, max_length, **constraints):
    tokens, score = [], 0.0
    while len(tokens) < max_length and END not in tokens:
        _, allowed = allowed_log_probs(starts, tokens, **constraints)
        tokens.append(int(allowed.argmax()))
        score += allowed.max()
    return tokens, score


def token_ids_of(found, place=0):
    lengths = ops.convert_to_numpy(found.lengths)[:, place]
    return [row[:n].tolist() for row, n in zip(ops.convert_to_numpy(found.token_ids)[:, place], lengths)]


def scores_of(found):
    return ops.convert_to_numpy(found.scores)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("starts", [[[0], [2], [4]], [[-1, 3], [2, 4], [4, 4]]])
def test_greedy_search_is_the_best_of_what_is_allowed(constraints, starts):
    found = greedy_search(
        step,
        (),
        [9, 7, 2],
        max_length=9,
        start_id=ops.convert_to_tensor(starts, "int32"),
        end_id=END,
        constraints=Constraints(**constraints),
    )
    expected = [greedy_reference(start, limit, **constraints) for start, limit in zip(starts, (9, 7, 2))]
    possible = [score > -np.inf for _, score in expected]
    assert [row for row, ok in zip(token_ids_of(found), possible) if ok] == [e[0] for e in expected if e[1] > -np.inf]
    np.testing.assert_allclose(scores_of(found)[:, 0], [score for _, score in expected], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_a_beam_that_holds_all_finds_the_best_sequences_that_are_allowed(constraints):
    length, scores = 4, {}
    for tokens in itertools.product(range(VOCAB_SIZE), repeat=length):
        if END in tokens[:-1]:
            tokens = tokens[: tokens.index(END) + 1]
        chosen = [allowed_log_probs([START], tokens[:i], **constraints)[1][tokens[i]] for i in range(len(tokens))]
        scores[tokens] = sum(chosen)
    best = sorted((score, tokens) for tokens, score in scores.items() if score > -np.inf)[::-1][:6]
    assert len(best) == 6
    found = beam_search(
        step, (), [length], max_length=length, start_id=START, end_id=END, beam_size=VOCAB_SIZE**3, length_penalty=0.0,
        n_best=6, constraints=Constraints(**constraints),
    )  # fmt: skip
    np.testing.assert_allclose(scores_of(found)[0], [score for score, _ in best], rtol=1e-4)
    # Of sequences with the same pairs of tokens any may come first.
    sequences = [tuple(token_ids_of(found, i)[0]) for i in range(6)]
    assert len(set(sequences)) == 6
    np.testing.assert_allclose([scores[tokens] for tokens in sequences], [score for score, _ in best], rtol=1e-4)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_sampling_draws_from_what_is_allowed_by_its_own_numbers(constraints, temperature):
    rows, length = 60, 8
    arguments = dict(max_length=length, start_id=START, end_id=END, seed=5, temperature=temperature)
    found = sample(step, (), [length] * rows, **arguments, constraints=Constraints(**constraints))
    numbers = ops.convert_to_numpy(uniform_numbers(5, rows, length))
    for row, tokens in enumerate(token_ids_of(found)):
        expected, score = [], 0.0
        while len(expected) < length and END not in expected and score > -np.inf:
            log_probs, allowed = allowed_log_probs([START], expected, **constraints)
            if allowed.max() == -np.inf:
                score = -np.inf
                continue
            weights = np.exp(allowed / temperature)
            expected.append(int((np.cumsum(weights) / weights.sum() > numbers[row, len(expected)]).argmax()))
            # The probability is that of the model.
            score += log_probs[expected[-1]]
        np.testing.assert_allclose(scores_of(found)[row, 0], score, rtol=1e-4)
        assert tokens == (expected if score > -np.inf else [])


def test_where_nothing_is_left_there_is_no_sequence():
    arguments = dict(
        max_length=VOCAB_SIZE + 3, start_id=START, end_id=(), constraints=Constraints(no_repeat_ngram_size=1)
    )
    for search in (greedy_search, lambda *args, **kwargs: beam_search(*args, **kwargs, beam_size=3)):
        # Four other tokens after the first.
        found = search(step, (), [VOCAB_SIZE - 1, VOCAB_SIZE], **arguments)
        assert sorted(token_ids_of(found)[0]) == [1, 2, 3, 4]
        assert token_ids_of(found)[1] == [] and scores_of(found)[1, 0] == -np.inf


def test_an_n_gram_may_be_longer_than_the_text_and_a_limit_below_the_minimum():
    arguments = dict(max_length=4, start_id=START, end_id=END)
    plain = greedy_search(step, (), [4], **arguments)
    found = greedy_search(step, (), [4], **arguments, constraints=Constraints(no_repeat_ngram_size=50))
    assert token_ids_of(found) == token_ids_of(plain)
    np.testing.assert_allclose(scores_of(found), scores_of(plain), rtol=1e-5)
    found = greedy_search(step, (), [2, 0], **arguments, constraints=Constraints(min_length=4))
    assert [len(row) for row in token_ids_of(found)] == [2, 0]


def test_constraints_are_checked():
    arguments = dict(max_length=2, start_id=START, end_id=END)
    with pytest.raises(ConfigError, match="no_repeat_ngram_size must be at least 0; received no_repeat_ngram_size=-1"):
        greedy_search(step, (), [2], **arguments, constraints=Constraints(no_repeat_ngram_size=-1))
    with pytest.raises(ConfigError, match="min_length must be at least 0; received min_length=-2"):
        sample(step, (), [2], **arguments, seed=1, constraints=Constraints(min_length=-2))
    for forbidden in (-1, VOCAB_SIZE):
        with pytest.raises(ConfigError, match=f"forbidden_ids must be from 0 to 4; received .*{forbidden}"):
            greedy_search(step, (), [2], **arguments, constraints=Constraints(forbidden_ids=[forbidden], min_length=2))
