"""Converts PyTorch's attention, layers, stacks and Transformer.

Weights are passed as NumPy arrays, so Keras can run on any backend. The parts of a module are read
individually, because their settings may have changed since the module was created.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, overload

import keras

from ..checks import require, shown
from ..errors import ConfigError
from ..layers import Decoder, DecoderLayer, Encoder, EncoderLayer, MultiHeadAttention
from ..layers.layer_normalization import LayerNormalization
from ..tensors import Tensor
from .conversion import (
    as_array,
    import_package,
    parts_of,
    require_defaults,
    require_own_class,
    require_setting,
    require_settings,
    require_weights,
)

if TYPE_CHECKING:
    import torch

    TorchLayer: TypeAlias = torch.nn.TransformerEncoderLayer | torch.nn.TransformerDecoderLayer
    TorchStack: TypeAlias = torch.nn.TransformerEncoder | torch.nn.TransformerDecoder

T = TypeVar("T")
Policy: TypeAlias = "str | keras.DTypePolicy | None"

# Activations that are the same in Keras and PyTorch, with PyTorch's module for each.
_ACTIVATIONS = {
    "gelu": "GELU",
    "mish": "Mish",
    "relu": "ReLU",
    "relu6": "ReLU6",
    "sigmoid": "Sigmoid",
    "silu": "SiLU",
    "tanh": "Tanh",
}
# Arguments that are converted, checked separately, or dropped.
_CONVERTED = {
    "key_dim",
    "value_dim",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "activation",
    "norm_first",
    "epsilon",
    "attention_bias",
    "feed_forward_bias",
    "kernel_initializer",
    "bias_initializer",
    "seed",
    "flash_attention",
}
_CONVERTED_OF_ATTENTION = {
    "value_dim",
    "dropout",
    "use_bias",
    "output_shape",
    "attention_axes",
    "flash_attention",
    "kernel_initializer",
    "bias_initializer",
    "seed",
}


class NormalizedStack(NamedTuple):
    """A stack of post-norm layers and a final layer normalization, as in `torch.nn.Transformer`.

    `Encoder` and `Decoder` have a final normalization only with `norm_first`. Call a
    `NormalizedStack` like its stack.
    """

    stack: Encoder | Decoder
    norm: LayerNormalization

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        outputs = self.stack(*args, **kwargs)
        if isinstance(outputs, tuple):
            return (self.norm(outputs[0]), *outputs[1:])
        return self.norm(outputs)


class EncoderDecoder(NamedTuple):
    """The two stacks of a `torch.nn.Transformer`, for `decoder(target, encoder(source))`."""

    encoder: Encoder | NormalizedStack
    decoder: Decoder | NormalizedStack


@overload
def from_torch(
    module: "torch.nn.MultiheadAttention", dtype: Policy = None
) -> MultiHeadAttention: ...
@overload
def from_torch(
    module: "torch.nn.TransformerEncoderLayer", dtype: Policy = None
) -> EncoderLayer: ...
@overload
def from_torch(
    module: "torch.nn.TransformerDecoderLayer", dtype: Policy = None
) -> DecoderLayer: ...
@overload
def from_torch(
    module: "torch.nn.TransformerEncoder", dtype: Policy = None
) -> Encoder | NormalizedStack: ...
@overload
def from_torch(
    module: "torch.nn.TransformerDecoder", dtype: Policy = None
) -> Decoder | NormalizedStack: ...
@overload
def from_torch(module: "torch.nn.Transformer", dtype: Policy = None) -> EncoderDecoder: ...
def from_torch(
    module: "torch.nn.Module", dtype: Policy = None
) -> (
    MultiHeadAttention
    | EncoderLayer
    | DecoderLayer
    | Encoder
    | Decoder
    | NormalizedStack
    | EncoderDecoder
):
    """Converts a PyTorch module to a layer, with its settings and weights.

    Keras can run on any backend.

    | PyTorch | here |
    | --- | --- |
    | `MultiheadAttention` | `MultiHeadAttention` |
    | `TransformerEncoderLayer`, `TransformerDecoderLayer` | `EncoderLayer`, `DecoderLayer` |
    | `TransformerEncoder`, `TransformerDecoder` | `Encoder`, `Decoder` or `NormalizedStack` |
    | `Transformer` | `EncoderDecoder`, which contains both stacks |

    A stack of layers with `norm_first=False` and a `norm`, as in `Transformer`, becomes a
    `NormalizedStack`.

    Layers here accept (batch, length, width), regardless of the module's `batch_first`. In their
    masks, True marks real tokens and allows attention; in PyTorch's masks, True hides a position.
    Decoder layers are causal without a mask. A normalization without a bias, as in modules with
    `bias=False`, gets a `beta` of zeros.

    Args:
        module: a module of a class in the table.
        dtype: the dtype policy of the layers. Defaults to None: Keras' global policy.

    Returns:
        A built layer of the class in the table, with the same outputs.

    Raises:
        ConfigError: The module is of another class or a subclass, or has a setting that layers here
            do not support: `add_bias_kv`, `add_zero_attn`, another activation, different rates or
            epsilons in the same layer, different layers in a stack, or `norm_first=True` without a
            `norm` after the stack.

    Example:
        >>> import torch
        >>> module = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        >>> x = torch.ones((2, 5, 8))
        >>> np.allclose(from_torch(module)(x.numpy()), module(x).detach().numpy(), atol=2e-6)
        True
    """
    # If the module is from PyTorch, PyTorch has already been imported.
    torch = sys.modules.get("torch")
    if torch is None:
        raise ConfigError(f"module must be a module of torch.nn; received {type(module).__name__}")
    converters: dict[type, Callable[..., Any]] = {
        torch.nn.MultiheadAttention: _from_attention,
        torch.nn.TransformerEncoderLayer: _from_layer,
        torch.nn.TransformerDecoderLayer: _from_layer,
        torch.nn.TransformerEncoder: _from_stack,
        torch.nn.TransformerDecoder: _from_stack,
        torch.nn.Transformer: _from_transformer,
    }
    require_own_class(module, converters, "module")
    return converters[type(module)](module, dtype)


@overload
def to_torch(layer: MultiHeadAttention) -> "torch.nn.MultiheadAttention": ...
@overload
def to_torch(layer: EncoderLayer) -> "torch.nn.TransformerEncoderLayer": ...
@overload
def to_torch(layer: DecoderLayer) -> "torch.nn.TransformerDecoderLayer": ...
@overload
def to_torch(layer: Encoder) -> "torch.nn.TransformerEncoder": ...
@overload
def to_torch(layer: Decoder) -> "torch.nn.TransformerDecoder": ...
@overload
def to_torch(
    layer: NormalizedStack,
) -> "torch.nn.TransformerEncoder | torch.nn.TransformerDecoder": ...
@overload
def to_torch(layer: EncoderDecoder) -> "torch.nn.Transformer": ...
def to_torch(
    layer: MultiHeadAttention
    | EncoderLayer
    | DecoderLayer
    | Encoder
    | Decoder
    | NormalizedStack
    | EncoderDecoder,
) -> "torch.nn.Module":
    """Converts a layer to a PyTorch module, with its settings and weights.

    See `from_torch` for a table of the classes. The module is in evaluation mode, and has
    `batch_first=True` and the dtype of the layer's weights. Its attention has biases only with
    `attention_bias`, and its feed-forward network only with `feed_forward_bias`. Each dropout
    module uses the corresponding rate of the layer. Initializers and seeds are not copied.

    Args:
        layer: a built layer, or the result of `from_torch` for a `torch.nn.Transformer`.

    Returns:
        A module with the same outputs.

    Raises:
        ConfigError: The layer is of another class or a subclass, has not been built, is quantized,
            or has a setting that PyTorch does not support, such as `sliding_window`,
            `normalization="rms"` or `gated`.
        MissingPackageError: PyTorch is not installed.

    Example:
        >>> import torch
        >>> layer = EncoderLayer(num_heads=2, d_ff=16)
        >>> x = np.ones((2, 5, 8), "float32")
        >>> expected = layer(x)
        >>> np.allclose(to_torch(layer)(torch.from_numpy(x)).detach(), expected, atol=2e-6)
        True
    """
    converters: dict[type, Callable[..., Any]] = {
        MultiHeadAttention: _to_attention,
        EncoderLayer: _to_layer,
        DecoderLayer: _to_layer,
        Encoder: _to_stack,
        Decoder: _to_stack,
        NormalizedStack: _to_stack,
        EncoderDecoder: _to_transformer,
    }
    require_own_class(layer, converters)
    return converters[type(layer)](layer).eval()


# From PyTorch.


def _from_attention(module: "torch.nn.MultiheadAttention", dtype: Policy) -> MultiHeadAttention:
    _require_parts("module", sys.modules["torch"].nn.MultiheadAttention, module)
    attention = MultiHeadAttention(
        module.num_heads,
        module.head_dim,
        dropout=module.dropout,
        use_bias=module.in_proj_bias is not None,
        dtype=dtype,
    )
    attention.build(
        (None, None, module.embed_dim), (None, None, module.vdim), (None, None, module.kdim)
    )
    _assign(module, attention)
    return attention


def _from_layer(module: "TorchLayer", dtype: Policy) -> EncoderLayer | DecoderLayer:
    layer_class: Any = DecoderLayer if len(_attentions(module)) > 1 else EncoderLayer
    layer = layer_class(**_settings(module), dtype=dtype)
    layer.build(*_shapes(module))
    _assign(module, layer)
    return layer


def _from_stack(module: "TorchStack", dtype: Policy) -> Encoder | Decoder | NormalizedStack:
    nn = sys.modules["torch"].nn
    is_decoder = type(module) is nn.TransformerDecoder
    layer_class = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    _require_parts("layers", layer_class, *module.layers)
    settings = _common("the settings of all layers", (_settings(layer) for layer in module.layers))
    norm = module.norm
    if norm is not None:
        _require_parts("norm", nn.LayerNorm, norm)
    if settings["norm_first"]:
        require(norm is not None, "norm", "given if norm_first=True", norm)
        epsilon = settings["epsilon"]
        rule = f"that of the layers, {epsilon}, if norm_first=True"
        require(norm.eps == epsilon, "norm.eps", rule, norm.eps)
    stack: Any = (Decoder if is_decoder else Encoder)(len(module.layers), **settings, dtype=dtype)
    stack.build(*_shapes(module.layers[0]))
    for theirs, ours in zip(module.layers, stack.layers, strict=True):
        _assign(theirs, ours)
    if norm is None:
        return stack
    if settings["norm_first"]:
        _assign(norm, stack.final_norm)
        return stack
    final_norm = LayerNormalization(norm.eps, dtype=dtype)
    final_norm.build((None, None, *norm.normalized_shape))
    _assign(norm, final_norm)
    return NormalizedStack(stack, final_norm)


def _from_transformer(module: "torch.nn.Transformer", dtype: Policy) -> EncoderDecoder:
    nn = sys.modules["torch"].nn
    _require_parts("encoder", nn.TransformerEncoder, module.encoder)
    _require_parts("decoder", nn.TransformerDecoder, module.decoder)
    encoder: Any = _from_stack(module.encoder, dtype)
    decoder: Any = _from_stack(module.decoder, dtype)
    return EncoderDecoder(encoder, decoder)


def _settings(module: "TorchLayer") -> dict[str, Any]:
    """Returns the arguments of `EncoderLayer` or `DecoderLayer`."""
    nn = sys.modules["torch"].nn
    attentions = _attentions(module)
    numbers = range(1, len(attentions) + 2)
    norms = [getattr(module, f"norm{number}") for number in numbers]
    dropouts = [getattr(module, f"dropout{number}") for number in numbers]
    linears = [module.linear1, module.linear2]
    _require_parts("attention", nn.MultiheadAttention, *attentions)
    _require_parts("norm", nn.LayerNorm, *norms)
    _require_parts("linear", nn.Linear, *linears)
    heads = [attention.num_heads for attention in attentions]
    rates = [dropout.p for dropout in dropouts]
    attention_rates = [attention.dropout for attention in attentions]
    epsilons = [norm.eps for norm in norms]
    attention_biases = [attention.in_proj_bias is not None for attention in attentions]
    linear_biases = [linear.bias is not None for linear in linears]
    return {
        "num_heads": _common("num_heads", heads),
        "d_ff": module.linear1.out_features,
        "dropout": _common("the rates of dropout1, dropout2 and dropout3", rates),
        "attention_dropout": _common("dropout of attention", attention_rates),
        "activation_dropout": module.dropout.p,
        "activation": _activation_name(module.activation),
        "norm_first": module.norm_first,
        "epsilon": _common("eps of all norms", epsilons),
        "attention_bias": _common("bias of attention", attention_biases),
        "feed_forward_bias": _common("bias of linear1 and linear2", linear_biases),
    }


def _shapes(module: "TorchLayer") -> list[Any]:
    return [(None, None, attention.vdim) for attention in _attentions(module)]


def _attentions(module: "TorchLayer") -> "list[torch.nn.MultiheadAttention]":
    """Returns a layer's self-attention and, in a decoder, its cross-attention."""
    return [
        getattr(module, name) for name in ("self_attn", "multihead_attn") if hasattr(module, name)
    ]


def _activation_name(activation: Callable[..., object]) -> str:
    torch = sys.modules["torch"]
    for name, class_name in _ACTIVATIONS.items():
        if activation in (getattr(torch.nn.functional, name), getattr(torch, name, None)):
            return name
        # An approximate GELU is a different function.
        is_exact = getattr(activation, "approximate", "none") == "none"
        if type(activation) is getattr(torch.nn, class_name) and is_exact:
            return name
    raise ConfigError(
        f"activation must be one of {', '.join(_ACTIVATIONS)}; "
        f"received activation={shown(activation)}"
    )


def _common(name: str, values: Iterable[T]) -> T:
    """Returns the value that all values are equal to, or raises a ConfigError."""
    first, *others = values
    for other in others:
        if other != first:
            raise ConfigError(f"{name} must be equal; received {shown(first)} and {shown(other)}")
    return first


def _require_parts(name: str, expected: type, *modules: "torch.nn.Module") -> None:
    """Raises a ConfigError unless all modules are of exactly this class, with supported options."""
    nn = sys.modules["torch"].nn
    for module in modules:
        require(type(module) is expected, name, f"of the class {expected.__name__} itself", module)
        if expected is nn.MultiheadAttention:
            require(module.bias_k is None, f"add_bias_kv of {name}", "False", True)
            require(not module.add_zero_attn, f"add_zero_attn of {name}", "False", True)
        elif expected is nn.LayerNorm:
            shape = tuple(module.normalized_shape)
            require(len(shape) == 1, "normalized_shape", "one width", shape)


# To PyTorch.


def _to_attention(attention: MultiHeadAttention) -> "torch.nn.MultiheadAttention":
    target = "torch.nn.MultiheadAttention"
    require_weights(attention)
    require_defaults(attention, target, _CONVERTED_OF_ATTENTION)
    d_model = attention.query_dense.kernel.shape[0]
    head_dim, rest = divmod(d_model, attention.num_heads)
    rule = f"a divisor of d_model={d_model} to become a {target}"
    require(rest == 0, "num_heads", rule, attention.num_heads)
    value_dim = attention.value_dense.units // attention.num_heads
    rank = len(attention.get_build_config()["shapes_dict"]["query_shape"])
    require_setting("key_dim", attention.key_dim, head_dim, target)
    require_setting("value_dim", value_dim, head_dim, target)
    require_setting("the output's width", attention.output_dense.units, d_model, target)
    require_setting("the query's rank", rank, 3, target)
    torch: Any = import_package("torch", "torch")
    module = torch.nn.MultiheadAttention(
        d_model,
        attention.num_heads,
        attention.dropout,
        bias=attention.use_bias,
        kdim=attention.key_dense.kernel.shape[0],
        vdim=attention.value_dense.kernel.shape[0],
        batch_first=True,
        dtype=_dtype(attention),
    )
    return _filled(module, attention)


def _to_layer(layer: EncoderLayer | DecoderLayer) -> "TorchLayer":
    is_decoder = isinstance(layer, DecoderLayer)
    target = f"torch.nn.{'TransformerDecoderLayer' if is_decoder else 'TransformerEncoderLayer'}"
    require_weights(layer)
    require_defaults(layer, target, _CONVERTED)
    if layer.attention_bias:
        # PyTorch's fast path requires all biases or none.
        require_settings(layer, f"{target} with attention_bias=True", feed_forward_bias=True)
    activations = [
        name for name in _ACTIVATIONS if layer.activation is getattr(keras.activations, name)
    ]
    rule = f"one of {', '.join(_ACTIVATIONS)}"
    require(len(activations) == 1, "activation", rule, layer.activation)
    if is_decoder:
        has_source = layer.cross_attention is not None
        require(has_source, "source", f"given to a layer that becomes a {target}", None)
    torch: Any = import_package("torch", "torch")
    d_model = layer.self_attention.query_dense.kernel.shape[0]
    # Create it on the device "meta", without weights, since each part with weights is replaced.
    module = getattr(torch.nn, target.removeprefix("torch.nn."))(
        d_model,
        layer.num_heads,
        layer.d_ff,
        layer.dropout,
        getattr(torch.nn.functional, activations[0]),
        layer.epsilon,
        batch_first=True,
        norm_first=layer.norm_first,
        device="meta",
    )
    module.dropout.p = layer.activation_dropout
    for name, part in _parts(layer).items():
        setattr(module, name, _to_part(part))
    return module


def _to_stack(layer: Encoder | Decoder | NormalizedStack) -> "TorchStack":
    stack, norm = layer if isinstance(layer, NormalizedStack) else (layer, layer.final_norm)
    require_own_class(stack, (Encoder, Decoder))
    require_weights(stack)
    torch: Any = import_package("torch", "torch")
    layers = torch.nn.ModuleList(_to_layer(part) for part in stack.layers)
    norm = None if norm is None else _to_part(norm)
    if isinstance(stack, Decoder):
        module = torch.nn.TransformerDecoder(layers[0], 0, norm)
    else:
        # Nested tensors would leave zeros at padding.
        module = torch.nn.TransformerEncoder(layers[0], 0, norm, enable_nested_tensor=False)
    module.layers = layers
    module.num_layers = len(layers)
    return module


def _to_transformer(pair: EncoderDecoder) -> "torch.nn.Transformer":
    torch: Any = import_package("torch", "torch")
    encoder = _to_stack(pair.encoder)
    decoder = _to_stack(pair.decoder)
    attention = encoder.layers[0].self_attn
    module = torch.nn.Transformer(
        attention.embed_dim, attention.num_heads, 1, 1, 1, batch_first=True, device="meta"
    )
    module.encoder = encoder
    module.decoder = decoder
    return module


def _to_part(part: keras.layers.Layer) -> "torch.nn.Module":
    nn = sys.modules["torch"].nn
    if isinstance(part, MultiHeadAttention):
        return _to_attention(part)
    if isinstance(part, LayerNormalization):
        module = nn.LayerNorm(part.gamma.shape[0], eps=part.epsilon, dtype=_dtype(part))
    else:
        module = nn.Linear(*part.kernel.shape, bias=part.use_bias, dtype=_dtype(part))
    return _filled(module, part)


def _dtype(layer: keras.layers.Layer) -> "torch.dtype":
    return getattr(sys.modules["torch"], layer.variable_dtype)


# Weights.


def _assign(module: "torch.nn.Module", part: keras.layers.Layer) -> None:
    """Writes PyTorch's weights into Keras' variables."""
    for tensor, variable in _weights(module, part):
        variable.assign(tensor.cpu().double().numpy().T)


def _filled(module: T, part: keras.layers.Layer) -> T:
    """Writes Keras' weights into the module's parameters, and returns the module."""
    for tensor, variable in _weights(module, part):
        tensor.copy_(sys.modules["torch"].from_numpy(as_array(variable).T))
    return module


def _parts(layer: EncoderLayer | DecoderLayer) -> dict[str, keras.layers.Layer]:
    """Returns the parts of a layer that have weights, by their names in PyTorch."""
    names = ["self_attn", "norm1", "linear1", "linear2", "norm2"]
    if isinstance(layer, DecoderLayer):
        names = ["self_attn", "norm1", "multihead_attn", "norm2", "linear1", "linear2", "norm3"]
    return dict(zip(names, parts_of(layer), strict=True))


def _weights(
    module: Any, part: keras.layers.Layer
) -> Iterator[tuple["torch.Tensor", "keras.Variable"]]:
    """Yields views of a module's parameters, each with the variable for its transpose."""
    if isinstance(part, EncoderLayer | DecoderLayer):
        for name, inner in _parts(part).items():
            yield from _weights(getattr(module, name), inner)
        return
    if isinstance(part, MultiHeadAttention):
        dense_layers = (part.query_dense, part.key_dense, part.value_dense)
        if module.in_proj_weight is None:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
            kernels = [weight.detach() for weight in weights]
        else:
            kernels = module.in_proj_weight.detach().chunk(3)
        for kernel, dense in zip(kernels, dense_layers, strict=True):
            yield kernel, dense.kernel
        if module.in_proj_bias is not None:
            biases = module.in_proj_bias.detach().chunk(3)
            for bias, dense in zip(biases, dense_layers, strict=True):
                yield bias, dense.bias
        yield from _weights(module.out_proj, part.output_dense)
        return
    if isinstance(part, LayerNormalization):
        pairs = [(module.weight, part.gamma), (module.bias, part.beta)]
    else:
        pairs = [(module.weight, part.kernel), (module.bias, part.bias)]
    for parameter, variable in pairs:
        # A missing parameter counts as ones or zeros, which are our variables' initial values.
        if parameter is not None:
            yield parameter.detach(), variable
