"""Tokens that a sequence has exactly once: greedy search by steps, beam search exhaustively, against NumPy."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample

# The last two may be required.
END, START, VOCAB_SIZE = 1, 0, 6
LOGITS = np.random.default_rng(8).normal(0, 2, (VOCAB_SIZE, VOCAB_SIZE)).astype("float32")  # [previous][next]
REQUIRED = [[False, False], [True, False], [False, True], [True, True]]


def step(token_ids, parents, position, state):
    return ops.take(LOGITS, token_ids, axis=0), state


def log_probs_after(token):
    logits = LOGITS[token].astype("float64")
    return logits - np.log(np.exp(logits).sum())


def is_kept(tokens, required, limit):
    """Whether a sequence has the required tokens once, the others never, and is whole or as long as it may be."""
    counts = [tokens.count(token) for token in (VOCAB_SIZE - 2, VOCAB_SIZE - 1)]
    return counts == [int(each) for each in required] and (tokens[-1] == END or len(tokens) == limit)


def tokens_of(found, place=0):
    lengths = ops.convert_to_numpy(found.lengths)[:, place]
    return [row[:n].tolist() for row, n in zip(ops.convert_to_numpy(found.token_ids)[:, place], lengths)]


def sequences(limit):
    for tokens in itertools.product(range(VOCAB_SIZE), repeat=limit):
        yield tokens[: tokens.index(END) + 1] if END in tokens else tokens


@pytest.mark.parametrize("required", REQUIRED)
def test_a_beam_that_holds_all_finds_the_best_sequences_with_each_once(required):
    limit = 4
    scores = {
        tokens: sum(log_probs_after(before)[token] for before, token in zip((START, *tokens), tokens))
        for tokens in set(sequences(limit))
        if is_kept(tokens, required, limit)
    }
    best = sorted(scores.values())[::-1][:6]
    found = beam_search(
        step, (), [limit], max_length=limit, start_id=START, end_id=END, beam_size=VOCAB_SIZE**3, length_penalty=0.0,
        n_best=6, constraints=Constraints(exactly_once=np.array([required])),
    )  # fmt: skip
    np.testing.assert_allclose(ops.convert_to_numpy(found.scores)[0], best, rtol=1e-4)
    found = [tuple(tokens_of(found, i)[0]) for i in range(6)]
    assert len(set(found)) == 6 and set(found) <= set(scores)


def greedy_reference(required, limit):
    tokens, score = [], 0.0
    missing = {VOCAB_SIZE - 2 + i for i in range(2) if required[i]}
    while len(tokens) < limit and END not in tokens:
        log_probs = log_probs_after((START, *tokens)[-1])
        allowed = set(range(VOCAB_SIZE - 2)) | missing
        if missing:
            allowed = missing if len(missing) == limit - len(tokens) else allowed - {END}
        token = max(allowed, key=lambda each: log_probs[each])
        missing -= {token}
        tokens.append(token)
        score += log_probs[token]
    return tokens, score


@pytest.mark.parametrize("limit", [2, 3, 6])
def test_greedy_search_is_the_best_of_what_is_allowed(limit):
    arguments = dict(max_length=6, start_id=START, end_id=END, constraints=Constraints(exactly_once=np.array(REQUIRED)))
    found = greedy_search(step, (), [limit] * 4, **arguments)
    expected = [greedy_reference(required, limit) for required in REQUIRED]
    assert tokens_of(found) == [tokens for tokens, _ in expected]
    np.testing.assert_allclose(ops.convert_to_numpy(found.scores)[:, 0], [score for _, score in expected], rtol=1e-4)


def test_what_a_sequence_starts_with_counts():
    starts = ops.convert_to_tensor([[START, VOCAB_SIZE - 1, 2], [-1, START, 2]], "int32")
    constraints = Constraints(exactly_once=np.array([[True, True]] * 2))
    arguments = dict(max_length=8, start_id=starts, end_id=END, constraints=constraints)
    first, second = tokens_of(greedy_search(step, (), [8, 8], **arguments))
    assert is_kept(first, [True, False], 8) and is_kept(second, [True, True], 8)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.parametrize(
        "limits",
        [*(pytest.param(short, marks=pytest.mark.slow) for short in ([2, 2, 2, 2], [3, 1, 2, 2])), [9, 5, 7, 2]],
    )
    def test_every_search_keeps_the_promise_with_other_rules_and_rows_that_leave_the_batch(limits):
        rules = dict(no_repeat_ngram_size=2, repetition_penalty=2.0, min_length=2, forbidden_ids=[0])
        searches = {
            "greedy": greedy_search,
            "beam": lambda *args, **kwargs: beam_search(*args, **kwargs, beam_size=3),
            "sample": lambda *args, **kwargs: sample(*args, **kwargs, seed=3, top_k=2),
        }
        for name, search in searches.items():

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 2], tf.bool)])
            def run(limits, required, search=search):
                arguments = dict(max_length=tf.reduce_max(limits), start_id=START, end_id=END, drop_finished=True)
                return search(step, (), limits, constraints=Constraints(**rules, exactly_once=required), **arguments)

            found = run(tf.constant(limits), tf.constant(REQUIRED))
            for tokens, required, limit in zip(tokens_of(found), REQUIRED, limits):
                assert is_kept(tokens, required, limit), (name, tokens, required)
