"""Sampling: its distribution and its numbers, against hand-worked and published values."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import Constraints, beam_search, sample
from keras_transformer.decoding.random_numbers import threefry, uniform_numbers
from keras_transformer.decoding.sampling import draw
from keras_transformer.errors import ConfigError

PROBABILITIES = np.array([0.3, 0.05, 0.25, 0.2, 0.12, 0.08])
# The 99.9th percentiles of the chi-square distribution with 1, 2, ... degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}
ARGUMENTS = dict(start_ids=0, end_ids=(), max_length=1)


def independent_step(probabilities):
    """The same probabilities after every token."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(probabilities)).astype("float32")

    def step(token_ids, parents, position, state):
        return ops.zeros_like(token_ids, dtype="float32")[..., None] + logits, state

    return step


def token_ids_of(samples):
    return ops.convert_to_numpy(samples.token_ids)[:, 0]


@pytest.mark.parametrize(
    "options, kept",
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 3}, [0, 2, 3]),
        # 0.3 + 0.25 = 0.55 is below 0.6, with 0.2 above.
        ({"top_p": 0.6}, [0, 2, 3]),
        ({"top_p": 0.29}, [0]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4, 5]),
        # Of the four that are kept, of 0.87 together, the first two have 0.63, the first three
        # 0.86.
        ({"top_k": 4, "top_p": 0.7}, [0, 2, 3]),
        ({"constraints": Constraints(forbidden_ids=[0])}, [1, 2, 3, 4, 5]),
        ({"constraints": Constraints(forbidden_ids=[0]), "top_k": 2}, [2, 3]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_20000_draws_have_the_probabilities_of_what_is_kept(options, kept):
    draws = 20_000
    samples = sample(
        independent_step(PROBABILITIES), (), [1] * draws, **ARGUMENTS, seed=11, **options
    )
    counts = np.bincount(token_ids_of(samples)[:, 0], minlength=6)
    assert set(np.flatnonzero(counts)) == set(kept)
    expected = np.zeros(6)
    expected[kept] = PROBABILITIES[kept] ** (1 / options.get("temperature", 1))
    expected *= draws / expected.sum()
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert len(kept) == 1 or statistic < CHI_SQUARE[len(kept) - 1]


def test_numbers_by_hand():
    # Cumulative: 0.5, 0.75, 1; in the order of probability: 2, 0, 1.
    logits = ops.convert_to_tensor(np.log([[0.25, 0.25, 0.5]] * 4).astype("float32"))
    numbers = ops.convert_to_tensor([[0.0], [0.3], [0.6], [0.99]])
    assert ops.convert_to_numpy(draw(logits, numbers)).ravel().tolist() == [0, 1, 2, 2]
    assert ops.convert_to_numpy(draw(logits, numbers, top_k=2)).ravel().tolist() == [2, 2, 2, 0]
    # A token with which 0.5 is reached is the last.
    assert ops.convert_to_numpy(draw(logits, numbers, top_p=0.5)).ravel().tolist() == [2, 2, 2, 2]
    assert ops.convert_to_numpy(draw(logits, numbers, top_p=0.51)).ravel().tolist() == [2, 2, 2, 0]


def test_random_numbers_are_those_of_the_published_generator():
    # The known answers of Random123 for threefry2x32 with 20 rounds.
    def bits(key, counter):
        signed = [np.array(value, "uint32").astype("int32") for value in (*key, *counter)]
        words = threefry(signed[:2], [ops.convert_to_tensor(value[None]) for value in signed[2:]])
        return [int(ops.convert_to_numpy(word)[0]) & 0xFFFFFFFF for word in words]

    assert bits([0, 0], [0, 0]) == [0x6B200159, 0x99BA4EFE]
    assert bits([0xFFFFFFFF] * 2, [0xFFFFFFFF] * 2) == [0x1CB996FC, 0xBB002BE7]
    assert bits([0x13198A2E, 0x03707344], [0x243F6A88, 0x85A308D3]) == [0xC4923A9C, 0x483DF7A0]


def test_random_numbers_depend_on_seed_row_and_position_only():
    def numbers_of(seed, num_rows=500, num_positions=40):
        return ops.convert_to_numpy(uniform_numbers(seed, ops.arange(num_rows), num_positions))

    numbers = numbers_of(3)
    np.testing.assert_array_equal(numbers_of(3, 2, 50)[:, :40], numbers[:2])
    np.testing.assert_array_equal(numbers_of(ops.array(3)), numbers)
    assert numbers.min() >= 0 and numbers.max() < 1 and len(np.unique(numbers)) > 19_900
    for other in (4, 3 + 2**40, -3):
        assert (numbers_of(other) != numbers).mean() > 0.99


def test_the_score_is_the_log_probability_before_temperature_and_restrictions():
    samples = sample(
        independent_step(PROBABILITIES),
        (),
        [3, 2],
        **ARGUMENTS | {"max_length": 3},
        seed=2,
        temperature=0.7,
        top_k=2,
    )
    scores = ops.convert_to_numpy(samples.scores)[:, 0]
    tokens = token_ids_of(samples)
    for row, length in enumerate((3, 2)):
        np.testing.assert_allclose(
            scores[row], np.log(PROBABILITIES[tokens[row, :length]]).sum(), rtol=1e-5
        )
        assert set(tokens[row, :length]) <= {0, 2}


def test_several_end_tokens_of_a_beam_search():
    logits = np.array([2.0, 1.5, -0.5, -1.0], "float32")
    # All that ends with 0 or 1 ends; 2 and 3 go on.
    options = dict(
        max_length=2, start_ids=3, end_ids=[0, 1], beam_size=3, length_penalty=0.0, n_best=3
    )
    samples = beam_search(independent_step(np.exp(logits)), (), [2], **options)
    log_probs = logits - np.log(np.exp(logits).sum())
    assert ops.convert_to_numpy(samples.token_ids)[0].tolist() == [[0, 0], [1, 0], [2, 0]]
    expected = [log_probs[0], log_probs[1], log_probs[2] + log_probs[0]]
    np.testing.assert_allclose(ops.convert_to_numpy(samples.scores)[0], expected, rtol=1e-5)


def test_any_temperature_above_0_draws_from_the_probabilities():
    arguments = ARGUMENTS | dict(seed=1, constraints=Constraints(forbidden_ids=[2]))
    step, limits = independent_step([0.2, 0.2, 0.2, 0.4]), np.ones(100)
    for temperature in (1e-38, 1e-300):
        samples = sample(step, (), limits, temperature=temperature, **arguments)
        assert set(token_ids_of(samples).flat) == {3}
    for temperature in (1e38, 1e300):
        samples = sample(step, (), limits, temperature=temperature, **arguments)
        assert set(token_ids_of(samples).flat) == {0, 1, 3}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"top_k": 0}, "top_k must be positive"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"end_ids": [-1]}, "end_ids must be at least 0"),
    ],
)
def test_arguments_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        sample(independent_step(PROBABILITIES), (), [1], **ARGUMENTS | {"seed": 1} | options)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @pytest.mark.slow
    def test_a_row_draws_the_same_when_others_leave_the_batch():
        def tokens(drop_finished):
            @tf.function(input_signature=[tf.TensorSpec([None], "int32")], autograph=False)
            def search(limits):
                return sample(
                    independent_step(PROBABILITIES), tf.zeros_like(limits), limits,
                    max_length=12, start_ids=0, end_ids=3, seed=5, drop_finished=drop_finished,
                )  # fmt: skip

            return token_ids_of(search(tf.fill([20], 12)))

        np.testing.assert_array_equal(tokens(True), tokens(False))
