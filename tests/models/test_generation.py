"""`generate`: against one call per position without a cache, against exhaustive search, on every
backend."""

import gc
import importlib.util
import pathlib
import weakref

import keras
import numpy as np
import pytest
from fresh_process import run_python
from greedy_by_calls import D_MODEL, PROMPTS, VOCAB_SIZE, assert_greedy, randomized
from keras import ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    LanguageModel,
    MaskedLabelSmoothedCrossentropy,
    PositionalEmbedding,
    Transformer,
    TransformerConfig,
    generate,
)
from keras_transformer.errors import ConfigError
from keras_transformer.models import start_decoding


@keras.saving.register_keras_serializable("test_generation")
class WiderDecoder(Decoder):
    """Each layer is wider than the one before."""

    def make_layer(self, index):
        config = super().make_layer(index).get_config()
        return self.layer_class.from_config({**config, "d_ff": self.d_ff * (index + 1)})


def language_model(relative_positions=None, sliding_window=None, padding_id=0, max_length=None):
    positions = "learned" if max_length else None if relative_positions else "sinusoidal"
    return randomized(
        LanguageModel(
            PositionalEmbedding(
                VOCAB_SIZE, D_MODEL, positions, max_length=max_length, padding_id=padding_id
            ),
            Decoder(
                2,
                2,
                16,
                norm_first=True,
                relative_positions=relative_positions,
                sliding_window=sliding_window,
            ),
        )
    )


def tiny_transformer(**options):
    sizes = dict(
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        d_model=D_MODEL,
        d_ff=16,
        num_heads=2,
    )
    return randomized(Transformer(TransformerConfig.preset("tiny", **sizes, **options)))


SOURCE = np.array([[4, 5, 6, 0], [1, 2, 0, 0], [9, 8, 7, 6]])


def log_probs_of(model, sequence, source=None):
    """Those of the next token after each token of a sequence, by one call for all of it; the
    padding id forbidden."""
    inputs = np.array([sequence])
    if isinstance(model, Transformer):
        inputs = {"source": source[None], "target": inputs}
    outputs = ops.convert_to_numpy(model(inputs))[0].astype("float64")
    return outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    "make, source",
    [
        pytest.param(language_model, None, marks=pytest.mark.slow),
        pytest.param(lambda: language_model(sliding_window=2), None, marks=pytest.mark.slow),
        (lambda: language_model("rotary", sliding_window=2), None),
        pytest.param(lambda: language_model("alibi"), None, marks=pytest.mark.slow),
        pytest.param(lambda: language_model("t5"), None, marks=pytest.mark.slow),
        pytest.param(tiny_transformer, SOURCE, marks=pytest.mark.slow),
    ],
    ids=[
        "sinusoidal",
        "window",
        "rotary",
        "alibi",
        "t5",
        "Transformer",
    ],
)
def test_generate_greedily_returns_the_best_tokens_of_one_call(make, source):
    model = make()
    generated = generate(model, PROMPTS, source, max_new_tokens=6)
    # One call for prompt and tokens tells whether each token was the best after those before it.
    for row, (prompt, tokens) in enumerate(zip(PROMPTS, generated.token_ids, strict=True)):
        tokens = tokens[: generated.lengths[row]]
        sequence = prompt + list(tokens[:-1])
        log_probs = log_probs_of(model, sequence, None if source is None else source[row])[
            len(prompt) - 1 :
        ]
        assert log_probs[:, 1:].argmax(-1).tolist() == [token - 1 for token in tokens]
        score = sum(log_probs[place, token] for place, token in enumerate(tokens))
        np.testing.assert_allclose(generated.scores[row], score, rtol=1e-4, atol=1e-4)


def test_a_transformer_needs_a_source_of_known_tokens_and_as_many_positions_as_it_has():
    model = tiny_transformer(positions="learned", max_length=4)
    for arguments, message in (
        ({}, "source must be given to a Transformer; received source=None"),
        ({"source": [[3], [20]]}, "source must be token ids below 11; received source=20"),
        ({"source": [[3], [-1]]}, "source must be token ids of at least 0"),
        ({"source": {"source": SOURCE[:2]}}, "source must be a list of lists of token ids"),
        ({"source": SOURCE[:2] + 0.5}, "source must be a list of lists of token ids"),
        ({"source": 5}, "source must be a list of lists of token ids"),
        (
            {"source": SOURCE},
            r"source must be an array with a row for each of 2 prompts; received source of shape "
            r"\(3, 4\)",
        ),
        (
            {"source": [[3], [4] * 5]},
            "source must be at most 4 tokens long; received source of 5 tokens",
        ),
        (
            {"source": SOURCE[:2], "max_new_tokens": 5},
            "need 5 positions; the model has max_length=4",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            generate(model, [[1], [1]], **{"max_new_tokens": 2} | arguments)


def test_generate_with_integers_of_numpy_equals_those_of_python():
    options = dict(max_new_tokens=2, stop_ids=2, padding_id=0, no_repeat_ngram_size=2, beam_size=2)
    model = language_model()
    of_numpy = {name: np.int64(value) for name, value in options.items()}
    generated = generate(model, PROMPTS, **of_numpy)
    assert generated.token_ids.dtype == np.int32
    expected = generate(model, PROMPTS, **options)
    assert generated.token_ids.tolist() == expected.token_ids.tolist()


def test_a_language_model_of_replaced_parts_is_saved_loads_and_generates_the_same(tmp_path):
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL, padding_id=None)
    projection = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(VOCAB_SIZE)])
    model = randomized(LanguageModel(embedding, WiderDecoder(2, 2, 8), projection))
    assert [layer.d_ff for layer in model.decoder.layers] == [8, 16]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is LanguageModel and type(loaded.decoder) is WiderDecoder
    expected, generated = (
        generate(each, PROMPTS, max_new_tokens=4, padding_id=None) for each in (model, loaded)
    )
    assert generated.token_ids.tolist() == expected.token_ids.tolist()
    assert_greedy(generate(model, PROMPTS, max_new_tokens=4), model)


def test_a_language_model_with_tied_projection_shares_its_table_after_loading(tmp_path):
    model = language_model()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.output_projection.embedding is loaded.embedding
    assert loaded.count_params() == model.count_params()
    clone = LanguageModel.from_config(model.get_config())
    assert clone.output_projection.embedding is clone.embedding


def test_a_language_model_trains_with_fit():
    model = language_model()
    before = [ops.convert_to_numpy(weight) for weight in model.trainable_weights]
    rows = np.array([[3, 4, 5, 6], [7, 8, 9, 0]])
    model.compile(keras.optimizers.SGD(0.1), MaskedLabelSmoothedCrossentropy(), run_eagerly=True)
    model.fit(rows[:, :-1], rows[:, 1:], verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(ops.convert_to_numpy(weight) != old), weight.path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: LanguageModel(keras.layers.Embedding(9, 8), Decoder(1, 2, 8)),
            "embedding must be a PositionalEmbedding; received Embedding",
        ),
        (
            lambda: LanguageModel(PositionalEmbedding(9, 8), Encoder(1, 2, 8)),
            "decoder must be a Decoder; received Encoder",
        ),
        (
            lambda: language_model().start_decoding(),
            "prefix must be given to a LanguageModel; received prefix=None",
        ),
        (
            lambda: generate(language_model(), [[1]], [[1]], max_new_tokens=1),
            "source must be None for a LanguageModel",
        ),
        (
            lambda: generate(language_model(), [[1], [0, 2]], max_new_tokens=1, padding_id=None),
            "prompts must not contain token 0, which the model masks as padding",
        ),
        (
            lambda: generate(object(), [[1]], max_new_tokens=1),
            "model must be a Keras model or an object with a method start_decoding; received object",
        ),
    ],
)
def test_mistakes_with_models_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_token_that_the_model_masks_is_never_generated():
    model = language_model()
    generated = generate(model, PROMPTS, max_new_tokens=2, padding_id=None, beam_size=3)
    assert generated.token_ids.tolist() == (
        generate(model, PROMPTS, max_new_tokens=2, beam_size=3).token_ids.tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [language_model, lambda: language_model("rotary", 2)], ids=["sinusoidal", "rotary"]
)
def test_beam_search_over_prompts_is_exhaustive_search_if_the_beam_is_wide(make):
    model, prompts, stop = make(), [[3, 4], [7]], 2
    generated = generate(model, prompts, max_new_tokens=2, beam_size=VOCAB_SIZE, stop_ids=stop)
    for row, prompt in enumerate(prompts):
        candidates = []
        for first in range(1, VOCAB_SIZE):
            log_probs = log_probs_of(model, [*prompt, first])[-2:]
            if first == stop:
                candidates.append((log_probs[0, first], [first]))
            else:
                candidates += [
                    (log_probs[0, first] + log_probs[1, next], [first, next])
                    for next in range(1, VOCAB_SIZE)
                ]
        score, tokens = max(candidates)
        assert generated.token_ids[row, : generated.lengths[row]].tolist() == tokens
        np.testing.assert_allclose(generated.scores[row], score, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"beam_size": 3}, marks=pytest.mark.slow),
        {"repetition_penalty": 1.5, "beam_size": 2},
        pytest.param({"temperature": 1.2, "top_k": 5, "seed": 4}, marks=pytest.mark.slow),
    ],
    ids=["greedy", "beam", "penalty", "sampled"],
)
def test_a_prompt_in_a_batch_gives_what_it_gives_alone(options):
    model = language_model()
    together = generate(model, PROMPTS, max_new_tokens=5, **options)
    # The numbers that are drawn depend on the row.
    rows = range(1) if "seed" in options else range(3)
    for row in rows:
        alone = generate(model, PROMPTS[row : row + 1], max_new_tokens=5, **options)
        np.testing.assert_array_equal(alone.token_ids[0], together.token_ids[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-5)


@pytest.mark.slow
def test_prompts_may_be_an_array_padded_on_either_side():
    model = language_model()
    expected = generate(model, PROMPTS, max_new_tokens=3).token_ids
    for side in (0, 1):
        array = np.zeros((3, 7), int)
        for row, prompt in zip(array, PROMPTS, strict=True):
            row[slice(len(prompt)) if side else slice(7 - len(prompt), 7)] = prompt
        np.testing.assert_array_equal(generate(model, array, max_new_tokens=3).token_ids, expected)


@pytest.mark.slow
def test_a_text_ends_with_any_stop_token():
    model = language_model()
    free = generate(model, PROMPTS, max_new_tokens=6).token_ids
    stop_ids = sorted({int(free[0, 1]), int(free[2, 2])})
    stopped = generate(model, PROMPTS, max_new_tokens=6, stop_ids=stop_ids)
    for row in range(3):
        places = [place for place, token in enumerate(free[row]) if token in stop_ids]
        length = places[0] + 1 if places else 6
        assert stopped.lengths[row] == length
        assert stopped.token_ids[row].tolist() == [*free[row, :length], *[0] * (6 - length)]


@pytest.mark.slow
def test_seeds_forbidden_tokens_and_prompts_that_are_alike():
    model = language_model()
    options = dict(max_new_tokens=8, temperature=2.0, forbidden_ids=[5, 6])
    first, again, other = (generate(model, [[3]] * 4, seed=seed, **options) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.token_ids, again.token_ids)
    assert (first.token_ids != other.token_ids).any()
    assert len({tuple(row) for row in first.token_ids.tolist()}) == 4
    assert not np.isin(first.token_ids, [0, 5, 6]).any()


@pytest.fixture
def monotonous_model():
    """Its logits are the same after every token: greedily, 10 again and again."""
    projection = keras.layers.Dense(VOCAB_SIZE, kernel_initializer="zeros")
    model = LanguageModel(PositionalEmbedding(VOCAB_SIZE, 4), Decoder(1, 1, 4), projection)
    projection.bias.assign([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompts", "options", "expected"),
    [
        ([[10]], {}, [[10, 10, 10, 10]]),
        # 10 / 2 = 5 is no longer the best, nor then 9 / 2 = 4.5, nor 8 / 2: the prompt counts.
        ([[10]], {"repetition_penalty": 2.0}, [[9, 8, 7, 6]]),
        # 10, 10 is in the first prompt, so 9 follows; 9, 10 is new; after it neither 10, 10 nor 10,
        # 9 may come again.
        ([[10, 10], [3]], {"no_repeat_ngram_size": 2}, [[9, 10, 8, 10], [10, 10, 9, 10]]),
        ([[3]], {"stop_ids": 10, "min_new_tokens": 3}, [[9, 9, 10, 0]]),
    ],
)
def test_constraints_of_a_text(monotonous_model, prompts, options, expected):
    assert (
        generate(monotonous_model, prompts, max_new_tokens=4, **options).token_ids.tolist()
        == expected
    )


@pytest.mark.slow
def test_a_model_is_left_as_it_was_and_not_kept(tmp_path):
    model = language_model()
    model.save(tmp_path / "before.keras")
    config = model.to_json()
    generated = generate(model, PROMPTS, max_new_tokens=3)
    assert model.to_json() == config
    model.save(tmp_path / "after.keras")
    loaded = keras.models.load_model(tmp_path / "after.keras")
    np.testing.assert_array_equal(
        generate(loaded, PROMPTS, max_new_tokens=3).token_ids, generated.token_ids
    )
    reference = weakref.ref(loaded)
    del loaded
    gc.collect()
    assert reference() is None


@pytest.mark.slow
def test_new_variables_are_seen():
    model = language_model()
    generate(model, PROMPTS, max_new_tokens=3)
    model.quantize("int8")
    logits = ops.convert_to_numpy(model(np.array([PROMPTS[0]])))[0, -1, 1:]
    generated = generate(model, PROMPTS[:1], max_new_tokens=1)
    assert logits.argmax() + 1 == generated.token_ids[0, 0]


class Without:
    """Forbids tokens after the first new one. It has no hash."""

    def __init__(self, *token_ids):
        self.token_ids = token_ids
        self.calls = 0

    def __call__(self, token_ids, logits, position):
        self.calls += 1
        is_forbidden = np.isin(np.arange(VOCAB_SIZE), self.token_ids)
        return ops.where(ops.logical_and(is_forbidden, position > 0), -np.inf, logits)

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"beam_size": 2},
        pytest.param({"top_k": 4, "seed": 1}, marks=pytest.mark.slow),
    ],
)
def test_a_logits_processor_changes_what_is_generated(options):
    model = language_model()
    options |= dict(max_new_tokens=4)
    free = generate(model, PROMPTS, **options).token_ids
    forbidden = sorted({*free[:, 1:].flat} - {int(free[0, 2])})
    some, all_of_them = Without(*forbidden), Without(*forbidden, free[0, 2])
    for processor in (some, all_of_them, some):
        generated = generate(model, PROMPTS, logits_processor=processor, **options).token_ids
        assert not np.isin(generated[:, 1:], processor.token_ids).any()
        if not options.get("beam_size"):
            np.testing.assert_array_equal(generated[:, 0], free[:, 0])
    # Each is compiled once. PyTorch calls it at each step.
    compiles = keras.backend.backend() != "torch"
    assert all_of_them.calls < 4 if compiles else all_of_them.calls == 4
    assert some.calls == all_of_them.calls * (1 if compiles else 2)


class Pairs:
    """A model of another kind: the next token is the last but one of what it has seen."""

    def start_decoding(self, source, beam_size=1, max_length=None, prefix=None):
        def step(token_ids, parents, position, state):
            return 9.0 * ops.one_hot(state, VOCAB_SIZE), token_ids

        return step, ops.concatenate([ops.maximum(prefix[:, -1], 0)[:, None]] * beam_size, axis=1)


def test_any_model_with_start_decoding():
    assert generate(Pairs(), [[3, 4], [5, 6]], max_new_tokens=3).token_ids.tolist() == [
        [3, 4, 3],
        [5, 6, 5],
    ]


REFUSING = language_model(max_length=20)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"prompts": [[1], []]}, r"prompts\[1\] must be at least one token"),
        ({"prompts": [[1], [-3]]}, r"prompts\[1\] must be token ids of at least 0"),
        *(
            ({"prompts": prompts}, "prompts must be a list of lists of token ids")
            for prompts in ([["a"]], 5, [[1, [2]]])
        ),
        ({"prompts": [[1, VOCAB_SIZE]]}, "prompts must be token ids below 11; received prompts=11"),
        ({"stop_ids": 11}, "stop_ids must be token ids below 11; received stop_ids=11"),
        (
            {"stop_ids": "2"},
            "stop_ids must be a token id, or a list of token ids; received stop_ids='2'",
        ),
        ({"forbidden_ids": [1.5]}, "forbidden_ids must be a token id, or a list of token ids"),
        ({"seed": 1}, "seed must be None without temperature, top_k or top_p; received seed=1"),
        ({"top_k": 3, "beam_size": 2}, "beam_size must be 1 with temperature"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"max_new_tokens": 0}, "max_new_tokens must be"),
        ({"length_penalty": "a"}, "length_penalty must be of type float"),
        ({"min_new_tokens": -1}, "min_new_tokens must be at least 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be at least 0"),
        ({"beam_size": 0}, "beam_size must be positive; received beam_size=0"),
        ({"padding_id": -1}, "padding_id must be at least 0; received padding_id=-1"),
        ({"repetition_penalty": 0}, "repetition_penalty must be at least 0.01"),
        ({"top_k": 0}, "top_k must be positive"),
        ({"top_k": 2, "seed": "a"}, "seed must be of type int or null; received seed='a'"),
        ({"logits_processor": 1}, "logits_processor must be a function or None"),
        ({"max_new_tokens": 21}, "need 21 positions; the model has max_length=20"),
    ],
)
def test_generate_refuses_arguments_that_break_a_rule(arguments, message):
    arguments = {"prompts": [[1]], "max_new_tokens": 2} | arguments
    with pytest.raises(ConfigError, match=message):
        generate(REFUSING, **arguments)


@pytest.mark.slow
def test_after_a_prefix_the_logits_are_those_of_one_call():
    # In the search, too, whose hypotheses share it.
    model = tiny_transformer()
    prompts = ops.convert_to_tensor([[2, 4, 5, 6]] * 3)
    step, state = model.start_decoding(ops.convert_to_tensor(SOURCE), 2, 3, prefix=prompts[:, :-1])
    logits, _ = step(
        prompts[:, -1:] + ops.zeros((3, 2), "int32"),
        ops.zeros((3, 2), "int32"),
        ops.array(0),
        state,
    )
    expected = ops.convert_to_numpy(
        model({"source": ops.convert_to_tensor(SOURCE), "target": prompts})
    )[:, -1]
    for hypothesis in range(2):
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits)[:, hypothesis], expected, rtol=2e-5, atol=2e-5
        )


@pytest.mark.slow
def test_samplers_of_keras_hub_run_on_the_same_step():
    keras_hub = pytest.importorskip("keras_hub")
    model, length, total = language_model(padding_id=None), 2, 6
    given = [[3, 4], [7, 2]]
    prompt = ops.convert_to_tensor(np.pad(np.array(given, "int32"), ((0, 0), (0, total - length))))

    def run(sampler):
        step, cache = start_decoding(
            model, max_length=total - length + 1, prefix=prompt[:, : length - 1]
        )

        def next(prompt, cache, index):
            newest = ops.take(prompt, index - 1, axis=1)[:, None]
            logits, cache = step(newest, ops.zeros_like(newest), index - length, cache)
            return logits[:, 0], None, cache

        return ops.convert_to_numpy(sampler(next, prompt, cache, index=length))

    samplers = keras_hub.samplers
    options = dict(max_new_tokens=total - length, padding_id=None)
    expected = generate(model, given, **options).token_ids
    np.testing.assert_array_equal(run(samplers.GreedySampler())[:, length:], expected)
    np.testing.assert_array_equal(run(samplers.TopKSampler(k=1, seed=1))[:, length:], expected)
    expected = generate(model, given, beam_size=3, **options).token_ids
    np.testing.assert_array_equal(run(samplers.BeamSampler(num_beams=3))[:, length:], expected)


@pytest.mark.slow
def test_the_same_text_on_every_backend():
    installed = {
        backend for backend in ("tensorflow", "jax", "torch") if importlib.util.find_spec(backend)
    }
    for backend in installed - {keras.backend.backend()}:
        code = (
            "import sys; sys.path.append('..'); import test_generation; "
            "print(test_generation.all_tokens())"
        )
        printed = run_python(
            "-c", code, env={"KERAS_BACKEND": backend}, cwd=pathlib.Path(__file__).parent
        )
        assert printed.split("\n")[-2] == str(all_tokens())


OPTIONS = (
    {},
    {"beam_size": 3},
    {
        "temperature": 1.3,
        "top_k": 6,
        "top_p": 0.9,
        "seed": 5,
        "repetition_penalty": 1.2,
        "stop_ids": [2, 3],
    },
)


def all_tokens():
    model = language_model()
    return [
        generate(model, PROMPTS, max_new_tokens=5, **options).token_ids.tolist()
        for options in OPTIONS
    ]


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    def test_a_prefix_of_length_0_in_a_graph_says_how_many_texts_there_are():
        model = language_model()

        @tf.function(input_signature=[tf.TensorSpec((None, 1), tf.int32)])
        def first_logits(token_ids):
            step, state = start_decoding(model, prefix=token_ids[:, :0])
            return step(token_ids, tf.zeros_like(token_ids), 0, state)[0]

        token_ids = np.array([[3], [4]], "int32")
        np.testing.assert_allclose(first_logits(token_ids), model(token_ids), rtol=1e-4, atol=1e-5)


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
        options = dict(max_new_tokens=3, temperature=0.7, top_p=0.8)
        first = generate(model, PROMPTS, seed=1, **options)
        number = len(traced)
        assert number > 0
        generate(model, [[2, 3], [4], [5]], seed=2, **options | {"top_p": 0.5})
        again = generate(model, PROMPTS, seed=1, **options)
        assert len(traced) == number
        np.testing.assert_array_equal(again.token_ids, first.token_ids)
        # New weights are used without a new trace.
        for weight in model.weights:
            weight.assign(ops.zeros_like(weight))
        zeros = generate(model, PROMPTS, seed=1, **options)
        assert len(traced) == number
        np.testing.assert_allclose(zeros.scores, 3 * -np.log(VOCAB_SIZE), rtol=1e-5)
