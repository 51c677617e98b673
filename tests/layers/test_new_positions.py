"""`NewPositions`, which every `step` method receives."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import Decoder, MultiHeadAttention, NewPositions

INPUTS = np.random.default_rng(0).normal(size=(2, 1, 8)).astype("float32")
MASK = np.ones((2, 1, 1), bool)


def calls_in_a_step(**arguments):
    """Returns how often a step of two layers calls the function for the entries' positions."""
    decoder = Decoder(2, 2, 8, **arguments)
    decoder.build(INPUTS.shape)
    calls = []

    def entry_position_ids():
        calls.append(1)
        return ops.zeros((1, 1), "int32")

    positions = NewPositions(0, MASK, np.zeros((1, 1), "int32"), entry_position_ids)
    decoder.step(ops.convert_to_tensor(INPUTS), decoder.init_cache(2), positions)
    return len(calls)


@pytest.mark.parametrize(
    "arguments",
    [dict(relative_positions="alibi"), dict(relative_positions="t5"), dict(sliding_window=2)],
    ids=str,
)
def test_step_with_layers_that_need_entry_positions_computes_them_once(arguments):
    assert calls_in_a_step(**arguments) == 1


@pytest.mark.parametrize("arguments", [{}, dict(relative_positions="rotary")], ids=str)
def test_step_with_layers_that_need_no_entry_positions_does_not_compute_them(arguments):
    assert calls_in_a_step(**arguments) == 0


def test_step_with_a_wrong_first_entry_in_a_growing_cache_ignores_it():
    layer = MultiHeadAttention(2, 4, relative_positions="t5")
    layer.build(INPUTS.shape, INPUTS.shape)
    inputs = ops.convert_to_tensor(INPUTS)
    outputs = [layer.step(inputs, layer.init_cache(2), NewPositions(i))[0] for i in (0, 7)]
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, outputs))
