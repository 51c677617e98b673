"""Which models are decoded how. This module decides it, and nothing else does.

A model is decoded in the first of these ways that is certain to give the tokens of `model(ids)`:

1. By its own `start_decoding`, as a `Transformer` has it. A subclass with its own `call` must
   define `start_decoding` too.
2. Step by step, with caches (`FunctionalDecoder`): a functional or sequential model, with the
   models inside it, whose calls are all known. Self-attention is computed from a cache by layers
   that have the method `step`; all other layers and operations must treat each position by itself.
3. By full passes (`FullPassDecoder`): every other model from token ids to logits. Each step calls
   the model with all tokens so far. A warning says why.

A model that masks padding is decoded step by step only if no padding is in the prompts or among
the tokens that may be generated: steps mask nothing (`full_passes_for_padding`).

What is known about a layer holds for the class that defines its `call`. A subclass with its own
`call` is another layer: it has a `step` only if it, or a subclass of it, defines `step`, and it
treats each position by itself only if it says so: with the class attribute
`is_position_wise = True`. What is known about a layer must also hold for the layers inside it.
Activation functions count as element-wise, or as a softmax over the features. A method that our
layers use in calls and in steps alike, such as `apply_sublayers`, may be overridden.
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

# Layers that treat each position by itself, if their inputs have features.
_POSITION_WISE_LAYERS: tuple[type, ...] = (
    layers.Activation, layers.ActivityRegularization, layers.Add, layers.AlphaDropout,
    layers.Average, layers.Dense, layers.Dropout, layers.ELU, layers.Embedding,
    layers.GaussianDropout, layers.GaussianNoise, layers.Identity, layers.LeakyReLU, layers.Maximum,
    layers.Minimum, layers.Multiply, layers.ReLU, layers.Rescaling, layers.Subtract,
    Dropout, LayerNormalization, TiedProjection,
)  # fmt: skip
if hasattr(layers, "ReversibleEmbedding"):  # from Keras 3.15 on
    _POSITION_WISE_LAYERS += (layers.ReversibleEmbedding,)
# Layers that do so if all layers inside them do.
_COMPOUND_LAYERS = (FeedForward, Residual, keras.Sequential)
# Layers that do so if they work along the last axis.
_LAST_AXIS_LAYERS = (
    layers.BatchNormalization, layers.Concatenate, layers.LayerNormalization,
    layers.RMSNormalization, layers.Softmax, layers.UnitNormalization,
)  # fmt: skip
# Layers that compute each position from its token, or its features, and from its position id.
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
    """Returns an object that decodes with a model: the model, a `FunctionalDecoder` or a
    `FullPassDecoder`.

    Raises:
        ConfigError: The model is neither a Keras model nor a `Decodable`, or a functional model of
            other outputs than logits (batch, length, vocab_size).
    """
    if hasattr(model, "start_decoding"):
        if not isinstance(model, keras.Layer) or _is_defined_with_call("start_decoding", model):
            return model
        return FullPassDecoder(model, "it has its own call, and no start_decoding of its own")
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
    """Returns a decoder for a model that is decoded step by step, but might meet a token that it
    masks as padding; None if it cannot.

    Args:
        model: what `generate` is given.
        decodable: from `decodable_of`.
        prompts: int32 (batch, length).
        forbidden_ids: the tokens that are not generated.
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
    """Returns the input from which the first causal layer is computed, or None and the reason."""
    causal = [call for call in graph.smallest_calls if is_cached(call) and _is_causal(call)]
    # An encoder may attend to its own past, too, but only a decoder attends to a source.
    with_source = [call for call in causal if call.arguments.get("source") is not None]
    first = next(iter(with_source + causal), None)
    if first is None:
        return None, "none of its layers has causal self-attention with a method step"
    inputs = [t for t in graph.inputs if id(first.first_argument) in graph.computed_from(t)]
    if len(inputs) != 1:
        return None, f"layer {first} is computed from {len(inputs)} inputs"
    return inputs[0], ""


def _is_causal(call: Call) -> bool:
    # A layer with a step is causal unless its call can be told not to be.
    return call.arguments.get("use_causal_mask", True) is True


def _reasons_against_steps(plan: StepPlan) -> Iterator[str]:
    """Yields why steps are not certain to equal a call, of the calls that depend on the target."""
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
            yield f"layer {call} is not known to treat each position by itself"


def _reasons_against_cache(plan: StepPlan, call: Call) -> Iterator[str]:
    """Yields the reasons in the layer of a call with a cache, and in the arguments of the call."""
    layer = call.operation
    if type(layer) not in STOCK_ATTENTION:
        yield from _reasons_against_layer(layer)
    parameters = inspect.signature(layer.call).parameters
    (_, target), *others = call.arguments.items()
    if len(target.shape) != 3:
        yield f"layer {call} is called with {len(target.shape)} axes"
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
            # Biases, other masks, and whatever a later release or a subclass adds.
            is_known = value is parameters[name].default
        if not is_known:
            shown = "a tensor" if hasattr(value, "shape") else repr(value)
            yield f"layer {call} is called with {name}={shown}"
    if not keras.utils.is_keras_tensor(call.outputs):
        yield f"layer {call} returns more than one tensor"


def _reasons_against_layer(layer: keras.Layer) -> Iterator[str]:
    """Yields why `step` of a layer may differ from its call."""
    shown = f"{layer.name!r} ({type(layer).__name__})"
    if not has_steps(layer):
        yield f"layer {shown} has no method step"
        return
    if not _is_defined_with_call("step", layer):
        yield f"layer {shown} overrides call without step"
    # Whoever writes a step decides which layers it uses.
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
    """Yields why `attend` of an attention may differ from its call."""
    for name in ("project_key_value", "attend"):
        has_method = hasattr(type(attention), name)
        if not has_method or not _is_defined_with_call(name, attention):
            shown = f"{attention.name!r} ({type(attention).__name__})"
            yield f"layer {shown} overrides call without {name}"
    if author_of_call(attention) is MultiHeadAttention:
        if attention.needs_position_ids:
            # `attend` is not told at which positions the new ones are.
            yield f"layer {attention.name!r} has positions in its attention to a source"
        yield from _reasons_against_parts(attention, stepped=[])


def _reasons_against_parts(
    layer: keras.Layer, stepped: list[keras.Layer], checked: list[keras.Layer] | None = None
) -> Iterator[str]:
    """Yields the reasons in the layers inside of one of our layers.

    Args:
        layer: one of our layers with a step.
        stepped: the layers inside whose `step` is called.
        checked: layers inside that need no check. Each of the others is called with the new
            positions.
    """
    for part in stepped:
        yield from _reasons_against_layer(part)
    others = [*stepped, *(checked or [])]
    for part in direct_sublayers(layer):
        if not any(part is other for other in others) and not is_position_wise(part):
            shown = f"{part.name!r} ({type(part).__name__}) of {layer.name!r}"
            yield f"layer {shown} is not known to treat each position by itself"


def _is_defined_with_call(name: str, layer: keras.Operation) -> bool:
    """Returns whether the class that defines a method, or an attribute, is the one that defines
    `call`, or a subclass of it."""
    return issubclass(author_of(name, type(layer)), author_of_call(layer))


def _says_position_wise(layer: keras.Operation) -> bool:
    says_so = getattr(type(layer), "is_position_wise", None) is True
    return says_so and _is_defined_with_call("is_position_wise", layer)


def is_position_wise(layer: keras.Layer) -> bool:
    """Returns whether a layer inside of another one is known to treat each position by itself,
    with features on the last axis."""
    # A scheme is given the positions.
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
    """Yields the reasons in a call that a step gives position ids."""
    layer = call.operation
    is_known = author_of_call(layer) in _POSITION_LAYERS
    if not is_known and not _says_position_wise(layer):
        yield f"layer {call} is not known to treat each position by itself"
    arguments = call.arguments
    depends = plan.depends_on_target(arguments.get("start_index"))
    if arguments["position_ids"] is not None or depends:
        yield f"layer {call} is called with position_ids"


def _is_position_wise_call(plan: StepPlan, call: Call) -> bool:
    """Returns whether what a call computes for one position depends on no other."""
    operation = call.operation
    ranks = {len(tensor.shape) for tensor in call.inputs if plan.depends_on_target(tensor)}
    rank = max(ranks)
    # What is not computed from the target must be alike for all positions, which are along axis 1.
    tensors = [t for t in tree.flatten((call.args, call.kwargs)) if hasattr(t, "shape")]
    others = [tensor for tensor in tensors if not plan.depends_on_target(tensor)]
    if len(ranks) > 1 or not all(_is_alike(tensor, rank) for tensor in others):
        return False
    author = author_of_call(operation)
    if author in _LAST_AXIS_LAYERS or is_one_of(operation, _LAST_AXIS_FUNCTIONS):
        return rank > 2 and all(axis in (-1, rank - 1) for axis in _axes_of(operation))
    if is_one_of(operation, _ELEMENT_WISE_FUNCTIONS):
        return True
    # Without features, the last axis is that of the positions. An activation may be a softmax.
    needs_features = author in (layers.Activation, layers.Dense, *_COMPOUND_LAYERS)
    return is_position_wise(operation) and (rank > 2 or not needs_features)


def _is_alike(tensor: Tensor, rank: int) -> bool:
    # (..., 1, width) or (width,), as it broadcasts to a tensor of the rank, (batch, length, ...)
    along_positions = len(tensor.shape) - (rank - 1)
    return along_positions < 0 or tensor.shape[along_positions] == 1
