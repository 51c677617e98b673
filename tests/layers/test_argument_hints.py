"""Names of other libraries: the error suggests ours."""

import pytest

from keras_transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
)


@pytest.mark.parametrize(
    "cls", [EncoderLayer, Encoder, MultiHeadAttention, FeedForward, PositionalEmbedding]
)
def test_argument_hints_with_a_name_of_another_library_suggest_ours(cls):
    for name, ours in cls.other_names.items():
        # Also if required arguments are missing.
        with pytest.raises(TypeError) as error:
            cls(**{name: 4})
        assert str(error.value) == f"{cls.__name__} has no argument {name!r}; use {ours} instead"


def test_argument_hints_know_the_names_of_keras_pytorch_and_tutorials():
    assert EncoderLayer.other_names == DecoderLayer.other_names
    assert Encoder.other_names == Decoder.other_names
    names = EncoderLayer.other_names | PositionalEmbedding.other_names
    expected = {"nhead": "num_heads", "dim_feedforward": "d_ff", "intermediate_dim": "d_ff"}
    expected |= {"rate": "dropout", "layer_norm_epsilon": "epsilon", "embed_dim": "d_model"}
    assert expected.items() <= names.items()


@pytest.mark.parametrize("stack", [Encoder, Decoder])
def test_argument_hints_of_layers_are_given_when_the_stack_is_built(stack):
    with pytest.raises(TypeError, match="Layer has no argument 'dropout_rate'; use dropout"):
        stack(1, 2, 4, dropout_rate=0.1).build((None, None, 8))


def test_argument_hints_in_a_subclass_name_the_subclass():
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
