"""A tiny Transformer learns with the package's loss and schedule to write digits backwards."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    MaskedAccuracy,
    MaskedLabelSmoothedCrossentropy,
    Perplexity,
    TransformerConfig,
    WarmupInverseSqrt,
    build_transformer,
)
from keras_transformer.decoding import beam_search, greedy_search

# That a model learns, test_translator.py shows too, with the model that conftest.py trains.
pytestmark = pytest.mark.slow

START, END, FIRST_DIGIT = 1, 2, 3
LONGEST = 8
VOCAB_SIZE = FIRST_DIGIT + 10


def digits_and_their_reverse(seed, count):
    """Source (count, LONGEST + 1) and target (count, LONGEST + 2) of 2 to LONGEST digits each."""
    generator = np.random.default_rng(seed)
    source = np.zeros((count, LONGEST + 1), "int32")
    target = np.zeros((count, LONGEST + 2), "int32")
    for row in range(count):
        length = generator.integers(2, LONGEST + 1)
        digits = generator.integers(FIRST_DIGIT, VOCAB_SIZE, size=length)
        source[row, : length + 1] = [*digits, END]
        target[row, : length + 2] = [START, *digits[::-1], END]
    return source, target


@pytest.fixture(scope="module")
def trained():
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        num_layers=1,
        d_model=64,
        d_ff=128,
        num_heads=4,
        dropout=0.0,
        norm_first=True,
    )
    model = build_transformer(config)
    schedule = WarmupInverseSqrt(config.d_model, warmup_steps=200, scale=0.4)
    model.compile(
        keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
        MaskedLabelSmoothedCrossentropy(0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
    )
    source, target = digits_and_their_reverse(seed=0, count=12800)
    inputs = {"source": source, "target": target[:, :-1]}
    history = model.fit(inputs, target[:, 1:], batch_size=128, epochs=6, verbose=0).history
    return model, {tuple(row) for row in source}, history


def unseen(seen):
    source, target = digits_and_their_reverse(seed=1, count=600)
    new = [tuple(row) not in seen for row in source]
    return source[new], target[new]


def test_training_reaches_every_token(trained):
    _, _, history = trained
    assert max(history["masked_accuracy"]) > 0.995
    assert min(history["perplexity"]) < 1.15


@pytest.mark.parametrize("beam_size", [1, 4])
def test_unseen_digits_are_written_backwards(trained, beam_size):
    model, seen, _ = trained
    source, target = unseen(seen)
    assert len(source) > 400
    max_length = LONGEST + 5
    step, state = model.start_decoding(source, beam_size, max_length)
    arguments = dict(max_length=max_length, start_id=START, end_id=END)
    max_lengths = np.full(len(source), max_length)
    if beam_size == 1:
        found = greedy_search(step, state, max_lengths, **arguments)
    else:
        found = beam_search(step, state, max_lengths, beam_size=beam_size, **arguments)
    expected = np.pad(target[:, 1:], ((0, 0), (0, max_length - LONGEST - 1)))
    exact = np.all(ops.convert_to_numpy(found.token_ids)[:, 0] == expected, axis=1)
    assert exact.mean() >= 0.98
