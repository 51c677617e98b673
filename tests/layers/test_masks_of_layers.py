"""What every layer takes as a mask: tensors, NumPy arrays and lists of booleans or of 0 and 1."""

import keras
import numpy as np
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
    MultiHeadAttention,
    PositionalEmbedding,
    PositionalEncoding,
    Residual,
    TiedProjection,
)
from keras_transformer.errors import ConfigError

BATCH, TARGET, SOURCE, D_MODEL = 2, 4, 3, 6
ROWS, SOURCE_ROWS = normal(BATCH, TARGET, D_MODEL), normal(BATCH, SOURCE, D_MODEL, seed=1)
PADDING = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
SOURCE_PADDING = np.array([[1, 1, 0], [1, 0, 0]], bool)
PAIRS = np.tril(np.ones((TARGET, TARGET), bool))
SOURCE_PAIRS = np.random.default_rng(0).random((BATCH, TARGET, SOURCE)) < 0.7
SIZES = dict(num_heads=2, d_ff=8)

# Each layer, its inputs, and its masks.
LAYERS = {
    "MultiHeadAttention": (
        lambda: MultiHeadAttention(2, 3),
        [ROWS, SOURCE_ROWS],
        dict(
            query_mask=PADDING,
            value_mask=SOURCE_PADDING,
            key_mask=SOURCE_PADDING[::-1],
            attention_mask=SOURCE_PAIRS,
        ),
    ),
    "restricted attention": (
        lambda: MultiHeadAttention(2, 3, sliding_window=2),
        [ROWS, ROWS],
        dict(value_mask=PADDING, key_mask=PADDING[::-1]),
    ),
    "EncoderLayer": (
        lambda: EncoderLayer(**SIZES),
        [ROWS],
        dict(mask=PADDING, attention_mask=PAIRS),
    ),
    "Encoder": (lambda: Encoder(2, **SIZES), [ROWS], dict(mask=PADDING, attention_mask=PAIRS)),
    **{
        name: (
            make,
            [ROWS, SOURCE_ROWS],
            dict(
                target_mask=PADDING,
                source_mask=SOURCE_PADDING,
                attention_mask=PAIRS,
                source_attention_mask=SOURCE_PAIRS,
            ),
        )
        for name, make in {
            "DecoderLayer": lambda: DecoderLayer(**SIZES),
            "Decoder": lambda: Decoder(2, **SIZES),
        }.items()
    },
}
MASKS = [(name, mask) for name, (_, _, masks) in LAYERS.items() for mask in masks]
FORMS = {
    "list": lambda mask: mask.tolist(),
    "list of integers": lambda mask: mask.astype(int).tolist(),
    "list of floats": lambda mask: mask.astype(float).tolist(),
    "bool": lambda mask: mask,
    "int32": lambda mask: mask.astype("int32"),
    "float32": lambda mask: mask.astype("float32"),
    "float64": lambda mask: mask.astype("float64"),
    "float tensor": lambda mask: ops.convert_to_tensor(mask, "float32"),
    "integer tensor": lambda mask: ops.convert_to_tensor(mask, "int32"),
}


def layer_and_inputs(name):
    make, inputs, _ = LAYERS[name]
    return built(make(), *[rows.shape for rows in inputs]), inputs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_of_mask_is_the_same_mask(name, form):
    layer, inputs = layer_and_inputs(name)
    masks = LAYERS[name][2]
    expected = numpy(
        layer(*inputs, **{mask: ops.convert_to_tensor(masks[mask], "bool") for mask in masks})
    )
    given = {mask: FORMS[form](values) for mask, values in masks.items()}
    np.testing.assert_array_equal(numpy(layer(*inputs, **given)), expected)
    assert np.any(numpy(layer(*inputs)) != expected)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_masks_of_floats_may_be_rounded_by_a_policy(dtype):
    layer = EncoderLayer(**SIZES, dtype=dtype)
    masked, expected = (layer(ROWS, mask=mask) for mask in (PADDING.astype("float32"), PADDING))
    np.testing.assert_array_equal(*(numpy(ops.cast(t, "float32")) for t in (masked, expected)))


@pytest.mark.parametrize(("name", "mask"), MASKS)
@pytest.mark.parametrize("make", [np.asarray, ops.convert_to_tensor, np.ndarray.tolist])
def test_a_mask_that_other_libraries_add_to_scores_is_refused(name, mask, make):
    layer, inputs = layer_and_inputs(name)
    added = np.where(LAYERS[name][2][mask], 0.0, -1e9).astype("float32")
    message = f"{mask} must be boolean, True = attend, or hold only 0 and 1; received {mask}=-1"
    with pytest.raises(ConfigError) as error:
        layer(*inputs, **{mask: make(added)})
    (line,) = [line for line in str(error.value).splitlines() if mask in line and "must" in line]
    assert message in line


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, np.nan, np.inf])
def test_any_other_number_is_refused(value):
    mask = np.where(PADDING, 1.0, value).astype("float32")
    with pytest.raises(
        ConfigError, match="mask must be boolean, True = attend, or hold only 0 and"
    ):
        EncoderLayer(**SIZES)(ROWS, mask=mask)


@pytest.mark.parametrize("name", LAYERS)
def test_values_are_taken_as_they_are_where_they_are_not_known(name):
    layer, inputs = layer_and_inputs(name)
    masks = {mask: values.astype("float32") for mask, values in LAYERS[name][2].items()}
    expected = numpy(layer(*inputs, **masks))

    def call(masks):
        return layer(*inputs, **masks)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        call = tf.function(call)
    elif keras.backend.backend() == "jax":
        import jax

        call = jax.jit(call)
    np.testing.assert_allclose(numpy(call(masks)), expected, atol=1e-5)


def test_a_functional_model_takes_masks_of_floats():
    rows, mask = keras.Input((TARGET, D_MODEL)), keras.Input((TARGET,))
    layer = EncoderLayer(**SIZES)
    model = keras.Model([rows, mask], layer(rows, mask=mask))
    np.testing.assert_allclose(
        numpy(model([ROWS, PADDING.astype("float32")])), numpy(layer(ROWS, mask=PADDING)), atol=1e-6
    )


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    RAGGED = tf.RaggedTensor.from_tensor(ROWS)
    RAGGED_IDS = tf.ragged.constant([[3, 1, 4], [2]])

    def built_projection():
        embedding = PositionalEmbedding(9, D_MODEL)
        embedding.build((None, None))
        return TiedProjection(embedding)

    @pytest.mark.parametrize(
        ("name", "call"),
        [
            ("inputs", lambda: EncoderLayer(**SIZES)(RAGGED)),
            ("inputs", lambda: Encoder(1, **SIZES)(RAGGED)),
            ("inputs", lambda: Encoder(1, **SIZES, norm_first=True)(RAGGED)),
            ("target", lambda: DecoderLayer(**SIZES)(RAGGED)),
            ("target", lambda: DecoderLayer(**SIZES)(RAGGED, SOURCE_ROWS)),
            ("source", lambda: DecoderLayer(**SIZES)(ROWS, RAGGED)),
            ("target", lambda: Decoder(1, **SIZES)(RAGGED)),
            ("source", lambda: Decoder(1, **SIZES, norm_first=True)(ROWS, RAGGED)),
            ("query", lambda: MultiHeadAttention(2, 3)(RAGGED, ROWS)),
            ("value", lambda: MultiHeadAttention(2, 3)(ROWS, RAGGED)),
            ("key", lambda: MultiHeadAttention(2, 3)(ROWS, ROWS, RAGGED)),
            ("inputs", lambda: FeedForward(8)(RAGGED)),
            ("inputs", lambda: PositionalEncoding()(RAGGED)),
            ("inputs", lambda: built_projection()(RAGGED)),
            ("inputs", lambda: Residual(keras.layers.LayerNormalization())(RAGGED, RAGGED)),
            ("token_ids", lambda: PositionalEmbedding(9, D_MODEL)(RAGGED_IDS)),
            ("mask", lambda: EncoderLayer(**SIZES)(ROWS, mask=RAGGED[..., 0])),
            ("attention_mask", lambda: Encoder(1, **SIZES)(ROWS, attention_mask=RAGGED)),
            ("source_mask", lambda: Decoder(1, **SIZES)(ROWS, ROWS, source_mask=RAGGED[..., 0])),
            ("score_bias", lambda: MultiHeadAttention(2, 3)(ROWS, ROWS, score_bias=RAGGED)),
        ],
    )
    def test_ragged_tensors_are_to_be_padded(name, call):
        with pytest.raises(ConfigError) as error:
            call()
        message = (
            f"{name} must not be ragged: pad it first, with to_tensor(); received a RaggedTensor"
        )
        assert message in str(error.value)
