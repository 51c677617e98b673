"""Decides how to decode with a model; no other module makes this decision.

The first of these ways that is certain to return the same tokens as `model(ids)` is used:

1. The model's own `start_decoding`, as in `Transformer`. A subclass with its own `call` must also
   define `start_decoding`.
2. Steps with caches (`FunctionalDecoder`), for a functional or sequential model, including its
   nested models, if all its calls are known. Layers with a method `step` compute self-attention
   from a cache. All other layers and operations must be position-wise.
3. Full passes (`FullPassDecoder`), for every other model from token ids to logits. Each step calls
   the model with all tokens so far. A warning gives the reason.

Steps do not mask padding. A model that masks padding is decoded step by step only if the prompts
contain no padding and no padding can be generated (`full_passes_for_padding`).

A layer is recognized by the class that defines its `call`. A subclass with its own `call` counts as
another layer: its `step` is used only if the subclass, or a class derived from it, defines `step`,
and it counts as position-wise only with the class attribute `is_position_wise = True`. The
sublayers of a layer must be recognized, too. Activation functions are assumed to be element-wise,
or a softmax over the features. You may override methods that our layers use both in calls and in
steps, such as `apply_sublayers`.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops, tree

from ..decoding import Decodable
from ..errors import ConfigError
from ..keras_versions import direct_sublayers
from ..layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEmbedding,
    PositionalEncoding,
    PositionScheme,
    Residual,
    TiedProjection,
)
from ..layers.dropout import Dropout
from ..layers.layer_normalization import LayerNormalization
from ..masks import PADDING_ID
from ..tensors import Tensor
from .full_pass_decoding import FullPassDecoder
from .functional_decoding import FunctionalDecoder
from .functional_graph import (
    Call,
    FunctionalGraph,
    author_of,
    author_of_call,
    graph_of,
    has_graph,
    is_one_of,
)
from .step_plan import STOCK_ATTENTION, StepPlan, has_steps, is_cached
from .transformer import Transformer

# Layers that are position-wise if their inputs have a feature axis.
_POSITION_WISE_LAYERS: tuple[type, ...] = (
    layers.Activation, layers.ActivityRegularization, layers.Add, layers.AlphaDropout,
    layers.Average, layers.Dense, layers.Dropout, layers.ELU, layers.Embedding,
    layers.GaussianDropout, layers.GaussianNoise, layers.Identity, layers.LeakyReLU, layers.Maximum,
    layers.Minimum, layers.Multiply, layers.ReLU, layers.Rescaling, layers.Subtract,
    Dropout, LayerNormalization, TiedProjection,
)  # fmt: skip
if hasattr(layers, "ReversibleEmbedding"):  # since Keras 3.15
    _POSITION_WISE_LAYERS += (layers.ReversibleEmbedding,)
# Layers that are position-wise if all their sublayers are.
_COMPOUND_LAYERS = (FeedForward, Residual, keras.Sequential)
# Layers that are position-wise if they work along the last axis.
_LAST_AXIS_LAYERS = (
    layers.BatchNormalization, layers.Concatenate, layers.LayerNormalization,
    layers.RMSNormalization, layers.Softmax, layers.UnitNormalization,
)  # fmt: skip
# Layers that compute each position from its position id and its token or features.
_POSITION_LAYERS = (PositionalEmbedding, PositionalEncoding)
_ELEMENT_WISE_FUNCTIONS = (
    ops.abs, ops.absolute, ops.add, ops.cast, ops.celu, ops.clip, ops.cos, ops.divide, ops.elu,
    ops.equal, ops.erf, ops.exp, ops.expm1, ops.gelu, ops.greater, ops.greater_equal,
    ops.hard_sigmoid, ops.hard_silu, ops.hard_tanh, ops.isfinite, ops.leaky_relu, ops.less,
    ops.less_equal, ops.log, ops.log1p, ops.log_sigmoid, ops.logical_and, ops.logical_not,
    ops.logical_or, ops.logical_xor, ops.maximum, ops.minimum, ops.mod, ops.multiply, ops.negative,
    ops.not_equal, ops.ones_like, ops.power, ops.reciprocal, ops.relu, ops.relu6, ops.rsqrt,
    ops.selu, ops.sigmoid, ops.sign, ops.silu, ops.sin, ops.softplus, ops.softsign, ops.sqrt,
    ops.square, ops.stop_gradient, ops.subtract, ops.tanh, ops.true_divide, ops.where,
    ops.zeros_like,
)  # fmt: skip
_LAST_AXIS_FUNCTIONS = (ops.concatenate, ops.log_softmax, ops.softmax)
_MASKS_OF_THE_TARGET = ("mask", "target_mask", "query_mask", "value_mask", "key_mask")


def decodable_of(model: Any) -> Decodable[Any]:
    """Returns a `Decodable`: the model itself, a `FunctionalDecoder` or a `FullPassDecoder`.

    Raises:
        ConfigError: The model is neither a Keras model nor a `Decodable`, or it is a functional
            model whose output is not logits (batch, length, vocab_size).
    """
    if hasattr(model, "start_decoding"):
        if not isinstance(model, keras.Layer) or _is_defined_with_call("start_decoding", model):
            return model
        return FullPassDecoder(model, "it overrides call, but not start_decoding")
    if has_graph(model):
        graph = graph_of(model)
        target, reason = _find_target(graph)
        plan = None if target is None else StepPlan(graph, target)
        if plan is not None:
            reason = next(_reasons_against_steps(plan), "")
            if not reason:
                return FunctionalDecoder(plan)
        return FullPassDecoder(model, reason, plan)
    if isinstance(model, keras.Sequential) and not model.built:
        return FullPassDecoder(model, "it is not built")
    if isinstance(model, keras.Function):
        return FullPassDecoder(model, "it has its own call")
    if isinstance(model, keras.Layer):
        return FullPassDecoder(model, "it is not a functional model")
    raise ConfigError(
        "model must be a Keras model, or have a method start_decoding(source, beam_size, "
        "max_length, prefix), see keras_transformer.decoding.Decodable; "
        f"received {type(model).__name__}"
    )


def full_passes_for_padding(
    model: Any, decodable: Any, prompts: np.ndarray, forbidden_ids: Sequence[int]
) -> FullPassDecoder | None:
    """Returns a `FullPassDecoder` if a token that the model masks as padding may occur, or None.

    Steps do not mask padding, so they would return different tokens than the model.

    Args:
        model: the argument of `generate`.
        decodable: from `decodable_of`.
        prompts: int32 (batch, length).
        forbidden_ids: tokens that are never generated.
    """
    plan = decodable.plan if isinstance(decodable, FunctionalDecoder) else None
    padding_ids = set() if plan is None else plan.padding_ids
    if isinstance(model, Transformer) and decodable is model:
        padding_ids = {PADDING_ID}
    for padding_id in sorted(padding_ids):
        if padding_id not in forbidden_ids or (prompts == padding_id).any():
            reason = (
                f"token {padding_id}, which it masks as padding, is in a prompt or may be generated"
            )
            return FullPassDecoder(model, reason, plan)
    return None


def _find_target(graph: FunctionalGraph) -> tuple[Tensor | None, str]:
    """Returns the input that the first causal layer depends on, or None and a reason."""
    causal = [call for call in graph.smallest_calls if is_cached(call) and _is_causal(call)]
    # An encoder may be causal, too, but only a decoder attends to a source.
    with_source = [call for call in causal if call.arguments.get("source") is not None]
    first = next(iter(with_source + causal), None)
    if first is None:
        return None, "none of its layers has both causal self-attention and a method step"
    inputs = [t for t in graph.inputs if id(first.first_argument) in graph.computed_from(t)]
    if len(inputs) != 1:
        return None, f"layer {first} is computed from {len(inputs)} inputs"
    return inputs[0], ""


def _is_causal(call: Call) -> bool:
    # A layer with a `step` is causal, unless an argument of its call specifies otherwise.
    return call.arguments.get("use_causal_mask", True) is True


def _reasons_against_steps(plan: StepPlan) -> Iterator[str]:
    """Yields reasons why steps may return different outputs than a single call of the model."""
    if not plan.depends_on_target(plan.graph.output):
        yield "its output does not depend on its causal layers"
    for call in plan.cached_calls:
        yield from _reasons_against_cache(plan, call)
    for call in plan.step_calls:
        if call.takes_positions and not is_cached(call):
            yield from _reasons_against_position_ids(plan, call)
    for call in plan.step_calls:
        is_checked = is_cached(call) or call.takes_positions
        if not is_checked and not _is_position_wise_call(plan, call):
            yield f"layer {call} is not known to be position-wise"


def _reasons_against_cache(plan: StepPlan, call: Call) -> Iterator[str]:
    """Yields reasons why the layer or the arguments of a call rule out steps with a cache."""
    layer = call.operation
    if type(layer) not in STOCK_ATTENTION:
        yield from _reasons_against_layer(layer)
    parameters = inspect.signature(layer.call).parameters
    (_, target), *others = call.arguments.items()
    if len(target.shape) != 3:
        yield f"layer {call} is called with a tensor of rank {len(target.shape)}"
    for name, value in others:
        if name in ("value", "key"):
            is_known = value is None or value is target
        elif name in ("source", "source_mask"):
            is_known = not plan.depends_on_target(value)
        elif name in _MASKS_OF_THE_TARGET:
            is_known = value is None or plan.masks_padding(value)
        elif name == "use_causal_mask":
            is_known = value is True
        elif name == "training" or parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            is_known = not value
        else:
            # This covers biases, other masks, and arguments that later releases or subclasses add.
            is_known = value is parameters[name].default
        if not is_known:
            shown = "a tensor" if hasattr(value, "shape") else repr(value)
            yield f"layer {call} is called with {name}={shown}"
    if not keras.utils.is_keras_tensor(call.outputs):
        yield f"layer {call} returns more than one tensor"


def _reasons_against_layer(layer: keras.Layer) -> Iterator[str]:
    """Yields reasons why a layer's `step` may return different outputs than its call."""
    shown = f"{layer.name!r} ({type(layer).__name__})"
    if not has_steps(layer):
        yield f"layer {shown} has no method step"
        return
    if not _is_defined_with_call("step", layer):
        yield f"layer {shown} overrides call without step"
    # Check the sublayers that our own steps use. Other steps are their authors' responsibility.
    author = author_of("step", type(layer))
    if author is MultiHeadAttention:
        yield from _reasons_against_parts(layer, stepped=[])
    elif author is EncoderLayer:
        yield from _reasons_against_parts(layer, stepped=[layer.self_attention])
    elif author is DecoderLayer:
        cross_attention = [] if layer.cross_attention is None else [layer.cross_attention]
        for attention in cross_attention:
            yield from _reasons_against_cross_attention(attention)
        stepped = [layer.self_attention]
        yield from _reasons_against_parts(layer, stepped, checked=cross_attention)
    elif author in (Encoder, Decoder):
        yield from _reasons_against_parts(layer, stepped=layer.layers)


def _reasons_against_cross_attention(attention: keras.Layer) -> Iterator[str]:
    """Yields reasons why `attend` may return different outputs than a call of the layer."""
    for name in ("project_key_value", "attend"):
        has_method = hasattr(type(attention), name)
        if not has_method or not _is_defined_with_call(name, attention):
            shown = f"{attention.name!r} ({type(attention).__name__})"
            yield f"layer {shown} overrides call without {name}"
    if author_of_call(attention) is MultiHeadAttention:
        if attention.needs_position_ids:
            # `attend` does not receive the positions of the new tokens.
            yield (
                f"layer {attention.name!r} uses relative positions or a sliding window in "
                "cross-attention"
            )
        yield from _reasons_against_parts(attention, stepped=[])


def _reasons_against_parts(
    layer: keras.Layer, stepped: list[keras.Layer], checked: list[keras.Layer] | None = None
) -> Iterator[str]:
    """Yields reasons why the sublayers of a layer of this package rule out steps.

    Args:
        layer: a layer of this package with a `step`.
        stepped: sublayers whose `step` is called.
        checked: sublayers that need no check. All other sublayers are called with the new
            positions, so they must be position-wise.
    """
    for part in stepped:
        yield from _reasons_against_layer(part)
    others = [*stepped, *(checked or [])]
    for part in direct_sublayers(layer):
        if not any(part is other for other in others) and not is_position_wise(part):
            shown = f"{part.name!r} ({type(part).__name__}) of {layer.name!r}"
            yield f"layer {shown} is not known to be position-wise"


def _is_defined_with_call(name: str, layer: keras.Operation) -> bool:
    """Returns whether an attribute is defined in the same class as `call`, or in a subclass."""
    return issubclass(author_of(name, type(layer)), author_of_call(layer))


def _says_position_wise(layer: keras.Operation) -> bool:
    says_so = getattr(type(layer), "is_position_wise", None) is True
    return says_so and _is_defined_with_call("is_position_wise", layer)


def is_position_wise(layer: keras.Layer) -> bool:
    """Returns whether a sublayer is known to be position-wise, with features on the last axis."""
    # A position scheme receives the positions.
    if _says_position_wise(layer) or isinstance(layer, PositionScheme):
        return True
    author = author_of_call(layer)
    if author in _LAST_AXIS_LAYERS:
        return _axes_of(layer) == [-1]
    if author in _COMPOUND_LAYERS:
        parts = layer.layers if author is keras.Sequential else direct_sublayers(layer)
        return all(is_position_wise(part) for part in parts)
    return author in _POSITION_WISE_LAYERS


def _axes_of(operation: keras.Operation) -> list[int]:
    return list(operation.axis) if isinstance(operation.axis, (list, tuple)) else [operation.axis]


def _reasons_against_position_ids(plan: StepPlan, call: Call) -> Iterator[str]:
    """Yields reasons why a call may not be given the position ids of a step."""
    layer = call.operation
    is_known = author_of_call(layer) in _POSITION_LAYERS
    if not is_known and not _says_position_wise(layer):
        yield f"layer {call} is not known to be position-wise"
    arguments = call.arguments
    depends = plan.depends_on_target(arguments.get("start_index"))
    if arguments["position_ids"] is not None or depends:
        yield f"layer {call} is called with position_ids"


def _is_position_wise_call(plan: StepPlan, call: Call) -> bool:
    """Returns whether the result of a call at each position is independent of other positions."""
    operation = call.operation
    ranks = {len(tensor.shape) for tensor in call.inputs if plan.depends_on_target(tensor)}
    rank = max(ranks)
    # Tensors that do not depend on the target must be equal at all positions (axis 1).
    tensors = [t for t in tree.flatten((call.args, call.kwargs)) if hasattr(t, "shape")]
    others = [tensor for tensor in tensors if not plan.depends_on_target(tensor)]
    if len(ranks) > 1 or not all(_is_alike(tensor, rank) for tensor in others):
        return False
    author = author_of_call(operation)
    if author in _LAST_AXIS_LAYERS or is_one_of(operation, _LAST_AXIS_FUNCTIONS):
        return rank > 2 and all(axis in (-1, rank - 1) for axis in _axes_of(operation))
    if is_one_of(operation, _ELEMENT_WISE_FUNCTIONS):
        return True
    # Without features, the last axis is the position axis, and an activation may be a softmax.
    needs_features = author in (layers.Activation, layers.Dense, *_COMPOUND_LAYERS)
    return is_position_wise(operation) and (rank > 2 or not needs_features)


def _is_alike(tensor: Tensor, rank: int) -> bool:
    # Shapes (..., 1, width) and (width,) are equal at all positions of (batch, length, ...).
    along_positions = len(tensor.shape) - (rank - 1)
    return along_positions < 0 or tensor.shape[along_positions] == 1
