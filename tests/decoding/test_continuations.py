"""The best continuations of hypotheses, and top-k, against NumPy's stable sort."""

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import log_softmax

from keras_transformer.decoding.continuations import continuations, top_k


@pytest.mark.parametrize("vocab_size", [1, 5, 97, 400, 408, 1000])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_continuations_are_those_of_a_stable_sort(vocab_size, k):
    # Whole numbers, so that there are equals among the highest; some forbidden; a row altogether.
    generator = np.random.default_rng(vocab_size)
    logits = generator.integers(2 + vocab_size // 5, size=(5, 3, vocab_size)).astype("float32")
    logits[logits == 0] = -np.inf
    logits[2, 1] = -np.inf
    log_probs = generator.normal(size=(5, 3)).astype("float32")
    logits_tensor = ops.convert_to_tensor(logits)
    top_scores, token_ids, is_dead_end = map(
        ops.convert_to_numpy,
        continuations(ops.convert_to_tensor(log_probs), logits_tensor, logits_tensor, k),
    )
    assert top_scores.shape == token_ids.shape == (5, 3, min(k, vocab_size))
    np.testing.assert_array_equal(is_dead_end, np.isneginf(logits).all(axis=-1))
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(token_ids, order)
    for i in np.ndindex(5, 3):
        expected = (log_probs[i] + log_softmax(logits[i]))[order[i]]
        np.testing.assert_allclose(top_scores[i], expected, rtol=1e-5, atol=1e-5)


# Rows of logits in which something is special, each a function of a random generator and the
# vocabulary size.
ROWS = {
    "all different": lambda generator, size: generator.permutation(size),
    "equals": lambda generator, size: generator.integers(0, 3, size),
    "all equal": lambda generator, size: np.zeros(size),
    "most forbidden": lambda generator, size: np.where(
        generator.random(size) < 5 / size, generator.integers(0, 2, size), -np.inf
    ),
    "all but the last forbidden": lambda generator, size: np.where(
        np.arange(size) == size - 1, -5.0, -np.inf
    ),
    "all forbidden": lambda generator, size: np.full(size, -np.inf),
    "the best at the end": lambda generator, size: np.arange(size),
    "the best at the beginning": lambda generator, size: -np.arange(size),
    "the lowest numbers": lambda generator, size: np.full(size, np.finfo("float32").min),
    "the end forbidden": lambda generator, size: np.where(
        np.arange(size) < size / 2, generator.normal(size=size), -np.inf
    ),
}


def special_rows(vocab_size):
    """Logits (batch, beam_size, vocab_size)."""
    generator = np.random.default_rng(vocab_size)
    rows = [row(generator, vocab_size) for row in ROWS.values()]
    return np.array(rows, "float32").reshape(-1, 2, vocab_size)


def assert_same_as_a_stable_sort(top_scores, logits, k):
    top_logits, token_ids = (ops.convert_to_numpy(x) for x in top_scores)
    assert (top_logits.dtype, token_ids.dtype) == ("float32", "int32")
    assert np.all((token_ids >= 0) & (token_ids < logits.shape[-1]))
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(token_ids, order)
    np.testing.assert_array_equal(top_logits, np.take_along_axis(logits, order, axis=-1))


# Primes, which groups of one size never divide, and powers, which they do.
@pytest.mark.parametrize("vocab_size", [2, 3, 31, 64, 997, 1024, 7993, 36997])
@pytest.mark.parametrize("k", [1, 8, 16])
def test_top_k_is_that_of_a_stable_sort(vocab_size, k):
    logits, k = special_rows(vocab_size), min(k, vocab_size)
    assert_same_as_a_stable_sort(top_k(logits, k), logits, k)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.slow
    @pytest.mark.parametrize("jit_compile", [False, True])
    @pytest.mark.parametrize("vocab_size", [997, 7993])
    def test_top_k_of_an_unknown_batch_is_that_of_a_stable_sort(vocab_size, jit_compile):
        logits = special_rows(vocab_size)
        graph = tf.function(
            lambda logits: top_k(logits, 8),
            input_signature=[tf.TensorSpec((None, 2, vocab_size), tf.float32)],
            jit_compile=jit_compile,
        )
        assert_same_as_a_stable_sort(graph(logits), logits, 8)

    @pytest.mark.parametrize("vocab_size", [1, 7, 16, 100, 1000])
    @pytest.mark.parametrize("k", [1, 8])
    def test_top_k_of_an_unknown_number_is_that_of_a_stable_sort(vocab_size, k):
        graph = tf.function(
            lambda logits: top_k(logits, k),
            input_signature=[tf.TensorSpec((None, 2, None), tf.float32)],
        )
        # With equals, and -inf.
        logits = (
            np.random.default_rng(vocab_size).integers(-1, 30, (3, 2, vocab_size)).astype("float32")
        )
        logits[logits < 0] = -np.inf
        highest, token_ids = (part.numpy() for part in graph(logits))
        n = min(k, vocab_size)
        order = np.argsort(-logits, axis=-1, kind="stable")[..., :n]
        is_alive = np.take_along_axis(logits, order, axis=-1) > -np.inf
        np.testing.assert_array_equal(highest[..., :n], np.take_along_axis(logits, order, axis=-1))
        np.testing.assert_array_equal(token_ids[..., :n][is_alive], order[is_alive])
        assert (highest[..., n:] == -np.inf).all() and (token_ids < vocab_size).all()
