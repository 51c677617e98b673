"""PyTorch's modules compared with what is made of them, and back."""

import sys

import keras
import numpy as np
import pytest
import torch
from keras.ops import convert_to_numpy as numpy
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn import functional

from keras_transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, MultiHeadAttention
from keras_transformer.errors import ConfigError
from keras_transformer.interchange import EncoderDecoder, NormalizedStack, from_torch, to_torch

# Triton, which comes with PyTorch's build for GPUs, ends a process that TensorFlow is loaded in:
# both contain LLVM.
if keras.backend.backend() == "tensorflow":
    sys.modules["triton"] = None
TOLERANCE = dict(rtol=0, atol=2e-6)
REAL = np.array([[True] * 6, [True] * 4 + [False] * 2])
SOURCE_REAL = np.array([[True] * 5, [True] * 2 + [False] * 3])
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(6)
ARGUMENTS = dict(d_model=8, nhead=2, dim_feedforward=12)
SETTINGS = {
    "post-norm": dict(batch_first=True),
    "pre-norm": dict(batch_first=True, norm_first=True, activation=functional.gelu, dropout=0.3),
    "batch second": dict(batch_first=False, activation=torch.nn.SiLU(), layer_norm_eps=1e-3),
    "without biases": dict(batch_first=True, bias=False, norm_first=True),
    "one head": dict(batch_first=True, nhead=1, activation="gelu"),
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomized(module, seed=1):
    """All parameters random, also biases, which begin with zeros, and the scales of
    normalizations."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return module.eval()


def randomized_layer(layer, seed=1):
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=weight.shape) * 0.4 for weight in layer.get_weights()])
    return layer


def run(module, *inputs, **masks):
    """Returns the outputs (batch, length, width) of a module, whose masks are the inverse of
    ours."""
    part = next(part for part in module.modules() if isinstance(part, torch.nn.MultiheadAttention))
    tensors = [torch.from_numpy(x if part.batch_first else x.swapaxes(0, 1)) for x in inputs]
    masks = {
        name: ~torch.from_numpy(mask) if isinstance(mask, np.ndarray) else mask
        for name, mask in masks.items()
    }
    with torch.no_grad():
        outputs = module(*tensors, **masks)
    outputs = (outputs[0] if isinstance(outputs, tuple) else outputs).numpy()
    return outputs if part.batch_first else outputs.swapaxes(0, 1)


def assert_same_weights(layer, expected):
    for weight, other in zip(weights(layer), weights(expected), strict=True):
        assert_array_equal(numpy(weight), numpy(other))


def weights(layer):
    return (
        [weight for part in layer for weight in weights(part)]
        if isinstance(layer, tuple)
        else layer.weights
    )


def configs(layer):
    if isinstance(layer, tuple):
        return [type(layer), *map(configs, layer)]
    config = layer.get_config()
    del config["name"]
    return [type(layer), config]


def assert_round_trip(layer):
    """What PyTorch makes of a layer becomes the same layer, bit for bit."""
    again = from_torch(to_torch(layer))
    assert configs(again) == configs(layer)
    assert_same_weights(again, layer)


# Attention.


@pytest.mark.parametrize(
    "settings",
    [
        dict(batch_first=True),
        dict(batch_first=False, bias=False),
        dict(batch_first=True, kdim=5, vdim=6),
        dict(batch_first=False, kdim=5, dropout=0.2),
    ],
)
def test_attention(settings):
    module = randomized(torch.nn.MultiheadAttention(8, 2, **settings))
    attention = from_torch(module)
    inputs = normal(2, 6, 8), normal(2, 5, module.kdim, seed=2), normal(2, 5, module.vdim, seed=3)
    query, key, value = inputs
    assert_allclose(numpy(attention(query, value, key)), run(module, *inputs), **TOLERANCE)
    expected = run(module, *inputs, key_padding_mask=SOURCE_REAL)
    assert_allclose(
        numpy(attention(query, value, key, value_mask=SOURCE_REAL)), expected, **TOLERANCE
    )
    assert_allclose(
        run(to_torch(attention), *inputs, key_padding_mask=SOURCE_REAL), expected, **TOLERANCE
    )
    assert attention.get_config()["dropout"] == module.dropout
    assert_round_trip(attention)


# Layers.


@each_setting
def test_an_encoder_layer(settings):
    module = randomized(torch.nn.TransformerEncoderLayer(**ARGUMENTS | settings))
    layer = from_torch(module)
    assert type(layer) is EncoderLayer
    x = normal(2, 6, 8)
    assert_allclose(numpy(layer(x)), run(module, x), **TOLERANCE)
    masked = run(module, x, src_key_padding_mask=REAL)
    assert_allclose(numpy(layer(x, mask=REAL))[REAL], masked[REAL], **TOLERANCE)
    causal = run(module, x, src_mask=CAUSAL)
    assert_allclose(numpy(layer(x, attention_mask=np.tri(6, dtype=bool))), causal, **TOLERANCE)
    assert_allclose(
        run(to_torch(layer), x, src_key_padding_mask=REAL)[REAL], masked[REAL], **TOLERANCE
    )
    assert_round_trip(layer)


@each_setting
@pytest.mark.parametrize("source_width", [8, 5])
def test_a_decoder_layer(settings, source_width):
    module = torch.nn.TransformerDecoderLayer(**ARGUMENTS | settings)
    if source_width != 8:
        attention = module.multihead_attn
        module.multihead_attn = torch.nn.MultiheadAttention(
            8,
            attention.num_heads,
            attention.dropout,
            bias=attention.in_proj_bias is not None,
            kdim=source_width,
            vdim=source_width,
            batch_first=attention.batch_first,
        )
    randomized(module)
    layer = from_torch(module)
    assert type(layer) is DecoderLayer
    x, source = normal(2, 6, 8), normal(2, 5, source_width, seed=2)
    assert_allclose(numpy(layer(x, source)), run(module, x, source, tgt_mask=CAUSAL), **TOLERANCE)
    masks = dict(
        tgt_mask=CAUSAL < 0, tgt_key_padding_mask=REAL, memory_key_padding_mask=SOURCE_REAL
    )
    expected = run(module, x, source, **masks)
    outputs = layer(x, source, target_mask=REAL, source_mask=SOURCE_REAL)
    assert_allclose(numpy(outputs), expected, **TOLERANCE)
    assert_allclose(run(to_torch(layer), x, source, **masks), expected, **TOLERANCE)
    assert_round_trip(layer)


def test_rates_of_dropout_go_where_they_belong():
    module = torch.nn.TransformerDecoderLayer(**ARGUMENTS, dropout=0.1)
    module.dropout.p, module.self_attn.dropout, module.multihead_attn.dropout = 0.2, 0.3, 0.3
    layer = from_torch(module)
    assert (layer.dropout, layer.activation_dropout, layer.attention_dropout) == (0.1, 0.2, 0.3)
    back = to_torch(layer)
    rates = [part.p for part in (back.dropout, back.dropout1, back.dropout2, back.dropout3)]
    assert rates == [0.2, 0.1, 0.1, 0.1]
    assert (back.self_attn.dropout, back.multihead_attn.dropout) == (0.3, 0.3)


@pytest.mark.parametrize("name", ["gelu", "mish", "relu", "relu6", "sigmoid", "silu", "tanh"])
def test_activations(name):
    modules = dict(
        gelu=torch.nn.GELU(), mish=torch.nn.Mish(), relu=torch.nn.ReLU(), relu6=torch.nn.ReLU6()
    )
    modules |= dict(sigmoid=torch.nn.Sigmoid(), silu=torch.nn.SiLU(), tanh=torch.nn.Tanh())
    x = normal(2, 6, 8)
    for activation in (getattr(functional, name), modules[name], getattr(torch, name, torch.relu)):
        module = torch.nn.TransformerEncoderLayer(
            **ARGUMENTS, activation=activation, batch_first=True
        )
        layer = from_torch(randomized(module))
        assert_allclose(numpy(layer(x)), run(module, x), **TOLERANCE)
        assert to_torch(layer).activation is getattr(functional, layer.activation.__name__)


def test_the_layers_of_the_paper_have_no_biases_in_their_attention_there_too():
    layer = EncoderLayer(num_heads=2, d_ff=12)
    layer.build((None, None, 8))
    randomized_layer(layer)
    module = to_torch(layer)
    assert not module.training and all(parameter.requires_grad for parameter in module.parameters())
    x = normal(2, 6, 8)
    assert_allclose(
        run(module, x, src_key_padding_mask=REAL), numpy(layer(x, mask=REAL)), **TOLERANCE
    )
    assert {name for name, _ in module.named_parameters() if "attn" in name} == {
        "self_attn.in_proj_weight",
        "self_attn.out_proj.weight",
    }
    assert_round_trip(layer)


# Stacks and the Transformer.


def encoder_stack(norm=None, **settings):
    layer = torch.nn.TransformerEncoderLayer(**ARGUMENTS | settings)
    return randomized(torch.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False))


def decoder_stack(norm=None, **settings):
    return randomized(
        torch.nn.TransformerDecoder(
            torch.nn.TransformerDecoderLayer(**ARGUMENTS | settings), 2, norm
        )
    )


@each_setting
@pytest.mark.parametrize("has_norm", [False, True])
def test_stacks(settings, has_norm):
    epsilon, bias = settings.get("layer_norm_eps", 1e-5), settings.get("bias", True)
    if settings.get("norm_first") and not has_norm:
        with pytest.raises(
            ConfigError, match="^norm must be given if norm_first=True; received norm=None$"
        ):
            from_torch(encoder_stack(**settings))
        return
    norm = torch.nn.LayerNorm(8, epsilon, bias=bias) if has_norm else None
    encoder_module, decoder_module = (
        encoder_stack(norm, **settings),
        decoder_stack(norm, **settings),
    )
    encoder, decoder = from_torch(encoder_module), from_torch(decoder_module)
    is_normalized = has_norm and not settings.get("norm_first")
    assert type(encoder) is (NormalizedStack if is_normalized else Encoder)
    assert type(decoder) is (NormalizedStack if is_normalized else Decoder)
    source, target = normal(2, 5, 8), normal(2, 6, 8, seed=2)
    expected = run(encoder_module, source, src_key_padding_mask=SOURCE_REAL)
    encoded = numpy(encoder(source, mask=SOURCE_REAL))
    assert_allclose(encoded, expected, **TOLERANCE)
    assert_allclose(
        run(to_torch(encoder), source, src_key_padding_mask=SOURCE_REAL), expected, **TOLERANCE
    )
    masks = dict(
        tgt_mask=CAUSAL < 0, tgt_key_padding_mask=REAL, memory_key_padding_mask=SOURCE_REAL
    )
    expected = run(decoder_module, target, source, **masks)
    outputs = decoder(target, source, target_mask=REAL, source_mask=SOURCE_REAL)
    assert_allclose(numpy(outputs), expected, **TOLERANCE)
    assert_allclose(run(to_torch(decoder), target, source, **masks), expected, **TOLERANCE)
    assert_round_trip(encoder)
    assert_round_trip(decoder)


@each_setting
def test_a_transformer(settings):
    arguments = ARGUMENTS | settings
    module = randomized(
        torch.nn.Transformer(num_encoder_layers=2, num_decoder_layers=3, **arguments)
    )
    transformer = from_torch(module)
    assert type(transformer) is EncoderDecoder
    source, target = normal(2, 5, 8), normal(2, 6, 8, seed=2)
    masks = dict(tgt_mask=CAUSAL < 0, tgt_key_padding_mask=REAL)
    masks |= dict(src_key_padding_mask=SOURCE_REAL, memory_key_padding_mask=SOURCE_REAL)
    expected = run(module, source, target, **masks)
    encoded = transformer.encoder(source, mask=SOURCE_REAL)
    outputs = transformer.decoder(target, encoded, target_mask=REAL, source_mask=SOURCE_REAL)
    assert_allclose(numpy(outputs), expected, **TOLERANCE)
    back = to_torch(transformer)
    assert type(back) is torch.nn.Transformer and back.batch_first
    assert_allclose(run(back, source, target, **masks), expected, **TOLERANCE)
    assert_round_trip(transformer)


def test_a_stack_and_its_norm_return_scores_too():
    stack = from_torch(encoder_stack(torch.nn.LayerNorm(8), batch_first=True))
    x = normal(2, 6, 8)
    outputs, scores = stack(x, return_attention_scores=True)
    # Without scores, Keras on PyTorch has one operation for all of the attention.
    assert_allclose(numpy(outputs), numpy(stack(x)), **TOLERANCE)
    assert [score.shape for score in scores] == [(2, 2, 6, 6)] * 2


# Dtypes.


def test_half_precision_is_exact_in_both_directions():
    module = randomized(torch.nn.TransformerEncoderLayer(**ARGUMENTS)).bfloat16()
    back = to_torch(from_torch(module, dtype="bfloat16"))
    for name, parameter in module.state_dict().items():
        assert back.state_dict()[name].dtype == torch.bfloat16
        assert torch.equal(back.state_dict()[name], parameter)
    layer = from_torch(module)
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    assert torch.equal(to_torch(layer).linear1.weight.bfloat16(), module.linear1.weight)


# What has no counterpart.


def changed_layer(cls=torch.nn.TransformerEncoderLayer, **changes):
    module = cls(**ARGUMENTS)
    for name, value in changes.items():
        setattr(module, name, value)
    return module


def uneven_stack():
    module = encoder_stack()
    module.layers[1].dropout.p = 0.5
    return module


class Subclass(torch.nn.TransformerEncoderLayer):
    pass


@pytest.mark.parametrize(
    "module, message",
    [
        (torch.nn.Linear(2, 3), "module must be one of MultiheadAttention, .*; received Linear"),
        (Subclass(**ARGUMENTS), "module must be one of .* not a subclass; received Subclass"),
        (
            torch.nn.MultiheadAttention(8, 2, add_bias_kv=True),
            "add_bias_kv of module must be False; received add_bias_kv of module=True",
        ),
        (
            torch.nn.MultiheadAttention(8, 2, add_zero_attn=True),
            "add_zero_attn of module must be False; received add_zero_attn of module=True",
        ),
        (
            changed_layer(activation=functional.leaky_relu),
            "activation must be one of .*; received activation=<.*",
        ),
        (
            changed_layer(activation=torch.nn.GELU("tanh")),
            "activation must be one of .*; received activation=GELU.*",
        ),
        (
            changed_layer(norm2=torch.nn.LayerNorm(8, 1e-3)),
            "eps of all norms must be equal; received 1e-05 and 0.001",
        ),
        (
            changed_layer(norm2=torch.nn.RMSNorm(8)),
            "norm must be of the class LayerNorm itself; received .*",
        ),
        (
            changed_layer(dropout2=torch.nn.Dropout(0.4)),
            "the rates of dropout1, .* equal; received 0.1 and 0.4",
        ),
        (
            changed_layer(linear1=torch.nn.Identity()),
            "linear must be of the class Linear itself; received .*",
        ),
        (
            changed_layer(linear2=torch.nn.Linear(12, 8, bias=False)),
            "bias of linear1 and linear2 must be equal; received True and False",
        ),
        (
            changed_layer(
                torch.nn.TransformerDecoderLayer,
                multihead_attn=torch.nn.MultiheadAttention(8, 4, 0.1),
            ),
            "num_heads must be equal; received 2 and 4",
        ),
        (uneven_stack(), "the settings of all layers must be equal; received .*"),
        (
            encoder_stack(torch.nn.LayerNorm(8, 1e-3), norm_first=True),
            "norm.eps must be that of the layers, 1e-05, if norm_first=True; received "
            "norm.eps=0.001",
        ),
        (
            torch.nn.Transformer(**ARGUMENTS, custom_encoder=torch.nn.Identity()),
            "encoder must be of the class TransformerEncoder itself; received encoder=Identity.*",
        ),
    ],
)
def test_what_we_have_not_is_one_line(module, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        from_torch(module)


@pytest.mark.parametrize(
    "settings",
    [
        *(
            dict(key_dim=3),
            dict(value_dim=3),
            dict(output_shape=6),
            dict(use_gate=True),
            dict(sliding_window=2),
        ),
        *(dict(sliding_window=2), dict(num_key_value_heads=1), dict(query_key_norm=True)),
        *(dict(relative_positions="rotary"), dict(num_heads=3), dict(kernel_regularizer="l2")),
        *(dict(bias_constraint="non_neg"), dict(activity_regularizer="l1")),
    ],
    ids=str,
)
def test_attention_that_pytorch_has_not_is_one_line(settings):
    attention = MultiHeadAttention(**dict(num_heads=2, key_dim=4) | settings)
    attention.build((None, None, 8), (None, None, 8))
    (name,) = settings
    with pytest.raises(
        ConfigError,
        match=r"^(the output's width|\w+) must be .* to become a torch.nn.Mul[^;]*; received",
    ) as e:
        to_torch(attention)
    assert name.replace("output_shape", "output") in str(e.value)


WITHOUT_COUNTERPART = [
    *(
        dict(key_dim=3),
        dict(value_dim=3),
        dict(sliding_window=2),
        dict(normalization="rms"),
        dict(gated=True),
    ),
    *(dict(num_key_value_heads=1), dict(query_key_norm=True), dict(relative_positions="alibi")),
    *(dict(activation="elu"), dict(feed_forward_bias=False), dict(kernel_regularizer="l2")),
]


@pytest.mark.parametrize("settings", WITHOUT_COUNTERPART, ids=str)
@pytest.mark.parametrize("cls", [EncoderLayer, DecoderLayer])
def test_layers_that_pytorch_has_not_are_one_line(cls, settings):
    layer = cls(**dict(num_heads=2, d_ff=12, attention_bias=True) | settings)
    layer.build((None, None, 8), *([(None, None, 8)] if cls is DecoderLayer else []))
    (name,) = settings
    with pytest.raises(ConfigError, match=rf"^{name} must be .*; received {name}="):
        to_torch(layer)


def test_a_decoder_layer_without_a_source_is_one_line():
    layer = DecoderLayer(num_heads=2, d_ff=12)
    layer.build((None, None, 8))
    with pytest.raises(
        ConfigError, match="^source must be given to a layer that becomes a torch.nn.Trans"
    ):
        to_torch(layer)


def test_a_layer_that_is_not_built_is_one_line():
    with pytest.raises(ConfigError, match="^e must be built before it is converted"):
        to_torch(EncoderLayer(num_heads=2, d_ff=12, name="e"))
