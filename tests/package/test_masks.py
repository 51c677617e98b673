import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.keras_versions import implicit_mask
from keras_transformer.losses import label_mask, token_mask, token_weights
from keras_transformer.masks import causal_mask, combine, neighborhood_mask, padding_mask


def test_padding_is_token_id_0():
    mask = padding_mask(np.array([[5, 2, 0], [0, 7, 0]]))
    assert ops.convert_to_numpy(mask).tolist() == [[True, True, False], [False, True, False]]


def test_labels_count_above_0():
    mask = label_mask(np.array([[5, 2, 0], [-100, 7, -1]]))
    assert ops.convert_to_numpy(mask).tolist() == [[True, True, False], [False, True, False]]


@pytest.mark.parametrize(
    ("padding_id", "ignore_class", "expected"),
    [
        (None, None, [True, True, True, True, False]),
        (5, None, [False, True, True, True, False]),
        (0, 7, [True, False, False, True, False]),
        (None, 0, [True, False, True, True, False]),
        (5, -100, [False, True, True, True, False]),
    ],
)
def test_labels_that_count_with_another_padding_id_or_an_ignored_class(padding_id, ignore_class, expected):
    mask = label_mask(np.array([5, 0, 7, 2, -1]), padding_id, ignore_class)
    assert ops.convert_to_numpy(mask).tolist() == expected


def test_padding_may_be_another_id_or_none():
    token_ids = np.array([[5, 2, 0]])
    assert ops.convert_to_numpy(padding_mask(token_ids, 5)).tolist() == [[False, True, True]]
    assert ops.convert_to_numpy(padding_mask(token_ids, None)).tolist() == [[True, True, True]]


def test_the_implicit_mask_of_logits_counts_where_no_label_is_padding():
    logits = keras.layers.Embedding(9, 4, mask_zero=True)(np.array([[5, 2, 0]]))
    labels = np.array([[0, -1, 3]])
    assert ops.convert_to_numpy(token_mask(labels, logits, None)).tolist() == [[True, False, False]]
    assert ops.convert_to_numpy(token_mask(labels, logits, 0)).tolist() == [[False, False, True]]


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3)])
def test_weights_of_samples_or_of_tokens_multiply_tokens(shape):
    weights = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    product = ops.multiply(np.ones((2, 3), "float32"), token_weights(weights, ops.ones((2, 3))))
    expected = np.broadcast_to(weights.reshape(2, -1), (2, 3))
    assert ops.convert_to_numpy(product).tolist() == expected.tolist()


def test_causal_mask_shows_a_position_itself_and_what_is_before_it():
    assert ops.convert_to_numpy(causal_mask(3)).tolist() == [
        [[True, False, False], [True, True, False], [True, True, True]]
    ]


def test_causal_mask_of_unequal_lengths_counts_both_from_the_start():
    # Position i sees j <= i, as in Keras.
    more_keys, fewer_keys = causal_mask(2, 4), causal_mask(3, 2)
    assert ops.convert_to_numpy(more_keys).tolist() == [[[True, False, False, False], [True, True, False, False]]]
    assert ops.convert_to_numpy(fewer_keys).tolist() == [[[True, False], [True, True], [True, True]]]


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


def test_neighborhood_mask_by_hand():
    # Three positions centred on position 4, then on 5; causal: itself and the one before.
    queries, keys = np.array([4, 5]), np.array([3, 4, 5, 6, 7])
    assert ops.convert_to_numpy(neighborhood_mask(queries, keys, 3)).astype(int).tolist() == [
        [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    ]
    causal = neighborhood_mask(queries, keys, 3, use_causal_mask=True)
    assert ops.convert_to_numpy(causal).astype(int).tolist() == [[[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]]
