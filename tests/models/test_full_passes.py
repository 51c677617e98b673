"""Models that `generate` calls with all tokens so far at each step."""

import gc
import weakref

import keras
import numpy as np
import pytest
from greedy_by_calls import D_MODEL, PROMPTS, VOCAB_SIZE, assert_greedy, randomized
from keras import layers, ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    LanguageModel,
    PositionalEmbedding,
    generate,
)
from keras_transformer.errors import ConfigError
from keras_transformer.models import start_decoding
from keras_transformer.models.full_pass_decoding import FullPassDecoder

SOURCE = np.array([[4, 5, 6, 0], [1, 2, 0, 0], [9, 8, 7, 6]], "int32")


def language_model(activation=None):
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    projection = layers.Dense(VOCAB_SIZE, activation)
    return randomized(LanguageModel(embedding, Decoder(1, 2, 16), projection))


class Subclassed(keras.Model):
    """A model with its own `call`, of which nothing is known."""

    def __init__(self, model, **kwargs):
        super().__init__(**kwargs)
        self.model = model

    def call(self, token_ids, training=None):
        return self.model(token_ids, training=training)


class Recurrent(keras.Model):
    """A model that is built when it is first called."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(VOCAB_SIZE, D_MODEL, mask_zero=True)
        self.recurrent = layers.GRU(D_MODEL, return_sequences=True, name="gru")
        self.dense = layers.Dense(VOCAB_SIZE)

    def call(self, token_ids):
        return self.dense(self.recurrent(self.embedding(token_ids)))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"beam_size": 3, "length_penalty": 0.6, "stop_ids": [2, 3]},
        {"temperature": 1.5, "top_k": 6, "seed": 3, "repetition_penalty": 1.4},
        pytest.param({"no_repeat_ngram_size": 1, "beam_size": 2}, marks=pytest.mark.slow),
    ],
    ids=["greedy", "beam", "sampled", "constraints"],
)
def test_full_passes_and_steps_generate_the_same_tokens(options):
    model = language_model()
    expected = generate(model, PROMPTS, max_new_tokens=5, **options)
    generated = generate(Subclassed(model), PROMPTS, max_new_tokens=5, **options)
    np.testing.assert_array_equal(generated.token_ids, expected.token_ids)
    np.testing.assert_array_equal(generated.lengths, expected.lengths)
    np.testing.assert_allclose(generated.scores, expected.scores, rtol=1e-4, atol=1e-5)


class Bigrams(keras.layers.Layer):
    """A layer is a model, too."""

    def build(self, shape):
        self.table = self.add_weight(shape=(VOCAB_SIZE, VOCAB_SIZE), name="table")

    def call(self, token_ids):
        return ops.take(self.table, token_ids, axis=0)


def functional_stock_attention():
    token_ids = keras.Input((None,), dtype="int32")
    hidden = layers.Embedding(VOCAB_SIZE, D_MODEL)(token_ids)
    hidden += layers.MultiHeadAttention(2, 4)(hidden, hidden, use_causal_mask=True)
    return keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden))


MODELS = {
    "a recurrent model that was never called": Recurrent,
    "a sequential model that is not built": lambda: keras.Sequential(
        [
            layers.Embedding(VOCAB_SIZE, D_MODEL),
            layers.Conv1D(8, 2, padding="causal"),
            layers.Dense(VOCAB_SIZE),
        ]
    ),
    "stock attention in a functional model": functional_stock_attention,
    "a layer": Bigrams,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_generate_with_any_causal_keras_model_returns_the_tokens_of_its_calls(make):
    model = make()
    generate(model, PROMPTS, max_new_tokens=1)
    # New weights need no new compilation.
    randomized(model)
    assert_greedy(generate(model, PROMPTS, max_new_tokens=3), model)


@pytest.mark.slow
def test_probabilities_are_recognized():
    logits = language_model()
    probabilities = language_model("softmax")
    options = dict(max_new_tokens=4, top_k=5, temperature=2.0, seed=1)
    expected = generate(logits, PROMPTS, **options)
    for model in (Subclassed(logits), Subclassed(probabilities)):
        generated = generate(model, PROMPTS, **options)
        np.testing.assert_array_equal(generated.token_ids, expected.token_ids)
        np.testing.assert_allclose(generated.scores, expected.scores, rtol=1e-4, atol=1e-5)


def test_a_model_of_a_fixed_length_is_called_with_it():
    class FixedLength(layers.Layer):
        def call(self, inputs):
            assert inputs.shape[1] == 8
            return inputs + 0.2 * ops.cumsum(inputs, axis=1)

    token_ids = keras.Input((8,), dtype="int32")
    hidden = FixedLength()(PositionalEmbedding(VOCAB_SIZE, D_MODEL)(token_ids))
    model = randomized(keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden)))

    def call(token_ids):
        length = token_ids.shape[1]
        return model(np.pad(token_ids, ((0, 0), (0, 8 - length))))[:, :length]

    assert_greedy(generate(model, PROMPTS, max_new_tokens=3), call)
    with pytest.raises(ConfigError, match="need 9 positions; the model has max_length=8"):
        generate(model, PROMPTS, max_new_tokens=4)


# Models with a source.


class Translator(keras.Model):
    """A subclassed model of two arguments; the source is summed up."""

    def __init__(self):
        super().__init__()
        self.embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
        self.decoder = DecoderLayer(2, 16)
        self.dense = layers.Dense(VOCAB_SIZE)

    def call(self, words, text, shift=None):
        total = ops.sum(self.embedding(text), axis=1, keepdims=True)
        hidden = self.embedding(words) + total
        if shift is not None:
            hidden = hidden + shift[:, None, :]
        return self.dense(self.decoder(hidden))


@pytest.mark.parametrize(
    ("beam_size", "with_shift"),
    [
        (1, False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, False), (3, True))),
    ],
)
def test_a_source_is_a_further_argument(beam_size, with_shift):
    model = Translator()
    shift = np.random.default_rng(1).normal(size=(3, D_MODEL)).astype("float32")
    model(np.array([[1]]), np.array([[1]]))
    randomized(model)
    source = {"text": SOURCE, "shift": shift} if with_shift else SOURCE
    generated = generate(model, PROMPTS, source, max_new_tokens=3, beam_size=beam_size)
    alone = [
        generate(
            model,
            PROMPTS[row : row + 1],
            {name: array[row : row + 1] for name, array in source.items()}
            if with_shift
            else source[row : row + 1],
            max_new_tokens=3,
            beam_size=beam_size,
        )
        for row in range(3)
    ]
    for row in range(3):
        np.testing.assert_array_equal(generated.token_ids[row], alone[row].token_ids[0])
    if beam_size == 1:

        def call_of(row):
            further = (shift[row : row + 1],) if with_shift else ()
            return lambda tokens: model(tokens, SOURCE[row : row + 1], *further)

        assert_greedy(generated, *map(call_of, range(3)))


def two_inputs(names):
    first, second = (keras.Input((None,), dtype="int32", name=name) for name in names)
    hidden = layers.Embedding(VOCAB_SIZE, D_MODEL)(first)
    hidden = layers.GRU(D_MODEL, return_sequences=True)(hidden)
    total = ops.sum(layers.Embedding(VOCAB_SIZE, D_MODEL)(second), axis=1, keepdims=True)
    return randomized(keras.Model([first, second], layers.Dense(VOCAB_SIZE)(hidden + total)))


@pytest.mark.slow
def test_the_target_is_the_input_that_the_source_leaves():
    model = two_inputs(["words", "text"])
    calls = [lambda tokens, row=row: model([tokens, SOURCE[row : row + 1]]) for row in range(3)]
    generated = generate(model, PROMPTS, {"text": SOURCE}, max_new_tokens=3)
    assert_greedy(generated, *calls)
    named = two_inputs(["words", "source"])
    assert_greedy(generate(named, PROMPTS, SOURCE, max_new_tokens=3), *calls)
    message = r"source must be a dict from names to arrays.*has the inputs \['words', 'text'\]"
    with pytest.raises(ConfigError, match=message):
        generate(model, PROMPTS, SOURCE, max_new_tokens=3)


def test_several_inputs_without_names_are_refused():
    with pytest.raises(ConfigError, match="the inputs of .* must have names"):
        generate(two_inputs([None, "text"]), PROMPTS, {"text": SOURCE}, max_new_tokens=3)


# What is refused, and what is checked.


class Returning(keras.Model):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, token_ids):
        return self.function(ops.one_hot(token_ids, VOCAB_SIZE))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: (x, x), r"returns \(\(1, 1, 11\), \(1, 1, 11\)\)"),
        (lambda x: {"logits": x}, r"returns \{'logits': \(1, 1, 11\)\}"),
        (lambda x: x[:, 0], r"returns \(1, 11\)"),
        (lambda x: x[:, 1:], r"returns \(1, 0, 11\)"),
    ],
)
def test_a_model_that_returns_no_logits_is_refused(function, message):
    with pytest.raises(ConfigError, match="model must return one output, logits.*" + message):
        generate(Returning(function), [[1, 2], [3]], max_new_tokens=2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + ops.mean(x, axis=1, keepdims=True),
        # The length alone changes the logits.
        lambda x: x / ops.cast(ops.shape(x)[1], "float32"),
        lambda x: ops.concatenate([x[:, 1:], x[:, :1]], axis=1),
        lambda x: x + 0.01 * ops.flip(ops.cumsum(ops.flip(x, axis=1), axis=1), axis=1),
    ],
    ids=["mean", "length", "next", "little"],
)
def test_a_model_that_is_not_causal_is_refused(function):
    message = r"model must be causal: the logits of 'returning.*' \(Returning\) at a position"
    with pytest.raises(ConfigError, match=message):
        generate(Returning(function), [[1, 2], [3]], max_new_tokens=2)


def test_a_single_token_after_prompts_of_one_length_needs_no_causal_model():
    def mean(x):
        return 9.0 * x + ops.mean(x, axis=1, keepdims=True)

    assert generate(Returning(mean), [[1, 2]], max_new_tokens=1).token_ids.tolist() == [[2]]


@pytest.mark.slow
def test_rounding_is_no_look_ahead():
    token_ids = keras.Input((None,), dtype="int32")
    hidden = PositionalEmbedding(VOCAB_SIZE, 64, dtype="mixed_bfloat16")(token_ids)
    for _ in range(3):
        hidden = DecoderLayer(4, 64, dtype="mixed_bfloat16")(hidden)
    dense = layers.Dense(VOCAB_SIZE, dtype="float32")
    half = Subclassed(randomized(keras.Model(token_ids, dense(hidden))))
    generated = generate(half, PROMPTS, max_new_tokens=4)
    assert generated.lengths.tolist() == [4, 4, 4]


def test_a_model_is_examined_once_for_each_shape(monkeypatch):
    model = Subclassed(language_model())
    examined = []
    outputs = FullPassDecoder._outputs
    monkeypatch.setattr(
        FullPassDecoder, "_outputs", lambda *args: examined.append(args[1].shape) or outputs(*args)
    )
    for _ in range(2):
        generate(model, PROMPTS, max_new_tokens=2)
        generate(model, PROMPTS[::-1], max_new_tokens=2)
    # The shortest prompt, alone and before other tokens.
    assert examined == [(1, 1), (1, 7)]


def test_a_model_is_not_kept():
    model = Subclassed(language_model())
    generate(model, PROMPTS, max_new_tokens=2)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


# Steps for searches of one's own.


@pytest.mark.parametrize("max_length", [None, 3])
def test_steps_for_other_searches(max_length):
    model = Subclassed(language_model())
    prefix = ops.convert_to_tensor([[3, 4], [-1, 7], [-1, -1]], "int32")
    step, state = start_decoding(model, None, 2, max_length, prefix)
    parents = [[0, 1], [1, 0], [1, 1]]
    tokens = [[1, 2], [5, 6], [8, 9]]
    texts = [[[3, 4], [3, 4]], [[7], [7]], [[], []]]
    for position in range(3):
        texts = [
            [row[parent] + [tokens[i][j]] for j, parent in enumerate(parents[i])]
            for i, row in enumerate(texts)
        ]
        logits, state = step(
            ops.convert_to_tensor(tokens, "int32"),
            ops.convert_to_tensor(parents, "int32"),
            ops.convert_to_tensor(position, "int32"),
            state,
        )
        for i, j in np.ndindex(3, 2):
            expected = ops.convert_to_numpy(model(np.array([texts[i][j]])))[0, -1]
            actual = ops.convert_to_numpy(logits)[i, j]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_model_without_a_source_needs_a_prefix():
    with pytest.raises(ConfigError, match="prefix must be given to a model without a source"):
        start_decoding(Subclassed(language_model()))


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    def test_steps_in_a_graph_of_unknown_sizes():
        model = Subclassed(language_model())

        @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False)
        def last_logits(token_ids):
            step, state = start_decoding(model, prefix=token_ids[:, :-1])
            newest = token_ids[:, -1:]
            return step(newest, tf.zeros_like(newest), tf.constant(0), state)[0]

        for token_ids in ([[3], [4]], [[5, 6, 7]]):
            token_ids = np.array(token_ids, "int32")
            expected = model(token_ids)[:, -1:]
            np.testing.assert_allclose(last_logits(token_ids), expected, rtol=1e-4, atol=1e-4)
