"""Names of other libraries, and our own of earlier releases."""

import warnings

import numpy as np
import pytest
from keras.ops import convert_to_numpy as numpy
from numpy_transformer import built, normal

import keras_transformer
from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
)
from keras_transformer.errors import ConfigError

ROWS = normal(2, 7, 6)
SIZES = dict(num_heads=2, d_ff=8)
BLOCKS = {
    "EncoderLayer": (EncoderLayer, SIZES),
    "DecoderLayer": (DecoderLayer, SIZES),
    "Encoder": (Encoder, dict(num_layers=2, **SIZES)),
    "Decoder": (Decoder, dict(num_layers=2, **SIZES)),
}
RESTRICTED = {
    "MultiHeadAttention": (MultiHeadAttention, dict(num_heads=2, key_dim=3)),
    **BLOCKS,
}
each_restricted = pytest.mark.parametrize(("cls", "arguments"), RESTRICTED.values(), ids=RESTRICTED)

# The names of others, and ours.
OF_BLOCKS = {
    "intermediate_dim": "d_ff",
    "dim_feedforward": "d_ff",
    "dff": "d_ff",
    "ff_dim": "d_ff",
    "nhead": "num_heads",
    "normalize_first": "norm_first",
    "layer_norm_epsilon": "epsilon",
    "layer_norm_eps": "epsilon",
    "rate": "dropout",
    "dropout_rate": "dropout",
    "use_bias": "attention_bias and feed_forward_bias",
}
OF_OTHERS = [
    *(
        (cls, name, ours)
        for cls in (EncoderLayer, DecoderLayer)
        for name, ours in OF_BLOCKS.items()
    ),
    *((MultiHeadAttention, name, "dropout") for name in ("rate", "dropout_rate")),
    (MultiHeadAttention, "head_dim", "key_dim"),
    (MultiHeadAttention, "nhead", "num_heads"),
    *((FeedForward, name, "d_ff") for name in ("intermediate_dim", "dff", "ff_dim")),
    (FeedForward, "rate", "dropout"),
    *((PositionalEmbedding, name, "d_model") for name in ("embed_dim", "output_dim")),
    *((PositionalEmbedding, name, "vocab_size") for name in ("input_dim", "vocabulary_size")),
    *((PositionalEmbedding, name, "max_length") for name in ("maxlen", "sequence_length")),
    (PositionalEmbedding, "dropout_rate", "dropout"),
]


@pytest.mark.parametrize(("cls", "name", "ours"), OF_OTHERS)
def test_a_name_of_another_library_is_told_by_ours(cls, name, ours):
    # Whether or not other arguments are missing.
    with pytest.raises(TypeError) as error:
        cls(**{name: 4})
    assert str(error.value) == f"{cls.__name__} has no argument {name!r}; use {ours} instead"


@pytest.mark.parametrize(
    ("stack", "layer"), [("Encoder", "EncoderLayer"), ("Decoder", "DecoderLayer")]
)
@pytest.mark.parametrize("name", OF_BLOCKS)
def test_a_stack_tells_the_names_that_it_or_its_layers_know(stack, layer, name):
    cls, arguments = BLOCKS[stack]
    with pytest.raises(TypeError) as error:
        cls(**{**arguments, name: 4})
    problem = f"has no argument {name!r}; use {OF_BLOCKS[name]} instead"
    assert str(error.value) in (f"{stack} {problem}", f"{layer} {problem}")


def test_without_the_width_a_stack_tells_its_name_too():
    with pytest.raises(TypeError, match="Encoder has no argument 'intermediate_dim'; use d_ff"):
        Encoder(2, 4, intermediate_dim=8)
    with pytest.raises(TypeError, match="Decoder has no argument 'nhead'; use num_heads"):
        Decoder(2, nhead=4, d_ff=8)


def test_the_class_that_is_called_is_named():
    class Mine(EncoderLayer):
        pass

    with pytest.raises(TypeError, match="^Mine has no argument 'dff'; use d_ff"):
        Mine(2, dff=8)


def test_a_subclass_may_have_an_argument_of_such_a_name():
    class Mixed(EncoderLayer):
        def __init__(self, num_heads, dff, rate=0.5, **kwargs):
            super().__init__(num_heads, d_ff=2 * dff, **kwargs)
            self.rate = rate

    layer = Mixed(2, dff=4, rate=0.25, dropout=0.1)
    assert (layer.d_ff, layer.rate, layer.dropout) == (8, 0.25, 0.1)
    with pytest.raises(TypeError, match="Mixed has no argument 'nhead'"):
        Mixed(nhead=2, dff=4)


# The sliding window, which was called neighborhood.


@each_restricted
def test_a_neighborhood_warns_and_works(cls, arguments):
    with pytest.warns(DeprecationWarning, match="neighborhood=2 \\* w - 1 is now called") as caught:
        restricted = cls(**arguments, neighborhood=3)
    # At the line that has to be changed, and once.
    assert [warning.filename for warning in caught] == [__file__]
    same = cls(**arguments, sliding_window=2)
    inputs = [ROWS] * (2 if cls is MultiHeadAttention else 1)
    built(restricted, *[rows.shape for rows in inputs])
    built(same, *[rows.shape for rows in inputs])
    np.testing.assert_array_equal(numpy(restricted(*inputs)), numpy(same(*inputs)))
    config = restricted.get_config()
    assert config["sliding_window"] == 2 and "neighborhood" not in config
    everything = built(cls(**arguments), *[rows.shape for rows in inputs])
    assert np.any(numpy(everything(*inputs)) != numpy(same(*inputs)))


@each_restricted
def test_a_configuration_of_an_earlier_release_loads_silently(cls, arguments):
    for neighborhood, sliding_window in ((1, 1), (3, 2), (65, 33), (None, None)):
        config = cls(**arguments).get_config()
        del config["sliding_window"]
        config["neighborhood"] = neighborhood
        given = dict(config)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer = cls.from_config(config)
        assert layer.get_config()["sliding_window"] == sliding_window
        # The configuration is the caller's.
        assert config == given
    # Earlier releases of MultiHeadAttention had both arguments.
    config = {**cls(**arguments, sliding_window=4).get_config(), "neighborhood": None}
    assert cls.from_config(config).get_config()["sliding_window"] == 4


@each_restricted
@pytest.mark.parametrize(
    ("neighborhood", "rule"),
    [
        (4, "positive and odd"),
        (0, "positive and odd"),
        (-3, "positive and odd"),
        ("3", "of type int or null"),
        (3.0, "of type int or null"),
    ],
)
@pytest.mark.filterwarnings("ignore:neighborhood:DeprecationWarning")
def test_a_neighborhood_that_is_not_odd_is_refused(cls, arguments, neighborhood, rule):
    with pytest.raises(ConfigError) as error:
        cls(**arguments, neighborhood=neighborhood)
    assert (
        str(error.value) == f"neighborhood must be {rule}; received neighborhood={neighborhood!r}"
    )


@each_restricted
@pytest.mark.filterwarnings("ignore:neighborhood:DeprecationWarning")
def test_both_names_at_once_are_refused(cls, arguments):
    with pytest.raises(ConfigError) as error:
        cls(**arguments, sliding_window=2, neighborhood=3)
    assert (
        str(error.value)
        == "sliding_window must be null if neighborhood=3; received sliding_window=2"
    )


@pytest.mark.filterwarnings("ignore:neighborhood:DeprecationWarning")
def test_no_neighborhood_is_all_positions():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        assert EncoderLayer(**SIZES, neighborhood=None).sliding_window is None
        assert Encoder(1, **SIZES, neighborhood=None).get_config()["sliding_window"] is None


def test_attention_still_has_the_attribute():
    assert MultiHeadAttention(2, 3, sliding_window=3).neighborhood == 5
    assert MultiHeadAttention(2, 3).neighborhood is None


# Sublayers.


def test_the_earlier_names_of_sublayers_are_the_same_layers():
    encoder, decoder = EncoderLayer(**SIZES), DecoderLayer(**SIZES, relative_positions="t5")
    encoder.build(ROWS.shape), decoder.build(ROWS.shape, ROWS.shape)
    for layer in (encoder, decoder):
        assert layer.attention is layer.self_attention
        assert layer.attention_residual is layer.self_attention_residual
    assert decoder.source_attention is decoder.cross_attention
    assert decoder.source_attention_residual is decoder.cross_attention_residual
    assert decoder.self_attention.relative_bias is decoder.self_attention.position_scheme
    with pytest.raises(AttributeError):
        decoder.attention = None


def test_a_decoder_without_a_source_has_no_attention_to_it():
    decoder = DecoderLayer(**SIZES)
    decoder.build(ROWS.shape)
    assert decoder.source_attention is None and decoder.cross_attention is None


def test_block_options_is_a_dict_for_one_more_release():
    with pytest.warns(DeprecationWarning, match="BlockOptions was removed"):
        from keras_transformer.layers import BlockOptions
    options = BlockOptions(num_heads=2, d_ff=8, dropout=0.2)
    assert EncoderLayer(**options).dropout == 0.2
    with pytest.raises(AttributeError, match="has no attribute 'BlockOption'"):
        keras_transformer.layers.BlockOption  # noqa: B018
