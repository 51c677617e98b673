"""The blocks of docs/blocks.md: they train, are saved, load, and decode step by step."""

import pathlib
import re
import warnings

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy

from keras_transformer import (
    FeedForward,
    LanguageModel,
    NewPositions,
    PositionalEmbedding,
    TiedProjection,
    TransformerConfig,
    generate,
)
from keras_transformer.keras_versions import with_sublayers
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "blocks.md"
CODE = re.compile(r"^```python.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VOCAB_SIZE, WIDTH = 12, 8
ROWS = np.random.default_rng(0).integers(1, VOCAB_SIZE, size=(4, 7)).astype("int32")


@pytest.fixture(scope="module")
def blocks():
    """The names in the blocks of the page that define classes. The others train models."""
    names = {}
    for code in CODE.findall(PAGE.read_text(encoding="utf-8")):
        if "\nclass " in f"\n{code}":
            exec(compile(code, str(PAGE), "exec"), names)
    return names


BLOCKS = {
    "MyDecoderLayer": lambda cls: cls(2, 12),
    "MyDecoder": lambda cls: cls(2, 2, 12),
    "ExpertDecoderLayer": lambda cls: cls(2, 12, num_experts=3),
    "DropPathDecoderLayer": lambda cls: cls(2, 12, drop_path=0.5),
    "LayerScaleDecoderLayer": lambda cls: cls(2, 12, norm_first=True),
    "AdaptedDecoderLayer": lambda cls: cls(2, 12),
    "ParallelDecoder": lambda cls: cls(2, 2, 12, norm_first=True),
    "WideningDecoder": lambda cls: cls(2, 2, 12, norm_first=True),
}


@pytest.fixture(params=BLOCKS)
def model(request, blocks):
    # DropPath may drop all rows of a small batch.
    keras.utils.set_random_seed(1)
    block = BLOCKS[request.param](blocks[request.param])
    token_ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(VOCAB_SIZE, WIDTH)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*does not support masking")
        hidden = block(embedding(token_ids))
    model = keras.Model(token_ids, TiedProjection(embedding)(hidden))
    model.block = block
    return model


def test_it_trains_is_saved_and_loads(model, tmp_path):
    before = [numpy(variable) for variable in model.block.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), MaskedLabelSmoothedCrossentropy())
    model.fit(ROWS[:, :-1], ROWS[:, 1:], batch_size=4, verbose=0)
    after = [numpy(variable) for variable in model.block.trainable_variables]
    changed = [not np.array_equal(*pair) for pair in zip(before, after, strict=True)]
    # An adapter starts with zeros, behind which nothing has a gradient yet; experts that no token
    # chose have none.
    assert np.mean(changed) > 0.5
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(numpy(loaded(ROWS)), numpy(model(ROWS)), rtol=1e-5, atol=1e-6)


def test_steps_equal_one_call(model):
    block = model.block
    hidden = np.random.default_rng(1).normal(size=(2, 5, WIDTH)).astype("float32")
    cache = block.init_cache(batch_size=2, max_length=5)
    steps = []
    for position in range(5):
        rows, positions = hidden[:, position : position + 1], NewPositions(position)
        outputs, cache = block.step(rows, cache, positions)
        steps.append(numpy(outputs))
    np.testing.assert_allclose(np.concatenate(steps, axis=1), numpy(block(hidden)), atol=1e-5)


@pytest.mark.parametrize("name", ["MyDecoder", "ParallelDecoder", "WideningDecoder"])
def test_a_language_model_with_own_blocks_generates_the_tokens_of_its_calls(name, blocks):
    model = LanguageModel(PositionalEmbedding(VOCAB_SIZE, WIDTH), BLOCKS[name](blocks[name]))
    generated = generate(model, ROWS[:2, :3].tolist(), max_new_tokens=3)
    texts = ROWS[:2, :3]
    for _ in range(3):
        # Padding, token 0, is not generated.
        newest = 1 + numpy(model(texts))[:, -1:, 1:].argmax(-1)
        texts = np.concatenate([texts, newest], axis=1)
    np.testing.assert_array_equal(generated.token_ids, texts[:, 3:])


def test_parallel_sublayers_equal_their_sum(blocks):
    layer = blocks["ParallelDecoderLayer"](2, 12, norm_first=True, dropout=0.0)
    x = np.random.default_rng(5).normal(size=(2, 5, WIDTH)).astype("float32")
    outputs = numpy(layer(x))
    hidden = layer.self_attention_residual.norm(x)
    attended = layer.self_attention(hidden, hidden, use_causal_mask=True)
    expected = x + numpy(attended) + numpy(layer.feed_forward(hidden))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    # The feed-forward network has no normalization of its own, which nothing would train.
    assert layer.feed_forward_residual.norm is None
    layers = blocks["ParallelDecoder"](2, 2, 12)
    layers.build((None, None, WIDTH))
    assert {type(part) for part in layers.layers} == {blocks["ParallelDecoderLayer"]}


def test_experts_by_hand(blocks):
    # Each token goes to the expert with the highest probability, times that probability.
    layer = blocks["MixtureOfExperts"](num_experts=2, d_ff=3)
    x = np.random.default_rng(2).normal(size=(1, 6, 4)).astype("float32")
    outputs = numpy(layer(x))
    scores = numpy(layer.router(x))
    for token in range(6):
        best = scores[0, token].argmax()
        expert = numpy(layer.experts[best](x[:, token]))
        np.testing.assert_allclose(outputs[0, token], scores[0, token, best] * expert[0], atol=1e-5)


def test_whole_rows_are_dropped(blocks):
    residual = blocks["DropPath"](keras.layers.Identity(), drop_path=0.5, seed=3)
    ones = np.ones((64, 3, 2), "float32")
    added = numpy(residual(0 * ones, ones, training=True))
    # A row is dropped as a whole, or scaled by 1 / (1 - 0.5).
    assert set(np.unique(added)) == {0.0, 2.0}
    assert all(len(np.unique(row)) == 1 for row in added)
    np.testing.assert_array_equal(numpy(residual(0 * ones, ones)), ones)


def test_an_adapter_changes_nothing_at_first(blocks):
    adapted = blocks["AdaptedDecoderLayer"](2, 12, dropout=0.0)
    x = np.random.default_rng(4).normal(size=(2, 5, WIDTH)).astype("float32")
    outputs = numpy(adapted(x))
    inner = adapted.feed_forward.layer
    hidden = adapted.self_attention_residual(x, adapted.self_attention(x, x, use_causal_mask=True))
    expected = adapted.feed_forward_residual(hidden, inner(hidden))
    np.testing.assert_allclose(outputs, numpy(expected), atol=1e-6)


@pytest.mark.parametrize("name", BLOCKS)
def test_parts_have_the_precision_of_their_layer_and_names(name, blocks):
    policy = keras.DTypePolicy("mixed_bfloat16")
    paths = []
    for _ in range(2):
        block = BLOCKS[name](blocks[name])
        block = type(block).from_config({**block.get_config(), "name": "block", "dtype": policy})
        block.build((None, None, WIDTH))
        assert {part.dtype_policy.name for part in with_sublayers(block)} == {policy.name}
        paths.append([variable.path for variable in block.trainable_variables])
    # Without a name, Keras counts: dense, dense_1, ...
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    ("name", "encoder_part", "decoder_part"),
    [
        ("MyTransformer", "MyNetwork", "MyNetwork"),
        ("TwoExpertTransformer", "MixtureOfExperts", None),
    ],
)
# TensorFlow traces so many layers for longer than it computes them.
@pytest.mark.parametrize(
    "run_eagerly",
    [keras.backend.backend() == "tensorflow", pytest.param(False, marks=pytest.mark.slow)],
    ids=["quick", "traced"],
)
def test_a_transformer_has_stacks_of_its_own(
    name, encoder_part, decoder_part, run_eagerly, blocks, tmp_path
):
    config = TransformerConfig.preset(
        "tiny",
        source_vocab_size=VOCAB_SIZE,
        target_vocab_size=VOCAB_SIZE,
        num_layers=2,
        d_model=WIDTH,
        d_ff=12,
        num_heads=2,
    )
    model = blocks[name](config)
    inputs = {"source": ROWS, "target": ROWS[:, :5]}
    model.compile("adam", MaskedLabelSmoothedCrossentropy(), run_eagerly=run_eagerly)
    model.fit(inputs, ROWS[:, 1:6], verbose=0)
    expected = numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is blocks[name]
    for stack, part in ((loaded.encoder, encoder_part), (loaded.decoder, decoder_part)):
        networks = [layer.feed_forward for layer in stack.layers]
        assert [type(network) for network in networks] == [
            blocks[part] if part else FeedForward
        ] * 2
    if name == "TwoExpertTransformer":
        assert [len(layer.feed_forward.experts) for layer in loaded.encoder.layers] == [2, 2]
    np.testing.assert_allclose(numpy(loaded(inputs)), expected, rtol=1e-5, atol=1e-6)
    generated = generate(loaded, ROWS[:2, :1].tolist(), source=ROWS[:2], max_new_tokens=3)
    texts = ROWS[:2, :1]
    for _ in range(3):
        logits = numpy(loaded({"source": ROWS[:2], "target": texts}))
        texts = np.concatenate([texts, 1 + logits[:, -1:, 1:].argmax(-1)], axis=1)
    np.testing.assert_array_equal(generated.token_ids, texts[:, 1:])


def test_widths_grow(blocks):
    decoder = blocks["WideningDecoder"](3, 2, 12)
    decoder.build((None, None, WIDTH))
    assert [layer.d_ff for layer in decoder.layers] == [12, 24, 36]
