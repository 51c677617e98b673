"""Which models `generate` computes step by step, and which by full passes; the tokens are those of
calls in both cases."""

import warnings

import keras
import numpy as np
import pytest
from greedy_by_calls import D_MODEL, PROMPTS, VOCAB_SIZE, assert_greedy, randomized
from keras import layers, ops

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    Residual,
    TiedProjection,
    generate,
)
from keras_transformer.errors import ConfigError


def ids(name=None):
    return keras.Input((None,), dtype="int32", name=name)


def model_of(*parts, embedding=None):
    """A model of an embedding, of functions of the hidden states, and of a projection."""
    token_ids = ids()
    hidden = (embedding or PositionalEmbedding(VOCAB_SIZE, D_MODEL))(token_ids)
    for part in parts:
        hidden = part(hidden)
    return randomized(keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden)))


def generated_step_by_step(model, *args, **options):
    """Generates, and fails if the model warns of full passes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*recomputes all positions")
        return generate(model, PROMPTS, *args, max_new_tokens=4, **options)


def generated_by_full_passes(model, reason, *args, **options):
    with pytest.warns(UserWarning, match="recomputes all positions for each new token.*" + reason):
        generated = generate(model, PROMPTS, *args, max_new_tokens=4, **options)
    # One warning is enough.
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*recomputes all positions")
        generate(model, PROMPTS, *args, max_new_tokens=4, **options)
    return generated


# Layers of the user's own.


class Doubled(layers.Dense):
    def call(self, inputs):
        return 2.0 * super().call(inputs)


class KnownToBeDoubled(Doubled):
    def call(self, inputs):
        return super().call(inputs)

    is_position_wise = True


class SumOfThePast(layers.Layer):
    """Each position becomes the sum of itself and those before it."""

    def call(self, inputs):
        return inputs + 0.3 * ops.cumsum(inputs, axis=1)


class PastAfterAll(KnownToBeDoubled):
    """What the parent says about its `call` does not hold for this one."""

    def call(self, inputs):
        return super().call(inputs) + 0.3 * ops.cumsum(inputs, axis=1)


class Shifted(DecoderLayer):
    """Overrides `call` alone, so that `step` is that of another layer."""

    def call(self, target, source=None, target_mask=None, training=None, **others):
        outputs = super().call(target, target_mask=target_mask, training=training)
        return outputs + 0.5 * ops.cumsum(target, axis=1)


class Scaled(DecoderLayer):
    """Overrides both."""

    def call(self, target, source=None, target_mask=None, training=None, **others):
        return 3.0 * super().call(target, target_mask=target_mask, training=training)

    def step(self, *args, **kwargs):
        outputs, cache = super().step(*args, **kwargs)
        return 3.0 * outputs, cache


class ScaledAgain(Scaled):
    def call(self, target, source=None, target_mask=None, training=None, **others):
        return super().call(target, target_mask=target_mask, training=training) + target


class AverageOfThePast(layers.Layer):
    """A layer that shares nothing with ours but the methods for steps: the mean of all positions up
    to its own."""

    needs_position_ids = False

    def call(self, inputs):
        numbers = ops.arange(1, ops.shape(inputs)[1] + 1, dtype="float32")
        return inputs + 2.0 * ops.cumsum(inputs, axis=1) / numbers[:, None]

    def init_cache(self, batch_size, max_length=None):
        length = 0 * batch_size if max_length is None else max_length
        # The second axis is that of the heads, as in the caches of attention.
        return ops.zeros((batch_size, 1, length, D_MODEL))

    def step(self, inputs, cache, position, mask=None):
        cache = ops.slice_update(cache, (0, 0, position, 0), inputs[:, None])
        mask = ops.cast(mask, "float32")
        means = ops.matmul(mask, cache[:, 0]) / ops.sum(mask, axis=-1, keepdims=True)
        return inputs + 2.0 * means, cache


class WithAttentionOf(DecoderLayer):
    """A decoder layer with an attention of another class."""

    def __init__(self, attention_class, **kwargs):
        super().__init__(2, 16, **kwargs)
        self.attention_class = attention_class

    def make_self_attention(self, shape):
        return self.attention_class(2, 4, name="own")


class LoudAttention(MultiHeadAttention):
    def call(self, query, value, value_mask=None, training=None, use_causal_mask=False, **others):
        outputs = super().call(
            query, value, None, None, value_mask, use_causal_mask=use_causal_mask
        )
        return 2.0 * outputs


class KnownLoudAttention(LoudAttention):
    def call(self, query, value, value_mask=None, training=None, use_causal_mask=False, **others):
        return super().call(query, value, value_mask, training, use_causal_mask)

    def step(self, *args, **kwargs):
        outputs, cache = super().step(*args, **kwargs)
        return 2.0 * outputs, cache


class PlainAttention(layers.Layer):
    """Attends to the past, without projections and without a step."""

    def __init__(self, num_heads, key_dim, **kwargs):
        super().__init__(**kwargs)

    def build(self, query_shape, value_shape):
        pass

    def call(self, query, value, value_mask=None, training=None, **others):
        scores = ops.matmul(query, ops.transpose(value, (0, 2, 1)))
        length = ops.arange(ops.shape(query)[1])
        scores = ops.where(length[:, None] >= length, scores, -1e9)
        return ops.matmul(ops.softmax(scores), value)


class WithProjectionOf(MultiHeadAttention):
    """Attention whose projections are of another class, which says that it is position-wise."""

    projection_class = KnownToBeDoubled

    def make_projection(self, name, units):
        return self.projection_class(units, name=name)


class WithUnknownProjection(WithProjectionOf):
    projection_class = Doubled


class Mixing(FeedForward):
    def call(self, inputs, training=None):
        return super().call(inputs) + ops.cumsum(inputs, axis=1)


class WithFeedForward(DecoderLayer):
    def __init__(self, feed_forward, **kwargs):
        super().__init__(2, 16, **kwargs)
        self.given = feed_forward

    def make_feed_forward(self, shape):
        return self.given


class QuietResidual(Residual):
    is_position_wise = True

    def call(self, inputs, sublayer_output, training=None):
        return super().call(inputs, 0.5 * sublayer_output, training=training)


class WithQuietResidual(DecoderLayer):
    def make_residual(self, sublayer_name):
        return QuietResidual(self.make_normalization("norm"), name=f"{sublayer_name}_residual")


class Parallel(DecoderLayer):
    def apply_sublayers(self, target, self_attend, cross_attend=None, training=None):
        hidden = self.self_attention_residual.sublayer_input(target)
        return target + self_attend(hidden) + self.feed_forward(hidden)


class Called(layers.Dense):
    def __call__(self, inputs):
        return 2.0 * super().__call__(inputs)


class StackOf(Decoder):
    def __init__(self, layer_class, **kwargs):
        super().__init__(2, 2, 16, **kwargs)
        self.layer_class = layer_class

    def make_layer(self, index):
        return self.layer_class(2, 16, name=f"layer_{index}")


STEPPED = {
    "declared": lambda: model_of(DecoderLayer(2, 16), KnownToBeDoubled(D_MODEL)),
    "call and step": lambda: model_of(Scaled(2, 16)),
    "another library's layer": lambda: model_of(AverageOfThePast()),
    "attention": lambda: model_of(WithAttentionOf(KnownLoudAttention)),
    "projection": lambda: model_of(WithAttentionOf(WithProjectionOf)),
    "residual": lambda: model_of(WithQuietResidual(2, 16)),
    "stack": lambda: model_of(StackOf(Scaled)),
    "feed-forward": lambda: model_of(WithFeedForward(KnownToBeDoubled(D_MODEL))),
    "sequential feed-forward": lambda: model_of(
        DecoderLayer(2, 16), keras.Sequential([layers.Dense(5, "gelu"), layers.Dense(D_MODEL)])
    ),
    "sequential part": lambda: model_of(
        WithFeedForward(keras.Sequential([layers.Dense(5, "gelu"), layers.Dense(D_MODEL)]))
    ),
    "order of the parts": lambda: model_of(Parallel(2, 16, norm_first=True)),
    "window of Keras": lambda: model_of(_window_of_keras()),
}  # fmt: skip


def _window_of_keras():
    # Keras has it from 3.15 on.
    options = dict(sliding_window=2) if keras.version() >= "3.15" else {}
    attention = layers.MultiHeadAttention(2, 4, **options)
    return lambda hidden: hidden + attention(hidden, hidden, use_causal_mask=True)


def some_slow(names, quick):
    """Parameters of which few are tested by default: each costs a second."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", some_slow(STEPPED, ["call and step", "another library's layer"]))
def test_layers_that_are_computed_step_by_step(name):
    model = STEPPED[name]()
    assert_greedy(generated_step_by_step(model), model)
    # Beams reorder what the caches hold.
    beams = generated_step_by_step(model, beam_size=3)
    assert_best_of_beam(model, beams)


def assert_best_of_beam(model, generated):
    """The score of the tokens is that of one call for all of them."""
    for row, (prompt, tokens) in enumerate(zip(PROMPTS, generated.token_ids, strict=True)):
        logits = ops.convert_to_numpy(model(np.array([[*prompt, *tokens[:-1]]])))[0]
        logits = logits.astype("float64") - logits.max(-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        score = sum(log_probs[len(prompt) - 1 + i, token] for i, token in enumerate(tokens))
        np.testing.assert_allclose(generated.scores[row], score, rtol=1e-4, atol=1e-4)


UNKNOWN = "is not known to be position-wise"
FULL = {
    "dense": (
        lambda: model_of(DecoderLayer(2, 16), Doubled(D_MODEL, name="own")),
        rf"layer 'own' \(Doubled\) {UNKNOWN}",
    ),
    "__call__": (
        lambda: model_of(DecoderLayer(2, 16), Called(D_MODEL, name="own")),
        rf"layer 'own' \(Called\) {UNKNOWN}",
    ),
    "custom layer": (
        lambda: model_of(DecoderLayer(2, 16), SumOfThePast(name="own")),
        rf"layer 'own' \(SumOfThePast\) {UNKNOWN}",
    ),
    "declared by the parent": (
        lambda: model_of(DecoderLayer(2, 16), PastAfterAll(D_MODEL, name="own")),
        rf"layer 'own' \(PastAfterAll\) {UNKNOWN}",
    ),
    "call without step": (
        lambda: model_of(Shifted(2, 16, name="own")),
        r"layer 'own' \(Shifted\) overrides call without step",
    ),
    "call after step": (
        lambda: model_of(ScaledAgain(2, 16, name="own")),
        r"layer 'own' \(ScaledAgain\) overrides call without step",
    ),
    "attention": (
        lambda: model_of(WithAttentionOf(LoudAttention)),
        r"layer 'own' \(LoudAttention\) overrides call without step",
    ),
    "attention without step": (
        lambda: model_of(WithAttentionOf(PlainAttention)),
        r"layer 'own' \(PlainAttention\) has no method step",
    ),
    "projection": (
        lambda: model_of(WithAttentionOf(WithUnknownProjection)),
        rf"layer 'query' \(Doubled\) of 'own' {UNKNOWN}",
    ),
    "feed-forward": (
        lambda: model_of(WithFeedForward(Mixing(16, name="own"), name="decoder")),
        rf"layer 'own' \(Mixing\) of 'decoder' {UNKNOWN}",
    ),
    "stack": (
        lambda: model_of(StackOf(Shifted)),
        r"layer 'layer_0' \(Shifted\) overrides call without step",
    ),
    "recurrent": (
        lambda: model_of(layers.GRU(D_MODEL, return_sequences=True, name="own")),
        "none of its layers has both causal self-attention and a method step",
    ),
    "convolution": (
        lambda: model_of(DecoderLayer(2, 16), layers.Conv1D(D_MODEL, 3, padding="causal")),
        rf"\(Conv1D\) {UNKNOWN}",
    ),
    "mask": (
        lambda: model_of(_with_a_mask_of_its_own),
        "is called with attention_mask=a tensor",
    ),
    "scores": (
        lambda: model_of(
            lambda hidden: DecoderLayer(2, 16)(hidden, return_attention_scores=True)[0]
        ),
        "is called with return_attention_scores=True",
    ),
    "score bias": (lambda: model_of(_with_a_score_bias), "is called with score_bias=a tensor"),
    "embedding": (
        lambda: model_of(DecoderLayer(2, 16), embedding=_Reversed(VOCAB_SIZE, D_MODEL, name="own")),
        rf"layer 'own' \(_Reversed\) {UNKNOWN}",
    ),
    "positions": (
        lambda: model_of(DecoderLayer(2, 16), embedding=_embedding_with_positions()),
        "is called with position_ids",
    ),
}  # fmt: skip


class _Reversed(PositionalEmbedding):
    def call(self, token_ids, position_ids=None, training=None):
        return -super().call(token_ids, position_ids, training)


def _embedding_with_positions():
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    return lambda token_ids: embedding(
        token_ids, position_ids=2 * ops.cumsum(ops.ones_like(token_ids), axis=1)
    )


def _with_a_mask_of_its_own(hidden):
    # Features above 0 may be attended to; the position itself always.
    positions = ops.cumsum(ops.ones_like(hidden[:, :, 0]), axis=1)
    mask = ops.logical_or(
        hidden[:, None, :, 0] > 0, ops.equal(positions[:, :, None], positions[:, None, :])
    )
    return DecoderLayer(2, 16)(hidden, attention_mask=mask)


def _with_a_score_bias(hidden):
    # (batch, 1, 1, length): positions whose second feature is high get more attention.
    return DecoderLayer(2, 16)(hidden, score_bias=3.0 * hidden[:, None, None, :, 1])


@pytest.mark.parametrize(
    "name",
    some_slow(FULL, ["dense", "custom layer", "call without step", "attention", "score bias"]),
)
def test_layers_that_need_full_passes(name):
    make, reason = FULL[name]
    model = make()
    assert_greedy(generated_by_full_passes(model, reason), model)


# Models inside models.


def backbone(name="backbone"):
    token_ids = ids()
    hidden = PositionalEmbedding(VOCAB_SIZE, D_MODEL)(token_ids)
    return keras.Model(token_ids, DecoderLayer(2, 16)(hidden), name=name)


def head(name="head"):
    hidden = keras.Input((None, D_MODEL))
    outputs = Decoder(1, 2, 16, relative_positions="rotary")(layers.LayerNormalization()(hidden))
    return keras.Model(hidden, layers.Dense(VOCAB_SIZE)(outputs), name=name)


def test_a_backbone_and_a_head():
    token_ids = ids()
    model = randomized(keras.Model(token_ids, head()(backbone()(token_ids))))
    assert_greedy(generated_step_by_step(model), model)


@pytest.mark.slow
def test_a_model_of_several_intermediate_tensors():
    features, gates = keras.Input((None, D_MODEL), name="a"), keras.Input((None, D_MODEL), name="b")
    hidden = EncoderLayer(2, 16)(features * gates, use_causal_mask=True)
    merge = keras.Model({"a": features, "b": gates}, [hidden + gates])
    token_ids = ids()
    hidden = backbone()(token_ids)
    hidden = merge({"a": hidden, "b": layers.Dense(D_MODEL, "sigmoid")(hidden)})
    model = randomized(keras.Model(token_ids, head()(hidden)))
    assert_greedy(generated_step_by_step(model), model)


@pytest.mark.slow
def test_a_sequential_model_of_models():
    model = randomized(keras.Sequential([ids(), backbone(), keras.Sequential([head()])]))
    assert_greedy(generated_step_by_step(model), model)


def test_a_model_inside_with_its_own_call():
    class Own(keras.Model):
        def call(self, inputs):
            return super().call(inputs) + 0.2 * ops.cumsum(inputs, axis=1)

    hidden = keras.Input((None, D_MODEL))
    own = Own(hidden, layers.Dense(D_MODEL)(hidden), name="own")
    token_ids = ids()
    model = randomized(keras.Model(token_ids, head()(own(backbone()(token_ids)))))
    assert_greedy(generated_by_full_passes(model, rf"layer 'own' \(Own\) {UNKNOWN}"), model)


@pytest.mark.slow
def test_an_encoder_inside_is_called_as_a_whole():
    """A model that does not depend on the target gets the mask that it is called with."""
    source, target = ids("source"), ids("target")
    hidden = keras.Input((None, D_MODEL))
    encoder = keras.Model(hidden, Encoder(1, 2, 16)(hidden), name="encoder")
    # An embedding of Keras without a mask, whose padding is 7.
    embedding = layers.Embedding(VOCAB_SIZE, D_MODEL)
    mask = ops.not_equal(source, 7)
    encoded = encoder(embedding(source), mask=mask)
    hidden = PositionalEmbedding(VOCAB_SIZE, D_MODEL)(target)
    hidden = DecoderLayer(2, 16)(hidden, encoded, source_mask=mask)
    model = keras.Model([source, target], layers.Dense(VOCAB_SIZE)(hidden))
    randomized(model)
    texts = [[3, 4, 7, 7], [1, 2, 3, 4], [5, 7, 7, 7]]
    generated = generated_step_by_step(model, texts)
    assert_greedy(
        generated, *(lambda tokens, text=text: model([np.array([text]), tokens]) for text in texts)
    )


class PositionsInTheSource(DecoderLayer):
    def make_cross_attention(self, target_shape, source_shape):
        return MultiHeadAttention(2, 4, relative_positions="alibi", name="cross")


@pytest.mark.slow
def test_relative_positions_of_a_source_need_full_passes():
    source, target = ids("source"), ids("target")
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    hidden = PositionsInTheSource(2, 16)(embedding(target), embedding(source))
    model = randomized(keras.Model([source, target], layers.Dense(VOCAB_SIZE)(hidden)))
    texts = [[3, 4, 7, 7], [1, 2, 3, 4], [5, 7, 7, 7]]
    reason = "layer 'cross' uses relative positions or a sliding window in cross-attention"
    generated = generated_by_full_passes(model, reason, texts)
    assert_greedy(
        generated, *(lambda tokens, text=text: model([np.array([text]), tokens]) for text in texts)
    )


@pytest.mark.slow
def test_a_tied_projection_and_masks_of_padding_are_known():
    token_ids = ids()
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL)
    mask = ops.not_equal(token_ids, 0)
    hidden = Decoder(1, 2, 16)(embedding(token_ids), target_mask=mask)
    model = randomized(keras.Model(token_ids, TiedProjection(embedding)(hidden)))
    assert_greedy(generated_step_by_step(model), model)


def test_another_mask_of_the_target_needs_full_passes():
    token_ids = ids()
    hidden = PositionalEmbedding(VOCAB_SIZE, D_MODEL)(token_ids)
    hidden = DecoderLayer(2, 16)(hidden, target_mask=token_ids < 9)
    model = randomized(keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden)))
    generated = generated_by_full_passes(model, "is called with target_mask=a tensor")
    assert_greedy(generated, model)


# Padding.


@pytest.mark.parametrize(
    ("prompts", "padding_id"),
    [([[3, 0, 5], [7, 2]], 0), ([[3, 4], [7]], None)],
    ids=["in a prompt", "generated"],
)
def test_padding_that_the_model_masks_needs_full_passes(prompts, padding_id):
    model = model_of(DecoderLayer(2, 16), DecoderLayer(2, 16))
    model.layers[-1].bias.assign([2.0] + [0.0] * (VOCAB_SIZE - 1))
    reason = "token 0, which it masks as padding, is in a prompt or may be generated"
    with pytest.warns(UserWarning, match=reason):
        generated = generate(model, prompts, max_new_tokens=5, padding_id=padding_id)
    for prompt, tokens in zip(prompts, generated.token_ids, strict=True):
        text = list(prompt)
        for token in tokens:
            logits = ops.convert_to_numpy(model(np.array([text])))[0, -1]
            text.append(int(token))
            first = 0 if padding_id is None else 1
            assert token == first + logits[first:].argmax()
    if padding_id is None:
        assert 0 < (generated.token_ids == 0).sum() < generated.token_ids.size
    # Without such tokens the same model is computed step by step.
    assert_greedy(generated_step_by_step(model), model)


def test_without_padding_every_token_is_computed_step_by_step():
    embedding = PositionalEmbedding(VOCAB_SIZE, D_MODEL, padding_id=None)
    model = model_of(DecoderLayer(2, 16), embedding=embedding)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*recomputes all positions")
        generate(model, [[3, 0]], max_new_tokens=2, padding_id=None)


# What is refused.


@pytest.mark.parametrize(
    "part",
    [
        layers.Bidirectional(layers.GRU(D_MODEL // 2, return_sequences=True)),
        EncoderLayer(2, 16),
        layers.UnitNormalization(axis=1),
        layers.EinsumDense("btd,ts->bsd", (6, D_MODEL)),
        lambda hidden: hidden - ops.mean(hidden, axis=1, keepdims=True),
        lambda hidden: ops.flip(hidden, axis=1),
    ],
    ids=["recurrent", "attention", "normalization", "product", "mean", "reverse"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_models_that_look_ahead_are_refused(part):
    token_ids = keras.Input((6,), dtype="int32")
    hidden = part(DecoderLayer(2, 16)(PositionalEmbedding(VOCAB_SIZE, D_MODEL)(token_ids)))
    model = randomized(keras.Model(token_ids, layers.Dense(VOCAB_SIZE)(hidden), name="ahead"))
    message = r"^model must be causal: the logits of 'ahead' \(Functional\) at a position depend"
    with pytest.raises(ConfigError, match=message) as raised:
        generate(model, [[1, 2], [3]], max_new_tokens=3)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda hidden: hidden[:, 0], "logits of shape"),
        (
            lambda hidden: [hidden, hidden],
            r"must have one output.*generate\(keras.Model\(model.inputs, model.outputs\[0\]\), "
            r"\.\.\.\)",
        ),
    ],
)
def test_other_outputs_are_refused(outputs, message):
    token_ids = ids()
    hidden = DecoderLayer(2, 16)(PositionalEmbedding(VOCAB_SIZE, D_MODEL)(token_ids))
    with pytest.raises(ConfigError, match=message):
        generate(keras.Model(token_ids, outputs(hidden)), [[1, 2]], max_new_tokens=2)


def test_what_is_no_model_is_refused():
    message = (
        r"model must be a Keras model, or have a method start_decoding\(source, beam_size, "
        r"max_length, prefix\), .*; received function"
    )
    with pytest.raises(ConfigError, match=message):
        generate(lambda token_ids: token_ids, [[1, 2]], max_new_tokens=2)
