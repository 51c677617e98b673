"""The whole model against NumPy, cached steps against the full pass, and changes that must have no
effect."""

import keras
import numpy as np
import numpy_transformer as reference
import pytest
from keras import ops
from keras.quantizers import GPTQConfig

from keras_transformer import TiedProjection, Transformer, TransformerConfig, build_transformer

SIZES = dict(num_layers=2, d_model=8, d_ff=12, num_heads=2, key_dim=3, value_dim=5, max_length=12)
SOURCE = np.array([[4, 7, 9, 2, 0], [3, 2, 0, 0, 0], [5, 6, 7, 8, 2]])
TARGET = np.array([[1, 5, 3, 8, 0, 0], [1, 4, 6, 9, 3, 2], [1, 3, 0, 0, 0, 0]])

# Every pair of values of two options occurs, but of the bias of the logits and where normalization
# is.
OPTIONS = (
    "norm_first",
    "positions",
    "tie_embeddings",
    "sliding_window",
    "attention_bias",
    "logits_bias",
)
VARIANTS = [
    dict(zip(OPTIONS, values, strict=True))
    for values in (
        (False, "sinusoidal", "all", None, False, True),
        (True, "learned", "all", 3, True, False),
        (True, "sinusoidal", "target", 3, False, False),
        (False, "learned", "target", None, True, True),
        (False, "learned", "none", 3, False, True),
        (True, "sinusoidal", "none", None, True, False),
    )
]

# What the paper does not have.
ROTARY = dict(
    positions="rotary",
    key_dim=4,
    tie_embeddings="all",
    norm_first=True,
    normalization="rms",
    gated=True,
)
MODERN = [
    ROTARY | dict(activation="silu", feed_forward_bias=False, num_key_value_heads=1, query_key_norm=True)
    | dict(logits_bias=False),
    dict(positions="t5", tie_embeddings="target", sliding_window=2, gated=True, activation="gelu", query_key_norm=True)
    | dict(logits_bias=True),
    dict(positions="alibi", tie_embeddings="none", normalization="rms", num_key_value_heads=1, attention_bias=True)
    | dict(logits_bias=False),
]  # fmt: skip


def each(variants, slow=()):
    names = ["-".join(map(str, variant.values())) for variant in (*variants, *slow)]
    cases = [*variants, *(pytest.param(variant, marks=pytest.mark.slow) for variant in slow)]
    return pytest.mark.parametrize("variant", cases, ids=names)


two_variants = each(VARIANTS[:2])
# What takes seconds with each.
one_modern_variant = each(MODERN[:1], slow=[*VARIANTS, *MODERN[1:]])
one_variant = each(VARIANTS[1:2], slow=[VARIANTS[0], *VARIANTS[2:]])


def model_of(dtype=None, seed=0, **changes):
    source_vocab_size = 11 if changes.get("tie_embeddings", "all") == "all" else 10
    config = TransformerConfig(
        **{**SIZES, "source_vocab_size": source_vocab_size, "target_vocab_size": 11, **changes}
    )
    return reference.randomize(build_transformer(config, dtype=dtype), seed)


def logits_of(model, source, target):
    return ops.convert_to_numpy(model({"source": source, "target": target}))


@each([VARIANTS[1], *MODERN], slow=[VARIANTS[0], *VARIANTS[2:]])
def test_the_model_equals_numpy_and_its_hidden_states_times_the_output_kernel(variant):
    model = model_of(**variant)
    expected, logits = (
        reference.transformer(model, SOURCE, TARGET),
        logits_of(model, SOURCE, TARGET),
    )
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=5e-5)
    kernel = ops.convert_to_numpy(model.output_projection.kernel)
    assert kernel.shape == (8, 11)
    if variant["tie_embeddings"] == "none":
        assert type(model.output_projection) is keras.layers.Dense
    else:
        assert type(model.output_projection) is TiedProjection
        assert model.output_projection.embedding is model.target_embedding
        np.testing.assert_array_equal(
            kernel, ops.convert_to_numpy(model.target_embedding.token_table).T
        )
    hidden = ops.convert_to_numpy(model.hidden_states({"source": SOURCE, "target": TARGET}))
    bias = model.output_projection.bias
    assert (bias is not None) == model.output_projection.use_bias == variant["logits_bias"]
    bias = 0 if bias is None else ops.convert_to_numpy(bias)
    np.testing.assert_allclose(hidden @ kernel + bias, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "depths"),
    [
        (dict(num_encoder_layers=3, num_decoder_layers=1), (3, 1)),
        pytest.param(dict(num_encoder_layers=4), (4, 2), marks=pytest.mark.slow),
        pytest.param(dict(num_decoder_layers=1), (2, 1), marks=pytest.mark.slow),
    ],
)
def test_encoder_and_decoder_may_differ_in_depth(changes, depths):
    model = model_of(**changes)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == depths
    expected = reference.transformer(model, SOURCE, TARGET)
    np.testing.assert_allclose(logits_of(model, SOURCE, TARGET), expected, atol=5e-5)
    assert_each_hypothesis_equals_the_full_pass(model, beam_size=2)


def test_the_configuration_reaches_encoder_and_decoder():
    others = dict(
        dropout=0.2, attention_dropout=0.3, activation_dropout=0.4, activation="gelu", epsilon=1e-5
    )
    others |= dict(
        norm_first=True, normalization="rms", gated=True, sliding_window=3, num_key_value_heads=1
    )
    others |= dict(attention_bias=True, feed_forward_bias=False, query_key_norm=True)
    model = model_of(**others, positions="alibi")
    expected = {
        name: SIZES[name] for name in ("num_layers", "num_heads", "d_ff", "key_dim", "value_dim")
    } | others
    of_keras = {"kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer"}
    others_of_layers = {"name", "trainable", "dtype", "seed", "flash_attention", "remat", *of_keras}
    for stack in (model.encoder, model.decoder):
        config = stack.get_config()
        assert config.pop("relative_positions") == "alibi"
        assert {name: config[name] for name in config.keys() - others_of_layers} == expected
    assert model.source_embedding.positions is model.target_embedding.positions is None
    layer = model_of(positions="learned").decoder.layers[0]
    assert layer.relative_positions is None


def random_parents(generator, position, beam_size):
    if position == 0:
        return np.tile(np.arange(beam_size), (len(SOURCE), 1))
    return generator.integers(0, beam_size, size=(len(SOURCE), beam_size))


LENGTH = 6


def decode_steps(model, beam_size, max_length=LENGTH, seed=0):
    """Random tokens and parents: the logits of each step, and each hypothesis' tokens so far."""
    batch = len(SOURCE)
    generator = np.random.default_rng(seed)
    step, state = model.start_decoding(SOURCE, beam_size, max_length)
    prefixes = np.zeros((batch, beam_size, 0), int)
    for position in range(LENGTH):
        token_ids = generator.integers(1, 11, size=(batch, beam_size)).astype("int32")
        parents = random_parents(generator, position, beam_size).astype("int32")
        prefixes = np.take_along_axis(prefixes, parents[:, :, None], axis=1)
        prefixes = np.concatenate([prefixes, token_ids[:, :, None]], axis=2)
        logits, state = step(
            *map(ops.convert_to_tensor, (token_ids, parents, np.int32(position))), state
        )
        # A row for each source, and room for what may come, or for what has come.
        num_entries = (LENGTH if max_length else position + 1) * beam_size
        shapes = {tuple(tensor.shape) for cache in state.caches for tensor in cache}
        heads = model.config.num_key_value_heads or 2
        assert shapes == {
            (batch, heads, num_entries, width)
            for width in (model.config.key_dim, SIZES["value_dim"])
        }
        if beam_size == 1 and max_length is None:
            assert state.mask == ()
        else:
            assert tuple(state.mask.shape) == (batch, beam_size, num_entries)
        yield ops.convert_to_numpy(logits), prefixes


def assert_each_hypothesis_equals_the_full_pass(model, beam_size, max_length=LENGTH):
    for logits, prefixes in decode_steps(model, beam_size, max_length):
        source = np.repeat(SOURCE, beam_size, axis=0)
        target = prefixes.reshape(len(source), -1)
        expected = logits_of(model, source, target)[:, -1]
        assert logits.shape == (len(SOURCE), beam_size, 11)
        np.testing.assert_allclose(logits.reshape(expected.shape), expected, atol=2e-5)


def assert_each_step_equals_the_full_pass(model):
    steps = list(decode_steps(model, beam_size=1))
    whole = logits_of(model, SOURCE, steps[-1][1][:, 0])
    for position, (logits, _) in enumerate(steps):
        np.testing.assert_allclose(logits[:, 0], whole[:, position], atol=1e-4)


@pytest.mark.slow
@one_modern_variant
def test_each_hypothesis_of_a_beam_sees_the_tokens_of_its_ancestors_alone(variant):
    assert_each_hypothesis_equals_the_full_pass(model_of(**variant), beam_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [4, None])
def test_ancestors_by_hand(max_length):
    # Two hypotheses at position 2. The first descends from hypothesis 1 at position 0 and from 0 at
    # position 1; the second is itself everywhere. Position 3 is not written yet.
    step, state = model_of(tie_embeddings="all").start_decoding(SOURCE[:1], 2, max_length)
    for position, parents in enumerate([[0, 1], [1, 1], [0, 1]]):
        _, state = step(*map(ops.convert_to_tensor, ([[5, 5]], [parents], position)), state)
    expected = [[0, 1, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]]
    mask = ops.convert_to_numpy(state.mask[0]).astype(int)
    assert mask[:, :6].tolist() == expected and not mask[:, 6:].any()


@one_modern_variant
def test_a_state_may_grow_with_each_step(variant):
    model = model_of(**variant)
    for beam_size in (1, 3):
        assert_each_hypothesis_equals_the_full_pass(model, beam_size, max_length=None)


@each([], slow=[*VARIANTS, *MODERN])
def test_each_step_of_a_quantized_model_equals_its_full_pass(variant):
    model = model_of(**variant)
    exact = logits_of(model, SOURCE, TARGET)
    model.quantize("int8")
    assert model.output_projection.quantization_mode == (
        "int8" if variant["tie_embeddings"] == "none" else None
    )
    assert {
        layer.feed_forward.output_dense.quantization_mode for layer in model.decoder.layers
    } == {"int8"}
    difference = logits_of(model, SOURCE, TARGET) - exact
    # A gate multiplies what two products have rounded: single logits may be further off.
    size = (lambda x: np.sqrt(np.mean(x**2))) if variant in MODERN else (lambda x: np.abs(x).max())
    assert 0 < size(difference) < 0.1 * size(exact)
    assert_each_step_equals_the_full_pass(model)


@pytest.mark.slow
def test_gptq_quantizes_the_encoder():
    model = model_of(tie_embeddings="all")
    exact = logits_of(model, SOURCE, TARGET)
    structure = {
        "pre_block_layers": [model.source_embedding],
        "sequential_blocks": model.encoder.layers,
    }
    options = dict(tokenizer=list, num_samples=2, sequence_length=SOURCE.shape[1], group_size=-1)
    model.quantize(
        "gptq", config=GPTQConfig([SOURCE], quantization_layer_structure=structure, **options)
    )
    assert all(
        layer.self_attention.query_dense.is_gptq_calibrated for layer in model.encoder.layers
    )
    difference = logits_of(model, SOURCE, TARGET) - exact
    assert 0 < np.abs(difference).max() < 0.5 * np.abs(exact).max()
    assert_each_step_equals_the_full_pass(model)


@pytest.mark.slow
@two_variants
def test_more_padding_changes_nothing_beyond_rounding(variant):
    # Sums over more zeros may be taken in another order: float32 keeps logits of about 10 to 1e-5.
    model = model_of(**variant)
    logits = logits_of(model, SOURCE, TARGET)
    source, target = np.pad(SOURCE, ((0, 0), (0, 4))), np.pad(TARGET, ((0, 0), (0, 3)))
    padded = logits_of(model, source, target)[:, : TARGET.shape[1]]
    np.testing.assert_allclose(padded, logits, atol=1e-5)
    for i in range(len(SOURCE)):
        real = TARGET[i] != 0
        alone = logits_of(model, SOURCE[i : i + 1, SOURCE[i] != 0], TARGET[i : i + 1, real])
        np.testing.assert_allclose(alone[0], logits[i, real], atol=1e-5)


@pytest.mark.slow
@two_variants
def test_future_target_tokens_change_nothing(variant):
    model = model_of(**variant)
    target = np.array([[1, 5, 3, 8, 2, 7], [1, 4, 6, 9, 3, 2], [1, 3, 3, 4, 5, 6]])
    logits = logits_of(model, SOURCE, target)
    for position in range(target.shape[1] - 1):
        changed = target.copy()
        changed[:, position + 1 :] = 10
        changed = logits_of(model, SOURCE, changed)
        np.testing.assert_array_equal(changed[:, : position + 1], logits[:, : position + 1])
        assert np.all(np.any(changed[:, position + 1 :] != logits[:, position + 1 :], axis=-1))


def test_a_source_of_padding_alone_stays_finite():
    logits = logits_of(model_of(), np.zeros((1, 3), int), TARGET[:1])
    assert np.all(np.isfinite(logits))


@pytest.mark.slow
def test_the_base_model_has_the_papers_number_of_parameters():
    # Shared table: 37,000 * 512 = 18,944,000.
    # Attention, four projections without bias: 4 * 512 * 512 = 1,048,576.
    # Feed-forward: 512 * 2048 + 2048 + 2048 * 512 + 512 = 2,099,712. Normalization: 1,024.
    # Encoder layer: 1,048,576 + 2,099,712 + 2 * 1,024 = 3,150,336.
    # Decoder layer: 2 * 1,048,576 + 2,099,712 + 3 * 1,024 = 4,199,936.
    # 18,944,000 + 6 * (3,150,336 + 4,199,936) = 63,045,632; the paper says 65 million.
    config = TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000)
    # The shapes of the weights are enough, without their values, which Keras would make later.
    with keras.StatelessScope(initialize_variables=False):
        assert build_transformer(config).count_params() == 63_045_632
    keras.backend.clear_session()


@pytest.mark.parametrize(
    "tie_embeddings",
    ["all", *(pytest.param(name, marks=pytest.mark.slow) for name in ("target", "none"))],
)
def test_logits_are_float32_under_a_mixed_policy(tie_embeddings):
    model = model_of(dtype="mixed_bfloat16", tie_embeddings=tie_embeddings)
    logits = model({"source": SOURCE, "target": TARGET})
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert keras.backend.standardize_dtype(model.outputs[0].dtype) == "float32"
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    policies = {layer.dtype_policy.name for layer in model.layers if layer.weights}
    assert policies == {"mixed_bfloat16"}
    step, state = model.start_decoding(SOURCE, 2, 4)
    tokens = ops.ones((3, 2), "int32")
    step_logits, _ = step(tokens, tokens, ops.zeros((), "int32"), state)
    assert keras.backend.standardize_dtype(step_logits.dtype) == "float32"
    # bfloat16 has 8 bits: the same model, roughly.
    exact = logits_of(model_of(dtype="float32", tie_embeddings=tie_embeddings), SOURCE, TARGET)
    difference = ops.convert_to_numpy(logits) - exact
    assert 0 < np.sqrt(np.mean(difference**2)) < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("logits_bias", [False, True])
def test_another_output_projection_computes_the_logits_of_steps(logits_bias):
    model = model_of(logits_bias=logits_bias)
    copy = keras.layers.Dense(model.vocab_size, use_bias=logits_bias)
    copy.build((None, model.config.d_model))
    if logits_bias:
        model.output_projection.bias.assign(
            keras.random.normal(model.output_projection.bias.shape, seed=1)
        )
        copy.bias.assign(model.output_projection.bias)
    copy.kernel.assign(model.output_projection.kernel)
    tokens = ops.ones((3, 2), "int32")

    def step_logits(**options):
        step, state = model.start_decoding(SOURCE, 2, 4, **options)
        return ops.convert_to_numpy(step(tokens, tokens, ops.zeros((), "int32"), state)[0])

    np.testing.assert_allclose(
        step_logits(output_projection=copy), step_logits(), rtol=1e-6, atol=1e-6
    )
    copy.kernel.assign(2 * copy.kernel)
    assert np.abs(step_logits(output_projection=copy) - step_logits()).max() > 0.1


@pytest.mark.slow
@one_modern_variant
def test_a_saved_model_is_the_same_model(variant, tmp_path):
    model = model_of(**variant)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    assert loaded.config == model.config
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(
        logits_of(loaded, SOURCE, TARGET), logits_of(model, SOURCE, TARGET)
    )
    assert len(loaded.variables) == len(model.variables)


def clone_with_a_function(model):
    return keras.models.clone_model(
        model, clone_function=lambda layer: type(layer).from_config(layer.get_config())
    )


def by_config(model):
    return Transformer.from_config(model.get_config())


def by_json(model):
    return keras.models.model_from_json(model.to_json())


@pytest.mark.slow
@one_variant
@pytest.mark.parametrize("copied", [keras.models.clone_model, clone_with_a_function])
def test_a_clone_is_a_functional_model_with_tied_weights_of_its_own(variant, copied):
    model = model_of(**variant)
    clone = copied(model)
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in model.weights]
    assert not {id(weight) for weight in clone.weights} & {id(weight) for weight in model.weights}
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(
        logits_of(clone, SOURCE, TARGET), logits_of(model, SOURCE, TARGET)
    )


@pytest.mark.slow
@one_variant
@pytest.mark.parametrize("copied", [by_config, by_json])
def test_a_copy_is_a_transformer_with_tied_weights_of_its_own(variant, copied):
    model = model_of(**variant)
    copy = copied(model)
    assert type(copy) is Transformer
    assert copy.get_config() == model.get_config() and copy.config == model.config
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]
    assert not {id(weight) for weight in copy.weights} & {id(weight) for weight in model.weights}
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits_of(copy, SOURCE, TARGET), logits_of(model, SOURCE, TARGET))
    for (logits, _), (expected, _) in zip(
        decode_steps(copy, 2), decode_steps(model, 2), strict=True
    ):
        np.testing.assert_array_equal(logits, expected)
    # And a copy of the copy.
    assert len(copied(copy).weights) == len(model.weights)


@pytest.mark.parametrize(
    "copied",
    [
        by_config,
        *(pytest.param(f, marks=pytest.mark.slow) for f in (by_json, lambda model: model)),
    ],
)
def test_a_copy_has_the_policy_and_is_saved(copied, tmp_path):
    model = copied(model_of(dtype="mixed_bfloat16", tie_embeddings="target", logits_bias=True))
    assert (
        model.encoder.dtype_policy.name
        == model.output_projection.dtype_policy.name
        == "mixed_bfloat16"
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer and len(loaded.variables) == len(model.variables)
    assert loaded.encoder.dtype_policy.name == "mixed_bfloat16"
    np.testing.assert_array_equal(
        logits_of(loaded, SOURCE, TARGET), logits_of(model, SOURCE, TARGET)
    )


def test_the_model_is_functional():
    model = model_of()
    assert isinstance(model, keras.Model) and set(model.input) == {"source", "target"}
    assert model.output.shape == (None, None, 11)
    # And a part of another one.
    source, target = keras.Input((5,), dtype="int32"), keras.Input((6,), dtype="int32")
    logits = model({"source": source, "target": target})
    outer = keras.Model([source, target], ops.argmax(logits, axis=-1))
    np.testing.assert_array_equal(
        ops.convert_to_numpy(outer([SOURCE, TARGET])), logits_of(model, SOURCE, TARGET).argmax(-1)
    )
