"""Options of encoder and decoder that the paper does not have: each against NumPy, and steps
against calls."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import built, normal

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    NewPositions,
    Residual,
)
from keras_transformer.layers.children import child_initializer, child_seed
from keras_transformer.layers.layer_normalization import make_normalization

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 4, 6
SIZES = dict(num_heads=4, d_ff=9, key_dim=4, value_dim=5)
TARGET_MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], bool)
SOURCE_MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool)
TARGET_ROWS = normal(BATCH, TARGET, D_MODEL)
SOURCE_ROWS = normal(BATCH, SOURCE, 8, seed=1)
TOLERANCE = 2e-5
# Without scores, PyTorch has one operation for all of the attention.
AS_WITH_SCORES = dict(rtol=1e-6, atol=2e-6) if keras.backend.backend() == "torch" else dict(rtol=0)

OPTIONS = {
    "rotary": dict(relative_positions="rotary"),
    "alibi": dict(relative_positions="alibi"),
    "t5": dict(relative_positions="t5"),
    "rms": dict(normalization="rms"),
    "pre-norm rms": dict(normalization="rms", norm_first=True, epsilon=1e-5),
    "swiglu": dict(gated=True, activation="silu", feed_forward_bias=False),
    "geglu": dict(gated=True, activation="gelu"),
    "grouped queries": dict(num_key_value_heads=2),
    "one head of keys and values": dict(num_key_value_heads=1, attention_bias=True),
    "query and key norm": dict(query_key_norm=True),
    "all with rotary": dict(
        relative_positions="rotary",
        normalization="rms",
        norm_first=True,
        gated=True,
        activation="silu",
        feed_forward_bias=False,
        num_key_value_heads=2,
        query_key_norm=True,
    ),
    "alibi, grouped, three heads": dict(
        relative_positions="alibi", num_heads=3, num_key_value_heads=1
    ),
}
WINDOWS = {
    f"{positions} in a window": dict(
        relative_positions=positions, sliding_window=2, num_key_value_heads=2
    )
    for positions in ("rotary", "alibi", "t5")
}
WINDOWS["in a window, pre-norm"] = dict(sliding_window=2, norm_first=True)
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
WITH_POSITIONS = {
    name: options
    for name, options in (OPTIONS | WINDOWS).items()
    if "relative_positions" in options
}
every_option = pytest.mark.parametrize(
    "options", [*OPTIONS.values(), *WINDOWS.values()], ids=[*OPTIONS, *WINDOWS]
)


def assert_close(tensor, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(numpy(tensor), expected, atol=tolerance)


# The parts.


def test_gated_feed_forward_by_hand():
    # (1, 2) Wg = (3, -1), of which ReLU leaves (3, 0). (1, 2) W1 = (2, 5). Their product (6, 0),
    # times W2.
    layer = FeedForward(2, gated=True, use_bias=False)
    layer.build((None, 2))
    layer.hidden_dense.set_weights([np.array([[2.0, 1.0], [0.0, 2.0]])])
    layer.gate_dense.set_weights([np.array([[1.0, -1.0], [1.0, 0.0]])])
    layer.output_dense.set_weights([np.array([[2.0, 0.5], [50.0, 50.0]])])
    assert numpy(layer(np.array([[1.0, 2.0]], "float32"))).tolist() == [[12.0, 3.0]]


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_feed_forward_equals_numpy(use_bias, gated, activation):
    layer = built(FeedForward(9, activation, use_bias=use_bias, gated=gated), TARGET_ROWS.shape)
    assert len(layer.weights) == (3 if gated else 2) * (2 if use_bias else 1)
    assert_close(layer(TARGET_ROWS), reference.feed_forward(layer, TARGET_ROWS))


def test_rms_residual_by_hand():
    # (1, 5) + (2, -1) = (3, 4): mean square 12.5, and sqrt(12.5 + 12.5) = 5. Divided (0.6, 0.8),
    # times scale 2.
    layer = Residual(make_normalization("rms", 12.5, "float32", "norm"))
    layer.build((None, 2))
    layer.norm.set_weights([np.full(2, 2.0)])
    outputs = layer(np.array([[1.0, 5.0]], "float32"), np.array([[2.0, -1.0]], "float32"))
    assert_close(outputs, [[1.2, 1.6]])


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_rms_normalization_is_computed_in_float32(dtype):
    # In float16 the squares overflow, and in bfloat16 the mean of 1,000 of them is off by more than
    # the last place.
    norm = make_normalization("rms", 1e-6, dtype, "norm")
    layer = Residual(norm, norm_first=True, dtype=dtype)
    layer.build((None, 1000))
    x = ops.cast(np.random.default_rng(0).normal(scale=2000.0, size=(1, 1000)), layer.compute_dtype)
    outputs = numpy(ops.cast(layer.sublayer_input(x), "float32"))
    exact = reference.rms_norm(layer.norm, reference.array(ops.cast(x, "float32")))
    np.testing.assert_allclose(outputs, exact, rtol=2**-8 if dtype == "mixed_bfloat16" else 2**-11)


# The layers and the stacks.


@pytest.mark.slow
@every_option
@pytest.mark.parametrize("causal", [False, True])
def test_an_encoder_layer_equals_numpy(options, causal):
    layer = built(EncoderLayer(**{**SIZES, **options}), TARGET_ROWS.shape)
    expected = reference.encoder_layer(layer, TARGET_ROWS, causal=causal)
    assert_close(layer(TARGET_ROWS, use_causal_mask=causal), expected)
    expected = reference.encoder_layer(layer, TARGET_ROWS, TARGET_MASK, causal)
    assert_close(layer(TARGET_ROWS, mask=TARGET_MASK, use_causal_mask=causal), expected)


@every_option
@pytest.mark.parametrize("with_source", [False, True])
def test_a_decoder_layer_equals_numpy(options, with_source):
    rows = [TARGET_ROWS, SOURCE_ROWS] if with_source else [TARGET_ROWS]
    layer = built(DecoderLayer(**{**SIZES, **options}), *[array.shape for array in rows])
    masks = dict(target_mask=TARGET_MASK, source_mask=SOURCE_MASK if with_source else None)
    assert_close(layer(*rows, **masks), reference.decoder_layer(layer, *rows, **masks))
    if with_source:
        assert (
            layer.cross_attention.sliding_window is None
            and layer.cross_attention.relative_positions is None
        )


@pytest.mark.parametrize(
    "options",
    [OPTIONS["all with rotary"], OPTIONS["t5"], OPTIONS["rms"]],
    ids=["all with rotary", "t5", "rms"],
)
def test_stacks_equal_numpy(options):
    encoder = built(Encoder(2, **{**SIZES, **options}), SOURCE_ROWS.shape)
    decoder = built(Decoder(2, **{**SIZES, **options}), TARGET_ROWS.shape, SOURCE_ROWS.shape)
    encoded = encoder(SOURCE_ROWS, mask=SOURCE_MASK)
    assert_close(encoded, reference.encoder(encoder, SOURCE_ROWS, SOURCE_MASK))
    masks = dict(target_mask=TARGET_MASK, source_mask=SOURCE_MASK)
    expected = reference.decoder(decoder, TARGET_ROWS, numpy(encoded), **masks)
    assert_close(decoder(TARGET_ROWS, encoded, **masks), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_far_positions_share_the_buckets_of_t5(causal):
    rows = normal(1, 150, D_MODEL, seed=3)
    layer = built(EncoderLayer(1, 4, key_dim=2, relative_positions="t5"), rows.shape)
    assert_close(
        layer(rows, use_causal_mask=causal), reference.encoder_layer(layer, rows, causal=causal)
    )


# Step by step.


@every_option
@pytest.mark.parametrize(
    ("max_length", "ends"),
    [
        (None, (1, 2, 3, 4, 5)),
        pytest.param(TARGET + 2, (1, 2, 3, 4, 5), marks=pytest.mark.slow),
        pytest.param(None, (2, 5), marks=pytest.mark.slow),
        pytest.param(TARGET, (2, 5), marks=pytest.mark.slow),
    ],
)
def test_steps_equal_one_call(options, max_length, ends):
    layer = built(Decoder(1, **{**SIZES, **options}), TARGET_ROWS.shape, SOURCE_ROWS.shape)
    whole = numpy(layer(TARGET_ROWS, SOURCE_ROWS, source_mask=SOURCE_MASK))
    source_key_values = layer.project_source(ops.convert_to_tensor(SOURCE_ROWS))
    cache = layer.init_cache(BATCH, max_length)
    heads = options.get("num_key_value_heads", options.get("num_heads", SIZES["num_heads"]))
    assert {entries.shape[1] for layer_cache in cache for entries in layer_cache} == {heads}
    for start, end in zip((0, *ends), ends, strict=False):
        rows = ops.convert_to_tensor(TARGET_ROWS[:, start:end])
        positions = NewPositions(start)
        output, cache = layer.step(rows, cache, positions, source_key_values, SOURCE_MASK)
        assert_close(output, whole[:, start:end])


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rotary", "alibi", "t5"])
@pytest.mark.parametrize("growing", [False, True])
def test_entries_may_lie_elsewhere_than_their_places_in_the_sequence(positions, growing):
    # As in a batch of prompts of different lengths, padded in front: two and none.
    layer = built(DecoderLayer(**SIZES, relative_positions=positions), TARGET_ROWS.shape)
    padding = np.array([2, 0])
    entry_position_ids = np.arange(TARGET)[None, :] - padding[:, None]
    expected = [numpy(layer(TARGET_ROWS[b : b + 1, padding[b] :]))[0] for b in range(BATCH)]
    cache = layer.init_cache(BATCH, None if growing else TARGET)
    for start, end in ((0, 3), (3, 4), (4, 5)):
        entries = np.arange(end if growing else TARGET)
        places = np.arange(start, end)
        mask = (entries <= places[:, None]) & (entries >= padding[:, None, None])
        rows = ops.convert_to_tensor(TARGET_ROWS[:, start:end])
        positions = NewPositions(
            start,
            mask,
            position_ids=entry_position_ids[:, start:end],
            entry_position_ids=entry_position_ids[:, : len(entries)],
        )
        output, cache = layer.step(rows, cache, positions)
        for b in range(BATCH):
            first = max(start, padding[b])
            assert_close(
                output[b, first - start :], expected[b][first - padding[b] : end - padding[b]]
            )


@pytest.mark.parametrize("options", WITH_POSITIONS.values(), ids=WITH_POSITIONS.keys())
@pytest.mark.parametrize("growing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_interleaved_entries_of_a_beam_equal_each_hypothesis_by_itself(options, growing):
    beam_size = 3
    layer = built(DecoderLayer(**{**SIZES, **options}), TARGET_ROWS.shape)
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(TARGET, BATCH, beam_size, D_MODEL)).astype("float32")
    cache = layer.init_cache(BATCH, None if growing else TARGET * beam_size)
    # The entries that each hypothesis descends from, in order.
    ancestors = np.zeros((BATCH, beam_size, 0), int)
    for position in range(TARGET):
        parents = generator.integers(0, beam_size, size=(BATCH, beam_size))
        ancestors = np.take_along_axis(ancestors, parents[:, :, None], axis=1)
        new_entries = np.broadcast_to(
            position * beam_size + np.arange(beam_size)[:, None], (BATCH, beam_size, 1)
        )
        ancestors = np.concatenate([ancestors, new_entries], axis=2)
        entries = np.arange((position + 1 if growing else TARGET) * beam_size)
        mask = np.any(
            entries[:, None] == ancestors[:, :, None, :], axis=-1
        )  # (batch, beam_size, number of entries)
        positions = NewPositions(
            position * beam_size,
            mask,
            position_ids=np.array([[position]]),
            entry_position_ids=entries[None, :] // beam_size,
        )
        output, cache = layer.step(ops.convert_to_tensor(rows[position]), cache, positions)
        for b in range(BATCH):
            # (beam_size, position + 1, d_model)
            prefixes = rows[ancestors[b] // beam_size, b, ancestors[b] % beam_size]
            assert_close(output[b], numpy(layer(prefixes))[:, -1])


# Masks and scores.


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [OPTIONS["rotary"], OPTIONS["alibi"], OPTIONS["all with rotary"]],
    ids=["rotary", "alibi", "all"],
)
@pytest.mark.parametrize("stack", [False, True])
def test_packed_sequences_do_not_see_each_other(options, stack):
    # Two sequences in one row, of 2 and 3 positions: with relative positions each is as if it were
    # alone.
    arguments = {**SIZES, **options}
    layer = Decoder(2, **arguments) if stack else DecoderLayer(**arguments)
    layer = built(layer, TARGET_ROWS.shape, SOURCE_ROWS.shape)
    sequence, source_sequence = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1])
    output = layer(
        TARGET_ROWS,
        SOURCE_ROWS,
        attention_mask=sequence[:, None] == sequence,
        source_attention_mask=sequence[:, None] == source_sequence,
    )
    assert_close(output[:, :2], numpy(layer(TARGET_ROWS[:, :2], SOURCE_ROWS[:, :1])))
    assert_close(output[:, 2:], numpy(layer(TARGET_ROWS[:, 2:], SOURCE_ROWS[:, 1:])))


def test_a_prefix_may_be_seen_from_both_sides():
    layer = built(DecoderLayer(**SIZES), TARGET_ROWS.shape)
    mask = np.tril(np.ones((TARGET, TARGET), bool))
    mask[:, :2] = True
    output = numpy(layer(TARGET_ROWS, attention_mask=mask, use_causal_mask=False))
    hidden, _ = reference.multi_head_attention(
        layer.self_attention, TARGET_ROWS, TARGET_ROWS, mask=mask[None]
    )
    hidden = reference.normalization(layer.self_attention_residual.norm, TARGET_ROWS + hidden)
    feed_forward = reference.feed_forward(layer.feed_forward, hidden)
    assert_close(
        output, reference.normalization(layer.feed_forward_residual.norm, hidden + feed_forward)
    )
    # With the causal mask, which is the default, the prefix is causal too.
    assert_close(layer(TARGET_ROWS, attention_mask=mask), numpy(layer(TARGET_ROWS)))


def test_a_causal_encoder_is_a_decoder_without_a_source():
    encoder, decoder = Encoder(2, **SIZES), Decoder(2, **SIZES)
    built(encoder, TARGET_ROWS.shape), decoder.build(TARGET_ROWS.shape)
    decoder.set_weights(encoder.get_weights())
    expected = numpy(decoder(TARGET_ROWS, target_mask=TARGET_MASK))
    np.testing.assert_array_equal(
        numpy(encoder(TARGET_ROWS, mask=TARGET_MASK, use_causal_mask=True)), expected
    )


@each_option
def test_scores_are_those_of_numpy(options):
    layer = built(DecoderLayer(**{**SIZES, **options}), TARGET_ROWS.shape, SOURCE_ROWS.shape)
    masks = dict(target_mask=TARGET_MASK, source_mask=SOURCE_MASK)
    outputs, scores, source_scores = layer(
        TARGET_ROWS, SOURCE_ROWS, **masks, return_attention_scores=True
    )
    np.testing.assert_allclose(
        numpy(layer(TARGET_ROWS, SOURCE_ROWS, **masks)), numpy(outputs), **AS_WITH_SCORES
    )
    expected = []

    def attend(hidden):
        hidden, weights = reference.multi_head_attention(
            layer.self_attention, hidden, hidden, mask=TARGET_MASK[:, None, :], causal=True
        )
        expected.append(weights)
        return hidden

    hidden = reference.residual(
        layer.self_attention_residual, TARGET_ROWS.astype("float64"), attend
    )
    assert_close(scores, expected[0])
    if layer.norm_first:
        hidden = reference.normalization(layer.cross_attention_residual.norm, hidden)
    mask = SOURCE_MASK[:, None, :]
    _, expected_scores = reference.multi_head_attention(
        layer.cross_attention, hidden, SOURCE_ROWS, mask=mask
    )
    assert_close(source_scores, expected_scores)


@pytest.mark.parametrize(
    ("stack_class", "inputs"),
    [(Encoder, [TARGET_ROWS]), (Decoder, [TARGET_ROWS]), (Decoder, [TARGET_ROWS, SOURCE_ROWS])],
)
def test_stacks_return_the_scores_of_each_layer(stack_class, inputs):
    stack = built(stack_class(3, **SIZES), *[rows.shape for rows in inputs])
    outputs, *scores = stack(*inputs, return_attention_scores=True)
    # Without a source there are no scores of one.
    assert len(scores) == len(inputs)
    expected = TARGET_ROWS
    for layer, received in zip(stack.layers, zip(*scores, strict=True), strict=True):
        expected, *layer_scores = layer(expected, *inputs[1:], return_attention_scores=True)
        for one, other in zip(received, layer_scores, strict=True):
            np.testing.assert_array_equal(numpy(one), numpy(other))
    np.testing.assert_array_equal(numpy(outputs), numpy(expected))


@pytest.mark.slow
@pytest.mark.parametrize("stack", [False, True])
def test_a_functional_model_may_have_scores_and_masks(stack):
    target, source = keras.Input((None, D_MODEL)), keras.Input((None, 8))
    mask, source_mask = (
        keras.Input((None, None), dtype="bool"),
        keras.Input((None, None), dtype="bool"),
    )
    encoder = Encoder(2, **SIZES) if stack else EncoderLayer(**SIZES)
    decoder = Decoder(2, **SIZES) if stack else DecoderLayer(**SIZES)
    encoded, scores = encoder(source, attention_mask=source_mask, return_attention_scores=True)
    everything = decoder(target, encoded, attention_mask=mask, return_attention_scores=True)
    model = keras.Model([target, source, mask, source_mask], [encoded, scores, *everything])
    attention_mask = np.random.default_rng(5).random((BATCH, TARGET, TARGET)) < 0.7
    source_attention_mask = np.random.default_rng(6).random((BATCH, SOURCE, SOURCE)) < 0.7
    received = model([TARGET_ROWS, SOURCE_ROWS, attention_mask, source_attention_mask])
    encoded, scores = encoder(
        SOURCE_ROWS, attention_mask=source_attention_mask, return_attention_scores=True
    )
    expected = [
        *(encoded, scores),
        *decoder(TARGET_ROWS, encoded, attention_mask=attention_mask, return_attention_scores=True),
    ]
    for one, other in zip(keras.tree.flatten(received), keras.tree.flatten(expected), strict=True):
        assert one.shape == other.shape
        assert_close(one, numpy(other), 1e-6)


# Initial weights, dropout and regularization.

BLOCKS = {
    "EncoderLayer": (EncoderLayer, [TARGET_ROWS]),
    "DecoderLayer": (DecoderLayer, [TARGET_ROWS, SOURCE_ROWS]),
    "Encoder": (lambda **arguments: Encoder(2, **arguments), [TARGET_ROWS]),
    "Decoder": (lambda **arguments: Decoder(2, **arguments), [TARGET_ROWS, SOURCE_ROWS]),
}
each_block = pytest.mark.parametrize(("make", "rows"), BLOCKS.values(), ids=BLOCKS.keys())
SQUARE = dict(num_heads=2, d_ff=6, key_dim=3, gated=True)


def kernels(layer):
    return {
        weight.path: numpy(weight)
        for weight in layer.trainable_variables
        if weight.name == "kernel"
    }


@each_block
def test_every_kernel_draws_numbers_of_its_own(make, rows):
    layer = make(**SQUARE, kernel_initializer=keras.initializers.RandomNormal())
    layer.build(*[array.shape for array in rows])
    kernel_values = [tuple(np.sort(kernel.reshape(-1))) for kernel in kernels(layer).values()]
    assert len(set(kernel_values)) == len(kernel_values)


@each_block
def test_an_initializer_with_a_seed_draws_the_same_in_every_run_and_other_numbers_in_every_sublayer(
    make, rows
):
    first, same = (
        make(**SQUARE, kernel_initializer=keras.initializers.RandomNormal(seed=7)) for _ in range(2)
    )
    for layer in (first, same):
        layer.build(*[array.shape for array in rows])
    for kernel, other in zip(kernels(first).values(), kernels(same).values(), strict=True):
        np.testing.assert_array_equal(kernel, other)
    # All are (6, 6).
    compared = [
        kernel
        for path, kernel in kernels(first).items()
        if path.split("/")[-2] in ("query", "hidden", "gate")
    ]
    assert len({tuple(kernel.reshape(-1)) for kernel in compared}) == len(compared) >= 3


@pytest.mark.slow
@each_block
def test_biases_are_initialized_as_asked(make, rows):
    layer = make(**SQUARE, attention_bias=True, bias_initializer="ones")
    layer.build(*[array.shape for array in rows])
    biases = [numpy(weight) for weight in layer.trainable_variables if weight.name == "bias"]
    assert biases and all(np.all(bias == 1) for bias in biases)
    without = make(**SQUARE, feed_forward_bias=False)
    without.build(*[array.shape for array in rows])
    assert not [weight for weight in without.trainable_variables if weight.name == "bias"]


@each_block
def test_every_kernel_and_bias_is_regularized(make, rows):
    layer = make(
        **SQUARE,
        attention_bias=True,
        kernel_regularizer=keras.regularizers.L2(0.5),
        bias_regularizer="l1",
    )
    layer = built(layer, *[array.shape for array in rows])
    biases = [numpy(weight) for weight in layer.trainable_variables if weight.name == "bias"]
    expected = [0.5 * np.sum(kernel**2) for kernel in kernels(layer).values()] + [
        0.01 * np.abs(bias).sum() for bias in biases
    ]
    np.testing.assert_allclose(
        sorted(float(loss) for loss in layer.losses), sorted(expected), rtol=1e-5
    )


@pytest.mark.slow
@each_block
def test_dropout_with_a_seed_is_the_same_in_every_run(make, rows):
    rates = dict(dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)
    first, same, other = (make(**SQUARE, **rates, seed=seed) for seed in (3, 3, 4))
    for layer in (first, same, other):
        layer.build(*[array.shape for array in rows])
        layer.set_weights(first.get_weights())
    output = numpy(first(*rows, training=True))
    np.testing.assert_array_equal(numpy(same(*rows, training=True)), output)
    assert np.any(numpy(other(*rows, training=True)) != output)


@each_block
def test_every_dropout_has_a_seed_of_its_own(make, rows):
    layer = make(**SQUARE, dropout=0.5, attention_dropout=0.5, activation_dropout=0.5, seed=3)
    layer.build(*[array.shape for array in rows])
    seeds = [
        sublayer.seed
        for sublayer in layer._flatten_layers()
        if type(sublayer).__name__ == "Dropout"
    ]
    assert None not in seeds and len(set(seeds)) == len(seeds)


def test_seeds_of_children_do_not_depend_on_the_process():
    # SHA-512 of the texts is behind them.
    assert child_seed(3, "attention") == 227092794
    assert child_seed(3, "feed_forward") == 1156947332
    assert child_seed(None, "attention") is None


def test_an_initializer_that_is_no_class_of_keras_stays_as_it_is():
    def halves(shape, dtype=None):
        return ops.full(shape, 0.5, dtype)

    assert child_initializer(halves, "hidden") is halves
    layer = EncoderLayer(**SQUARE, kernel_initializer=halves)
    layer.build(TARGET_ROWS.shape)
    assert all(np.all(kernel == 0.5) for kernel in kernels(layer).values())


# Bad input.


@each_block
@pytest.mark.parametrize("first_builds", [False, True])
def test_inputs_of_another_rank_are_refused_in_the_words_of_keras(make, rows, first_builds):
    layer = make(**SQUARE, name="ours")
    if first_builds:
        layer(*rows)
    # An encoder takes further axes, unless it is built without them.
    takes_more = make in (BLOCKS["EncoderLayer"][0], BLOCKS["Encoder"][0]) and not first_builds
    expected = "expected min_ndim=3" if takes_more else "expected ndim=3"
    for wrong in (rows[0][0], rows[0][0, 0], *([] if takes_more else [rows[0][None]])):
        with pytest.raises(ValueError) as error:
            layer(wrong, *rows[1:])
        assert f"{expected}, found ndim={wrong.ndim}" in str(error.value)
        if len(rows) == 2:
            with pytest.raises(ValueError) as error:
                layer(rows[0], wrong)
            assert "Input 1 with name 'source' of layer" in str(error.value)
            assert f"expected ndim=3, found ndim={wrong.ndim}" in str(error.value)


@each_block
def test_inputs_of_another_width_are_refused_in_the_words_of_keras(make, rows):
    layer = make(**SQUARE)
    layer(*rows)
    with pytest.raises(
        ValueError, match="expected axis -1 of input shape to have value 6, but received input"
    ):
        layer(np.zeros((2, 5, 7), "float32"), *rows[1:])
    if len(rows) == 2:
        with pytest.raises(
            ValueError, match="expected axis -1 of input shape to have value 8, but received input"
        ):
            layer(rows[0], np.zeros((2, 5, 7), "float32"))


def test_feed_forward_refuses_another_rank_or_width():
    layer = FeedForward(4)
    with pytest.raises(ValueError, match="expected min_ndim=2, found ndim=1"):
        layer(np.zeros(6, "float32"))
    layer(TARGET_ROWS)
    assert layer(TARGET_ROWS[0]).shape == TARGET_ROWS[0].shape
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 6"):
        layer(np.zeros((2, 5, 7), "float32"))


@each_block
def test_heads_that_cannot_be_grouped_are_refused(make, rows):
    with pytest.raises(ValueError) as error:
        make(num_heads=4, d_ff=4, num_key_value_heads=3).build(rows[0].shape)
    assert (
        str(error.value)
        == "num_key_value_heads must be a divisor of num_heads=4; received num_key_value_heads=3"
    )
