"""A search among some tokens equals the search of all, with logits of -inf for the others."""

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import END, START, assert_same, initial_state, random_tables, step

from keras_transformer.decoding import Constraints, beam_search, greedy_search, sample

VOCAB_SIZE = 61
MAX_LENGTHS = np.array([9, 4, 0, 7], "int32")
# Tokens that the four sequences begin with, all of them among the candidates.
BEGINNINGS = np.array([[-1, -1, 0], [-1, 0, 5], [0, 5, 7], [-1, 0, 58]], "int32")
CANDIDATES = np.array([0, 1, 2, 3, 5, 7, 8, 20, 21, 22, 40, 58, 60], "int32")

SEARCHES = {
    "beam": lambda *args, **options: beam_search(*args, beam_size=3, n_best=3, **options),
    "greedy": greedy_search,
    "sample": lambda *args, **options: sample(*args, seed=7, **options),
    "top-k": lambda *args, **options: sample(*args, seed=8, top_k=5, **options),
    "top-p": lambda *args, **options: sample(*args, seed=9, top_p=0.8, **options),
}
CONSTRAINTS = [
    {},
    dict(forbidden_ids=(0, 2)),
    dict(min_length=4, forbidden_ids=(2,), no_repeat_ngram_size=3, repetition_penalty=1.2),
]


def tables_of(candidates, seed=3):
    tables = random_tables(seed, 4, VOCAB_SIZE, forbidden=0.1)
    tables[..., np.setdiff1d(np.arange(VOCAB_SIZE), candidates)] = -np.inf
    return tables


def search_both(
    kind, tables, candidates, constraints, start_ids=START, max_lengths=MAX_LENGTHS, **options
):
    """Searches all tokens, and by a step that computes the logits of the candidates alone."""

    def candidates_step(token_ids, parents, position, state):
        logits, state = step(token_ids, parents, position, state)
        return ops.take(logits, candidates, axis=-1), state

    search, state = SEARCHES[kind], initial_state(tables, 3 if kind == "beam" else 1)
    options |= dict(max_length=9, start_ids=start_ids, end_ids=END)
    among_candidates = Constraints(**constraints, candidates=candidates)
    return (
        search(step, state, max_lengths, **options, constraints=Constraints(**constraints)),
        search(candidates_step, state, max_lengths, **options, constraints=among_candidates),
    )


@pytest.mark.parametrize("constraints", CONSTRAINTS[::2], ids=str)
@pytest.mark.parametrize("kind", SEARCHES)
def test_candidates_are_searched_as_if_the_others_could_not_be(kind, constraints):
    start_ids, candidates = map(ops.convert_to_tensor, (BEGINNINGS, CANDIDATES))
    expected, hypotheses = search_both(
        kind, tables_of(CANDIDATES), candidates, constraints, start_ids
    )
    assert_same(hypotheses, expected)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.slow
    @pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
    @pytest.mark.parametrize("kind", SEARCHES)
    def test_in_a_graph_the_number_of_candidates_may_be_unknown(kind, constraints):
        signature = [
            tf.TensorSpec((None, None, None), tf.float32),
            tf.TensorSpec((None,), tf.int32),
        ]

        @tf.function(input_signature=[*signature, signature[1]], autograph=False)
        def graph(tables, candidates, max_lengths):
            tables = tf.ensure_shape(tables, (None, None, VOCAB_SIZE))
            return search_both(
                kind, tables, candidates, constraints, max_lengths=max_lengths, drop_finished=True
            )

        # Three candidates are fewer than a beam of 3 compares, and 17 more than a group of top-k
        # has.
        everything = np.arange(VOCAB_SIZE, dtype="int32")
        for candidates in (CANDIDATES[:3], CANDIDATES, everything[:17], everything):
            expected, hypotheses = graph(tables_of(candidates), candidates, MAX_LENGTHS)
            assert_same(hypotheses, expected)
