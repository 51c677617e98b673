"""`stream_tokens` yields the tokens of `generate`, position by position."""

import keras
import numpy as np
import pytest
from greedy_by_calls import D_MODEL, PROMPTS, VOCAB_SIZE, randomized
from keras import layers, ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    LanguageModel,
    PositionalEmbedding,
    Transformer,
    TransformerConfig,
    generate,
    stream_tokens,
)
from keras_transformer.errors import ConfigError

SOURCE = [[4, 5, 6], [1, 2], [9, 8, 7, 6]]


def language_model(activation=None):
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    decoder = Decoder(1, 2, 16, relative_positions="rotary", sliding_window=3)
    return randomized(LanguageModel(embedding, decoder, layers.Dense(VOCAB_SIZE, activation)))


def recurrent_model():
    token_ids = keras.Input((None,), dtype="int32")
    hidden = layers.Embedding(VOCAB_SIZE, D_MODEL)(token_ids)
    hidden = layers.GRU(D_MODEL, return_sequences=True)(hidden)
    return randomized(keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden)))


def no_new_token_twice(token_ids, logits, position):
    seen = ops.any(ops.one_hot(token_ids, VOCAB_SIZE) > 0, axis=2)
    return ops.where(seen, -float("inf"), logits + ops.cast(position, "float32"))


def assert_streams_what_is_generated(model, source=None, padding_id=0, **options):
    options |= dict(padding_id=padding_id)
    generated = generate(model, PROMPTS, source, **options)
    columns = list(stream_tokens(model, PROMPTS, source, **options))
    assert all(column.shape == (3,) and column.dtype == "int32" for column in columns)
    # The stream ends with the longest text.
    assert len(columns) == generated.lengths.max()
    np.testing.assert_array_equal(np.stack(columns, axis=1), generated.token_ids[:, : len(columns)])
    return generated


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"stop_ids": [7, 2], "padding_id": None}, marks=pytest.mark.slow),
        {"temperature": 1.3, "top_k": 6, "top_p": 0.9, "seed": 5, "stop_ids": [2, 3]},
        pytest.param(
            {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "padding_id": 4},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["greedy", "stops", "sampled", "constraints"],
)
def test_the_tokens_are_those_of_generate(options):
    assert_streams_what_is_generated(language_model(), max_new_tokens=6, **options)


def test_texts_that_end_where_no_token_may_follow():
    # The ids that a prompt has no more, and padding is forbidden.
    generated = assert_streams_what_is_generated(
        language_model(), max_new_tokens=12, logits_processor=no_new_token_twice
    )
    assert generated.lengths.tolist() == [7, 9, 4]


@pytest.mark.slow
def test_full_passes():
    assert_streams_what_is_generated(recurrent_model(), max_new_tokens=4)


@pytest.mark.slow
def test_a_transformer():
    sizes = dict(source_vocab_size=11, target_vocab_size=11, d_model=D_MODEL, d_ff=16, num_heads=2)
    model = randomized(Transformer(TransformerConfig.preset("tiny", **sizes)))
    assert_streams_what_is_generated(model, SOURCE, max_new_tokens=4)


def test_mistakes_are_reported_by_the_call():
    for arguments, message in (
        (dict(prompts=[[]]), r"prompts\[0\] must be at least one token"),
        (dict(temperature=-1.0), "temperature must be positive"),
        (dict(prompts=[[11]]), "prompts must be token ids below 11"),
    ):
        with pytest.raises(ConfigError, match=message):
            stream_tokens(language_model(), **dict(prompts=PROMPTS, max_new_tokens=1) | arguments)


# PyTorch traces nothing.
if keras.backend.backend() != "torch":

    @pytest.mark.slow
    def test_nothing_is_traced_twice(monkeypatch):
        model = language_model()
        traced = []
        step = DecoderLayer.step
        monkeypatch.setattr(
            DecoderLayer, "step", lambda *args, **kwargs: traced.append(1) or step(*args, **kwargs)
        )
        options = dict(max_new_tokens=3, temperature=0.7)
        first = list(stream_tokens(model, PROMPTS, seed=1, **options))
        number = len(traced)
        # The prompt before the first step, and, for the function of a step, once more.
        assert number == 3
        list(stream_tokens(model, [[2, 3], [4], [5]], seed=2, **options | {"temperature": 2.0}))
        assert len(traced) == number
        again = list(stream_tokens(model, PROMPTS, seed=1, **options))
        np.testing.assert_array_equal(again, first)
        # New weights are used without a new trace.
        for weight in model.weights:
            weight.assign(np.zeros(weight.shape))
        tokens = list(stream_tokens(model, PROMPTS, seed=1, **options))
        assert len(traced) == number
        generated = generate(model, PROMPTS, seed=1, **options)
        np.testing.assert_array_equal(np.stack(tokens, axis=1), generated.token_ids)
