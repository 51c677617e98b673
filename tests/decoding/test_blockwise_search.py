"""Blockwise search against greedy search, with drafts that are right, wrong, and anything between."""

import contextlib
import math

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import END, NEVER, NUM_ROWS, START, as_arrays, initial_state, random_tables, step
from test_constraints import CONSTRAINTS, VOCAB_SIZE, constraints_of

from keras_transformer.decoding import blockwise_search, greedy_search

DRAFTS = {
    "right": lambda logits, row: ops.argmax(logits, axis=-1),
    "wrong": lambda logits, row: ops.argmin(logits, axis=-1),
    "sometimes right": lambda logits, row: ops.where(row % 3 > 0, ops.argmax(logits, axis=-1), 2),
    "always the end": lambda logits, row: ops.full_like(row, END),
}


def block_step(block_size, draft, calls=None):
    """The tables of `searches_in_python` as a step function: its state is the hash after each token of the block."""

    def step(token_ids, num_kept, positions, state):
        if calls is not None:
            calls.append(1)
        tables, rows = state
        row = ops.take_along_axis(rows, num_kept - 1, axis=1)
        block, rows = [token_ids], []
        for i in range(block_size):
            row = ops.where(positions + i == 0, 0, (row * tables.shape[-1] + block[-1] + 1) % NUM_ROWS)
            rows.append(row)
            logits = ops.take_along_axis(tables, row[..., None], axis=1)
            block.append(ops.cast(draft(logits, row), "int32"))
        rows = ops.concatenate(rows, axis=1)
        logits = ops.take_along_axis(tables, rows[..., None], axis=1)
        return ops.concatenate(block[1:-1], axis=1), logits, (tables, rows)

    return step


def assert_equal_to_greedy(tables, max_lengths, block_size, draft, start_id=START, end_id=END, **constraints):
    arguments = dict(
        max_length=max([*max_lengths, 1]),
        start_id=start_id,
        end_id=end_id,
        constraints=constraints_of(len(tables), **constraints),
    )
    expected = greedy_search(step, initial_state(tables, 1), max_lengths, **arguments)
    state = initial_state(tables, block_size)
    actual = blockwise_search(block_step(block_size, draft), state, max_lengths, block_size=block_size, **arguments)
    for array, expected_array in zip(as_arrays(actual)[:2], as_arrays(expected)[:2]):
        np.testing.assert_array_equal(array, expected_array)
    np.testing.assert_allclose(as_arrays(actual)[2], as_arrays(expected)[2], rtol=1e-5, atol=1e-6)
    return as_arrays(actual)


@pytest.mark.parametrize("drafts", DRAFTS)
@pytest.mark.parametrize("block_size", [2, 3, 5])
def test_the_result_is_that_of_greedy_search_whatever_is_drafted(block_size, drafts):
    tables = random_tables(block_size, 24, 7)
    _, lengths, _ = assert_equal_to_greedy(tables, [i % 11 for i in range(24)], block_size, DRAFTS[drafts])
    assert len(np.unique(lengths)) > 5


@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
def test_constraints_are_those_of_greedy_search(constraints):
    tables = random_tables(5, 16, VOCAB_SIZE)
    assert_equal_to_greedy(tables, [8] * 16, 4, DRAFTS["sometimes right"], **constraints)


def test_the_tokens_at_the_start_count_for_constraints():
    tables = random_tables(6, 3, VOCAB_SIZE)
    start_ids = ops.convert_to_tensor(np.array([[-1, -1, 0], [-1, 3, 2], [2, 3, 2]], "int32"))
    assert_equal_to_greedy(tables, [9] * 3, 3, DRAFTS["right"], start_ids, no_repeat_ngram_size=2)


def test_a_sequence_without_a_possible_token_ends():
    tables = random_tables(7, 40, 3, forbidden=0.5)
    token_ids, lengths, scores = assert_equal_to_greedy(tables, [6] * 40, 3, DRAFTS["right"])
    is_impossible = scores == -math.inf
    assert 0 < is_impossible.sum() < 40
    assert not lengths[is_impossible].any() and not token_ids[is_impossible].any()


def test_equal_logits_are_the_first_token():
    _, lengths, _ = assert_equal_to_greedy(np.zeros((2, NUM_ROWS, 5), "float32"), [4, 7], 3, DRAFTS["right"], end_id=())
    np.testing.assert_array_equal(lengths, [[4], [7]])


@pytest.mark.parametrize(("drafts", "num_steps"), [("right", 3), ("wrong", 12)])
def test_right_drafts_save_steps(drafts, num_steps):
    calls = []
    is_jax = keras.backend.backend() == "jax"
    with __import__("jax").disable_jit() if is_jax else contextlib.nullcontext():
        blockwise_search(
            block_step(4, DRAFTS[drafts], calls), initial_state(random_tables(1, 2, 7), 4), [12, 12],
            block_size=4, max_length=12, start_id=START, end_id=NEVER,
        )  # fmt: skip
    assert len(calls) == num_steps
