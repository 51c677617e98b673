"""Masks by hand, and those of Keras; what padding and labels leave out is tested where it
counts."""

import keras
import numpy as np
from keras import ops

from keras_transformer.masks import causal_mask, combine, implicit_mask, sliding_window_mask


def test_causal_mask_shows_a_position_itself_and_what_is_before_it():
    expected = [[[True, False, False], [True, True, False], [True, True, True]]]
    assert ops.convert_to_numpy(causal_mask(np.arange(3), np.arange(3))).tolist() == expected


def test_combine_is_the_conjunction_of_masks_that_broadcast():
    rows, columns = np.array([[[True], [False]]]), np.array([[[1, 1, 0]]])
    combined = ops.convert_to_numpy(combine(rows, None, columns))
    assert combined.dtype == bool
    assert combined.tolist() == [[[True, True, False], [False, False, False]]]
    assert combine(None, None) is None


def test_a_tensor_without_a_mask_has_no_implicit_mask():
    assert implicit_mask(ops.ones((1, 2))) is None


def test_the_implicit_mask_is_the_one_that_keras_layers_attach():
    # Where Keras attaches it is not public, and may change with a new release.
    token_ids = np.array([[5, 2, 0], [0, 7, 0]])
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    mask = implicit_mask(keras.layers.Dense(3)(embedding(token_ids)))
    assert ops.convert_to_numpy(mask).tolist() == (token_ids != 0).tolist()
    symbolic = implicit_mask(embedding(keras.Input((7,), dtype="int32")))
    assert (symbolic.shape, symbolic.dtype) == ((None, 7), "bool")


def test_sliding_window_mask_by_hand():
    # Three positions centred on position 4, then on 5; causal: itself and the one before.
    queries, keys = np.array([4, 5]), np.array([3, 4, 5, 6, 7])
    assert ops.convert_to_numpy(sliding_window_mask(queries, keys, 2)).astype(int).tolist() == [
        [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    ]
    causal = sliding_window_mask(queries, keys, 2, use_causal_mask=True)
    assert ops.convert_to_numpy(causal).astype(int).tolist() == [[[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]]
