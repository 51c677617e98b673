"""Functional models, computed one position at a time.

A functional model is a list of calls: of layers, and of operations such as `a + b`. Calls that do
not depend on the target are computed once. In the other calls, layers with causal self-attention
attend to a cache, and layers that take position ids are given those of the step. All other layers
and operations must treat each position by itself, which cannot be checked; only those that are
known to do so are accepted.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import keras
from keras import layers, ops, tree

from ..decoding import Step
from ..errors import ConfigError
from ..keras_versions import projections_of
from ..layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    TiedProjection,
)
from ..layers.cache import Cache, KeyValues, empty_cache
from ..layers.scaled_dot_product_attention import attention_weights, product_of_heads
from ..masks import implicit_mask
from ..tensors import Dimension, Tensor
from .incremental_decoding import CacheEntries, DecoderState

# Layers that treat each position by itself, if their inputs have features.
_POSITION_WISE_LAYERS = (
    layers.Activation, layers.ActivityRegularization, layers.Add, layers.AlphaDropout, layers.Average, layers.Dense,
    layers.Dropout, layers.ELU, layers.Embedding, layers.GaussianDropout, layers.GaussianNoise, layers.Identity,
    layers.LeakyReLU, layers.Maximum, layers.Minimum, layers.Multiply, layers.ReLU, layers.Rescaling, layers.Subtract,
    FeedForward, TiedProjection,
)  # fmt: skip
# Layers that do so if they work along the last axis.
_LAST_AXIS_LAYERS = (
    layers.BatchNormalization, layers.Concatenate, layers.LayerNormalization, layers.RMSNormalization, layers.Softmax,
    layers.UnitNormalization,
)  # fmt: skip
# Keras exports operations as functions only; the classes have the names of these functions.
_ELEMENT_WISE_FUNCTIONS = (
    ops.abs, ops.absolute, ops.add, ops.cast, ops.celu, ops.clip, ops.cos, ops.divide, ops.elu, ops.equal, ops.erf,
    ops.exp, ops.expm1, ops.gelu, ops.greater, ops.greater_equal, ops.hard_sigmoid, ops.hard_silu, ops.hard_tanh,
    ops.isfinite, ops.leaky_relu, ops.less, ops.less_equal, ops.log, ops.log1p, ops.log_sigmoid, ops.logical_and,
    ops.logical_not, ops.logical_or, ops.logical_xor, ops.maximum, ops.minimum, ops.mod, ops.multiply, ops.negative,
    ops.not_equal, ops.ones_like, ops.power, ops.reciprocal, ops.relu, ops.relu6, ops.rsqrt, ops.selu, ops.sigmoid,
    ops.sign, ops.silu, ops.sin, ops.softplus, ops.softsign, ops.sqrt, ops.square, ops.stop_gradient, ops.subtract,
    ops.tanh, ops.true_divide, ops.where, ops.zeros_like,
)  # fmt: skip
_LAST_AXIS_FUNCTIONS = (ops.concatenate, ops.log_softmax, ops.softmax)
_STOCK_ATTENTION = (layers.MultiHeadAttention, layers.GroupQueryAttention)
_ADVICE = (
    "make the model of layers that are, see keras_transformer.generate, or give it a method "
    "start_decoding, "
    "see keras_transformer.decoding.Decodable"
)


class _Call(NamedTuple):
    operation: keras.Operation
    args: tuple[Any, ...]  # with KerasTensors
    kwargs: dict[str, Any]
    outputs: Any  # a nest of KerasTensors
    arguments: dict[str, Any]  # args and kwargs by name, with defaults

    @property
    def inputs(self) -> list[Tensor]:
        return _keras_tensors((self.args, self.kwargs))

    @property
    def has_source(self) -> bool:
        return isinstance(self.operation, (Decoder, DecoderLayer))

    @property
    def is_attention(self) -> bool:
        return (
            isinstance(self.operation, MultiHeadAttention)
            or type(self.operation) in _STOCK_ATTENTION
        )

    @property
    def is_cached(self) -> bool:
        """Whether positions attend to others, which a cache can hold."""
        return (
            self.has_source
            or self.is_attention
            or isinstance(self.operation, (Encoder, EncoderLayer))
        )

    @property
    def target(self) -> Tensor:
        """The first argument, whatever a layer calls it."""
        return next(iter(self.arguments.values()))

    @property
    def takes_positions(self) -> bool:
        return isinstance(self.operation, keras.Layer) and "position_ids" in self.arguments

    @property
    def start_index(self) -> int:
        """The position of the first token, or 0 if it is only known at run time."""
        start_index = self.arguments.get("start_index", 0)
        return start_index if isinstance(start_index, int) else 0

    def __str__(self) -> str:
        return f"{self.operation.name!r} ({type(self.operation).__name__})"


class FunctionalDecoder:
    """Decodes with a functional or sequential model made of our layers: a
    `keras_transformer.decoding.Decodable`.

    The model is not changed, and is not kept: only its layers are. It computes logits or
    probabilities, (batch, length, vocab_size), of token ids. What a model with a source is given
    besides the target is a tensor if that is one input, or a dict from names of inputs to tensors.

    Raises:
        ConfigError: The model cannot be computed one position at a time.

    Attributes:
        max_length: the number of learned positions from the first one of the target on, None if
            there are none.
        vocab_size: the number of token ids that the target may have.
    """

    def __init__(self, model: keras.Model) -> None:
        inputs, calls, output = _record(model)
        if tree.is_nested(output) or len(output.shape) != 3 or output.shape[-1] is None:
            raise ConfigError(
                f"model must have one output, logits of shape (batch, length, vocab_size); "
                f"received {model.name!r} "
                f"with outputs of shape "
                f"{tree.map_structure(lambda tensor: tuple(tensor.shape), output)}; of several, "
                "take the logits: generate(keras.Model(model.inputs, model.outputs[0]), ...)"
            )
        # An encoder may attend to its own past as well, but not to a source.
        decoders = [call for call in calls if call.has_source]
        causal = [
            call for call in calls if call.is_cached and call.arguments.get("use_causal_mask")
        ]
        first_decoder = next(iter(decoders + causal), None)
        if first_decoder is None:
            raise ConfigError(
                f"model must have a Decoder, a DecoderLayer or attention with "
                f"use_causal_mask=True; {model.name!r} has "
                f"none; {_ADVICE}"
            )
        targets = [
            tensor for tensor in inputs if id(first_decoder.target) in _computed_from(tensor, calls)
        ]
        if len(targets) != 1:
            names = [tensor.name for tensor in targets]
            raise ConfigError(
                f"the target of layer {first_decoder} must be computed from one input of the "
                f"model; received {names}"
            )
        (self._target,) = targets
        self._sources = [tensor for tensor in inputs if tensor is not self._target]
        self._output = output
        self._of_target = _computed_from(self._target, calls)
        if id(output) not in self._of_target:
            raise ConfigError(
                f"model must compute its output from its decoder; received {model.name!r}"
            )
        self._source_calls = [call for call in calls if not self._depends_on_target(call.inputs)]
        self._step_calls = [call for call in calls if self._depends_on_target(call.inputs)]
        self._cached_calls = [call for call in self._step_calls if call.is_cached]
        for call in self._step_calls:
            self._check(call)
        constants = [
            tensor for call in self._step_calls if not call.is_cached for tensor in call.inputs
        ]
        constants = [tensor for tensor in constants if not self._depends_on_target(tensor)]
        self._constants = list({id(tensor): tensor for tensor in constants}.values())
        operations = [call.operation for call in self._step_calls]
        last = next(operation for operation in reversed(operations) if not _keeps_values(operation))
        is_softmax = isinstance(last, layers.Softmax) or _is_one_of(last, (ops.softmax,))
        self._has_probabilities = (
            is_softmax or getattr(last, "activation", None) is keras.activations.softmax
        )
        learned = [
            call
            for call in self._step_calls
            if getattr(call.operation, "positions", None) == "learned"
        ]
        self.max_length = min(
            (call.operation.max_length - call.start_index for call in learned), default=None
        )
        embeddings = [call.operation for call in self._step_calls if call.target is self._target]
        sizes = [
            getattr(layer, "vocab_size", getattr(layer, "input_dim", None)) for layer in embeddings
        ]
        self.vocab_size = min(
            (size for size in sizes if size is not None), default=output.shape[-1]
        )
        cached = [call.operation for call in self._cached_calls]
        self._cached_layers = [
            _StockAttention(layer) if type(layer) in _STOCK_ATTENTION else layer for layer in cached
        ]

    def start_decoding(
        self,
        source: Any = None,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[DecoderState], DecoderState]:
        """Prepares to decode, see `keras_transformer.decoding.Decodable`."""
        values = self._source_values(source)
        if prefix is None and not values:
            raise ConfigError(
                "prefix must be given to a model without a source; received prefix=None"
            )
        batch_size = ops.shape(next(iter(values.values())) if prefix is None else prefix)[0]
        entries = CacheEntries(batch_size, beam_size, max_length, prefix)

        def step(
            token_ids: Tensor, parents: Tensor | None, position: Dimension, state: DecoderState
        ) -> tuple[Any, DecoderState]:
            positions = entries.new_positions(parents, position, state)
            sources, constants = state.source
            values = {
                id(tensor): value for tensor, value in zip(self._constants, constants, strict=True)
            }
            values[id(self._target)] = ops.cast(token_ids, self._target.dtype)
            caches: list[Any] = []
            for call in self._step_calls:
                if not call.is_cached:
                    _run(call, values, positions.position_ids)
                    continue
                layer = self._cached_layers[len(caches)]
                values[id(call.outputs)], cache = layer.step(
                    values[id(call.target)],
                    state.caches[len(caches)],
                    **sources[len(caches)],
                    **positions.arguments_for(layer),
                )
                caches.append(cache)
                if parents is None and len(caches) == len(self._cached_layers):
                    break
            state = state._replace(is_ancestor=positions.mask, caches=caches)
            if parents is None:
                return None, state
            outputs = values[id(self._output)]
            return ops.log(
                ops.cast(outputs, "float32")
            ) if self._has_probabilities else outputs, state

        def init_caches(batch_size: Dimension, num_entries: Dimension | None) -> list[Any]:
            return [layer.init_cache(batch_size, num_entries) for layer in self._cached_layers]

        for call in self._source_calls:
            _run(call, values)
        sources = [_read_source(call, values) for call in self._cached_calls]
        constants = [values[id(tensor)] for tensor in self._constants]
        return step, entries.start(step, init_caches, (sources, constants))

    def _depends_on_target(self, tensors: Any) -> bool:
        return any(id(tensor) in self._of_target for tensor in _keras_tensors(tensors))

    def _check(self, call: _Call) -> None:
        """Raises a ConfigError if a call that depends on the target cannot be computed one position
        at a time."""
        if call.is_cached:
            # Masks of the target only mask padding, which is never generated.
            expected = dict(
                attention_mask=None, source_attention_mask=None, return_attention_scores=False
            )
            for name, value in (expected | dict(use_causal_mask=True)).items():
                argument = call.arguments.get(name, value)
                if argument is not value:
                    received = "a tensor" if hasattr(argument, "shape") else repr(argument)
                    raise ConfigError(
                        f"layer {call} must be called with {name}={value} to decode step by step; "
                        f"received {name}={received}"
                    )
            if call.is_attention:
                attended = [
                    call.arguments[name]
                    for name in ("value", "key")
                    if call.arguments[name] is not None
                ]
                if len(call.target.shape) != 3 or any(
                    tensor is not call.target for tensor in attended
                ):
                    raise ConfigError(
                        f"layer {call} must attend to its own query (batch, length, width); "
                        f"{_ADVICE}"
                    )
            for name in ("source", "source_mask"):
                if self._depends_on_target(call.arguments.get(name)):
                    raise ConfigError(f"{name} of layer {call} must not depend on the target")
        elif call.takes_positions:
            arguments = call.arguments
            if arguments.get("position_ids") is not None or self._depends_on_target(
                arguments.get("start_index")
            ):
                raise ConfigError(
                    f"layer {call} must not be given position_ids to decode step by step"
                )
        elif not self._is_position_wise(call):
            raise ConfigError(
                f"layer {call} is not known to treat each position by itself; {_ADVICE}"
            )

    def _is_position_wise(self, call: _Call) -> bool:
        """Returns whether what a call computes for one position depends on no other."""
        operation = call.operation
        ranks = {len(tensor.shape) for tensor in call.inputs if self._depends_on_target(tensor)}
        rank = max(ranks)
        # What is not computed from the target must be alike for all positions, which are along axis
        # 1.
        tensors = [
            tensor for tensor in tree.flatten((call.args, call.kwargs)) if hasattr(tensor, "shape")
        ]
        others = [tensor for tensor in tensors if not self._depends_on_target(tensor)]
        if len(ranks) > 1 or not all(_is_alike(tensor, rank) for tensor in others):
            return False
        if isinstance(operation, _LAST_AXIS_LAYERS) or _is_one_of(operation, _LAST_AXIS_FUNCTIONS):
            axes = operation.axis if isinstance(operation.axis, (list, tuple)) else [operation.axis]
            return rank > 2 and all(axis in (-1, rank - 1) for axis in axes)
        # An activation may be a softmax.
        needs_features = isinstance(operation, (layers.Activation, layers.Dense))
        is_known = isinstance(operation, _POSITION_WISE_LAYERS) or _is_one_of(
            operation, _ELEMENT_WISE_FUNCTIONS
        )
        return is_known and (rank > 2 or not needs_features)

    def _source_values(self, source: Any) -> dict[int, Any]:
        names = [tensor.name for tensor in self._sources]
        if source is None:
            source = {}
        elif not isinstance(source, Mapping):
            source = {names[0] if len(names) == 1 else "source": source}
        if set(source) != set(names):
            raise ConfigError(
                f"source must be given for the inputs {names}; received {list(source)}"
            )
        return {
            id(tensor): ops.convert_to_tensor(source[tensor.name], tensor.dtype)
            for tensor in self._sources
        }


class _StockAttention:
    """Causal self-attention of a layer of Keras, one position at a time; the methods are those of
    our own layers."""

    relative_positions = None
    needs_position_ids = False

    def __init__(self, layer: Any) -> None:
        self._projections = projections_of(layer)
        config = layer.get_config()
        key_dim = config.get("key_dim", config.get("head_dim"))
        num_heads = config.get("num_key_value_heads", config.get("num_heads"))
        self._cache_sizes = num_heads, key_dim, config.get("value_dim", key_dim)
        self._dtype = layer.compute_dtype
        # Keras has it from 3.15 on.
        window = config.get("sliding_window")
        self.neighborhood = None if window is None else 2 * window - 1

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None) -> Cache:
        return empty_cache(batch_size, *self._cache_sizes, max_length, self._dtype)

    def step(
        self, hidden: Tensor, cache: Cache, position: Dimension, mask: Tensor | None
    ) -> tuple[Tensor, Cache]:
        # Copy to drop the mask, about which the projections would warn.
        hidden = ops.copy(hidden)
        # Keras has heads after positions, caches before them.
        projected = (self._projections[name](hidden) for name in ("query", "key", "value"))
        queries, keys, values = (ops.swapaxes(heads, 1, 2) for heads in projected)
        cache = cache.write(KeyValues(keys, values), position)
        weights = attention_weights(
            queries, cache.keys, None if mask is None else ops.expand_dims(mask, 1)
        )
        heads = ops.swapaxes(product_of_heads(weights, cache.values), 1, 2)
        if "gate" in self._projections:
            heads = ops.multiply(heads, self._projections["gate"](hidden))
        return self._projections["output"](heads), cache


class _StandIn(keras.Operation):
    """Takes the place of an operation in a copy of a graph, so that the operation itself is not
    called once more."""

    def __init__(self, operation: keras.Operation) -> None:
        super().__init__()
        self.operation = operation

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.operation.compute_output_spec(*args, **kwargs)


def _record(model: keras.Model) -> tuple[list[keras.KerasTensor], list[_Call], Any]:
    """Returns the inputs of a model, all calls that it consists of, in order, and its outputs."""
    calls: list[_Call] = []

    def record_call(stand_in: _StandIn, *args: Any, **kwargs: Any) -> Any:
        operation = stand_in.operation
        if isinstance(operation, (keras.Function, keras.Sequential)) and len(args) == 1:
            return record_model(operation, args[0])
        outputs = stand_in(*args, **kwargs)
        calls.append(_Call(operation, args, kwargs, outputs, _arguments(operation, args, kwargs)))
        return outputs

    def record_model(model: keras.Model, inputs: Any) -> Any:
        if isinstance(model, keras.Sequential):
            for layer in model.layers:
                inputs = record_call(_StandIn(layer), inputs)
            return inputs
        # Make a plain functional model, because subclasses decide themselves what `clone_model`
        # does.
        plain = keras.Model(model.input, model.output)
        return keras.models.clone_model(
            plain, input_tensors=inputs, clone_function=_StandIn, call_function=record_call
        ).output

    inputs = tree.map_structure(
        lambda tensor: keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name),
        model.inputs[0] if isinstance(model, keras.Sequential) else model.input,
    )
    return tree.flatten(inputs), calls, record_model(model, inputs)


def _read_source(call: _Call, values: dict[int, Any]) -> dict[str, Any]:
    """Returns the arguments for the steps of a decoder that are about its source, if it has one."""
    if call.arguments.get("source") is None:
        return {}
    source, mask = values[id(call.arguments["source"])], call.arguments["source_mask"]
    mask = implicit_mask(source) if mask is None else values.get(id(mask), mask)
    key_values = call.operation.project_source(source)
    return dict(source_key_values=key_values) | ({} if mask is None else dict(source_mask=mask))


def _computed_from(tensor: Tensor, calls: Sequence[_Call]) -> set[int]:
    """Returns the ids of a tensor and of all that is computed from it."""
    ids = {id(tensor)}
    for call in calls:
        if any(id(argument) in ids for argument in call.inputs):
            ids.update(map(id, _keras_tensors(call.outputs)))
    return ids


def _run(call: _Call, values: dict[int, Any], position_ids: Tensor | None = None) -> None:
    """Computes a call and stores its outputs among the values of tensors."""
    args, kwargs = tree.map_structure(
        lambda value: values[id(value)] if keras.utils.is_keras_tensor(value) else value,
        (call.args, call.kwargs),
    )
    if position_ids is not None and call.takes_positions:
        arguments = _arguments(call.operation, args, kwargs)
        start_index = arguments.pop("start_index", 0)
        args, kwargs = (), arguments | {"position_ids": position_ids + start_index}
    outputs = call.operation(*args, **kwargs)
    for tensor, value in zip(tree.flatten(call.outputs), tree.flatten(outputs), strict=True):
        values[id(tensor)] = value


def _arguments(
    operation: keras.Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    bound = inspect.signature(operation.call).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _is_one_of(operation: keras.Operation, functions: Sequence[Any]) -> bool:
    names = {function.__name__.replace("_", "") for function in functions}
    is_of_keras = type(operation).__module__.startswith("keras.") and not isinstance(
        operation, keras.Layer
    )
    return is_of_keras and type(operation).__name__.lower() in names


def _keeps_values(operation: keras.Operation) -> bool:
    """Returns whether an operation changes its input in type at most, as after a softmax in mixed
    precision."""
    is_linear = (
        isinstance(operation, layers.Activation)
        and operation.activation is keras.activations.linear
    )
    return (
        is_linear
        or isinstance(operation, layers.Identity)
        or _is_one_of(operation, (ops.cast, ops.stop_gradient))
    )


def _is_alike(tensor: Tensor, rank: int) -> bool:
    # (..., 1, width) or (width,), as it broadcasts to a tensor of the rank, (batch, length, ...)
    along_positions = len(tensor.shape) - (rank - 1)
    return along_positions < 0 or tensor.shape[along_positions] == 1


def _keras_tensors(nest: Any) -> list[Tensor]:
    return [value for value in tree.flatten(nest) if keras.utils.is_keras_tensor(value)]
