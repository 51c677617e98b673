"""Functional models, computed one position at a time.

A functional model is a list of calls: of layers, and of operations such as `a + b`. What does not depend on the target
is computed once. Of what does, decoder layers have a cache and attend to it; layers that are told positions are told
those of the step; everything else must treat each position by itself. That cannot be seen from outside, so only
layers and operations of which it is known are accepted.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import keras
from keras import ops, tree

from .. import layers as our_layers
from ..decoding.protocol import Step
from ..errors import ConfigError
from ..layers import Decoder, DecoderLayer
from ..masks import implicit_mask
from ..tensors import Dimension, Tensor
from .incremental_decoding import DecoderState, NewPositions, start_steps

# Layers that treat each position by itself, whatever their arguments.
_POSITION_WISE_LAYERS = (
    keras.layers.Activation,
    keras.layers.ActivityRegularization,
    keras.layers.Add,
    keras.layers.AlphaDropout,
    keras.layers.Average,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.ELU,
    keras.layers.Embedding,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Identity,
    keras.layers.LeakyReLU,
    keras.layers.Maximum,
    keras.layers.Minimum,
    keras.layers.Multiply,
    keras.layers.ReLU,
    keras.layers.Rescaling,
    keras.layers.Subtract,
    our_layers.FeedForward,
    our_layers.TiedProjection,
)
# Layers that do so if they work along the last axis.
_LAST_AXIS_LAYERS = (
    keras.layers.BatchNormalization,
    keras.layers.Concatenate,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.Softmax,
    keras.layers.UnitNormalization,
)
# Operations of `keras.ops`, of which Keras exports the functions but not the classes.
_ELEMENT_WISE_OPERATIONS = """
    Abs Absolute Add Cast Celu Clip Cos Divide Elu Equal Erf Exp Expm1 Gelu Greater GreaterEqual HardSigmoid HardSilu
    HardTanh Identity IsFinite Isfinite LeakyRelu Less LessEqual Log Log1p LogSigmoid LogicalAnd LogicalNot LogicalOr
    LogicalXor Maximum Minimum Mod Multiply Negative NotEqual OnesLike Power Reciprocal Relu Relu6 Rsqrt Selu Sigmoid
    Sign Silu Sin Softplus Softsign Sqrt Square SquaredDifference StopGradient Subtract Tanh TrueDivide Where ZerosLike
"""
_LAST_AXIS_OPERATIONS = ("Concatenate", "LogSoftmax", "Softmax")
_ADVICE = (
    "use the layers of keras_transformer, or give the model a method start_decoding, "
    "see keras_transformer.decoding.Decodable"
)


class _Call(NamedTuple):
    operation: keras.Operation
    args: tuple[Any, ...]  # with KerasTensors
    kwargs: dict[str, Any]
    outputs: Any  # a nest of KerasTensors

    @property
    def inputs(self) -> list[Tensor]:
        return _keras_tensors((self.args, self.kwargs))

    def __str__(self) -> str:
        return f"{self.operation.name!r} ({type(self.operation).__name__})"


class _DecoderCall(NamedTuple):
    layer: Decoder | DecoderLayer
    target: Tensor  # KerasTensors
    source: Tensor | None
    source_mask: Tensor | None
    outputs: Tensor


class _Source(NamedTuple):
    """What steps read of the source."""

    key_values: list[Any]  # of each decoder call; () without a source
    masks: list[Any]  # of each decoder call; () without a mask
    constants: list[Tensor]  # what other calls need, one row per sequence


class FunctionalDecoder:
    """Decodes with a functional or sequential model made of our layers: a `keras_transformer.decoding.Decodable`.

    The model is not changed, and is not kept: only its layers are.

    Args:
        model: from token ids to logits or probabilities, (batch, length, vocab_size). A model with a source has several
            inputs.

    Raises:
        ConfigError: The model cannot be computed one position at a time.
    """

    def __init__(self, model: keras.Model) -> None:
        inputs, self._calls, output = _record(model)
        if tree.is_nested(output) or len(output.shape) != 3 or output.shape[-1] is None:
            raise ConfigError(
                f"model must have one output, logits of shape (batch, length, vocab_size); received {model.name!r} "
                f"with outputs of shape {tree.map_structure(lambda tensor: tuple(tensor.shape), output)}"
            )
        self._output = output
        self.target, self.sources = self._sort_inputs(inputs, model.name)
        self._sort_calls()
        if id(output) not in self._of_target:
            raise ConfigError(f"model must compute its output from its decoder; received {model.name!r}")
        self._needed_for_caches = self._find_needed_for_caches()
        self._has_probabilities = _is_softmax(self._step_calls[-1])

    @property
    def max_length(self) -> int | None:
        """The number of learned positions, None if there are none."""
        lengths = [
            call.operation.max_length
            for call in self._step_calls
            if isinstance(call, _Call) and getattr(call.operation, "positions", None) == "learned"
        ]
        return min(lengths, default=None)

    def start_decoding(
        self,
        source: Any = None,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[DecoderState], DecoderState]:
        """Prepares to decode, see `keras_transformer.decoding.Decodable`.

        Args:
            source: what the model is given besides the target: a tensor if that is one input, or a dict from names of
                inputs to tensors. None for a model without a source.
            beam_size: hypotheses per sequence. Defaults to 1.
            max_length: tokens for which caches have room. Defaults to None: caches grow with every step.
            prefix: the tokens before position 0, negative before a sequence's beginning. Defaults to None, which a
                model without a source does not allow: its batch size would not be known.

        Returns:
            The step function, and the state for its first call.
        """
        given = self._source_values(source)
        if prefix is None and not given:
            raise ConfigError("prefix must be given to a model without a source; received prefix=None")
        batch_size = ops.shape(next(iter(given.values())) if prefix is None else prefix)[0]
        return start_steps(self, self._read_source(given), batch_size, beam_size, max_length, prefix)

    def source_shapes(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Returns shape and dtype of every input that is not the target, by name."""
        return {one.name: (tuple(one.shape), one.dtype) for one in self.sources}

    # The graph

    def _sort_inputs(
        self, inputs: list[keras.KerasTensor], name: str
    ) -> tuple[keras.KerasTensor, list[keras.KerasTensor]]:
        """Finds the target among the inputs: what the decoder layers' own sequence is computed from."""
        first = next((call for call in self._calls if isinstance(call.operation, (Decoder, DecoderLayer))), None)
        if first is None:
            raise ConfigError(
                f"model must have a Decoder or a DecoderLayer; received {name!r}, which has none; {_ADVICE}"
            )
        target = _arguments(first)["target"]
        found = [one for one in inputs if id(target) in self._computed_from(one)]
        if len(found) != 1:
            names = [one.name for one in found]
            raise ConfigError(f"the target of layer {first} must be computed from one input; received {names}")
        return found[0], [one for one in inputs if one is not found[0]]

    def _computed_from(self, tensor: Tensor) -> set[int]:
        found = {id(tensor)}
        for call in self._calls:
            if any(id(one) in found for one in call.inputs):
                found.update(map(id, _keras_tensors(call.outputs)))
        return found

    def _sort_calls(self) -> None:
        """Divides the calls in those of the source and those of every step, and checks the latter."""
        self._of_target = self._computed_from(self.target)
        self._source_calls: list[_Call] = []
        self._step_calls: list[_Call | _DecoderCall] = []
        self._decoder_calls: list[_DecoderCall] = []
        constants: dict[int, Tensor] = {}
        for call in self._calls:
            if not self._depends(call.inputs):
                self._source_calls.append(call)
            elif isinstance(call.operation, (Decoder, DecoderLayer)):
                self._decoder_calls.append(self._decoder_call(call))
                self._step_calls.append(self._decoder_calls[-1])
            else:
                self._check_position_wise(call)
                constants |= {id(one): one for one in call.inputs if not self._depends(one)}
                self._step_calls.append(call)
        self._constants = list(constants.values())

    def _depends(self, tensors: Any) -> bool:
        return any(id(one) in self._of_target for one in _keras_tensors(tensors))

    def _decoder_call(self, call: _Call) -> _DecoderCall:
        arguments = _arguments(call)
        expected = dict(
            attention_mask=None, source_attention_mask=None, use_causal_mask=True, return_attention_scores=False
        )
        for name, value in expected.items():
            if arguments.get(name, value) is not value:
                raise ConfigError(
                    f"layer {call} must be called with {name}={value} to decode step by step; "
                    f"received {name}={_shown(arguments[name])}"
                )
        for name in ("source", "source_mask"):
            if self._depends(arguments[name]):
                raise ConfigError(f"{name} of layer {call} must not depend on the target")
        # A mask of the target is one of padding, which is never generated.
        return _DecoderCall(
            call.operation, arguments["target"], arguments["source"], arguments["source_mask"], call.outputs
        )

    def _check_position_wise(self, call: _Call) -> None:
        if _takes_positions(call.operation):
            if _arguments(call).get("position_ids") is not None or self._depends(_arguments(call).get("start_index")):
                raise ConfigError(f"layer {call} must not be given position_ids in the model to decode step by step")
            return
        if not _is_position_wise(call, self._depends):
            raise ConfigError(f"layer {call} is not known to treat each position by itself, so that {_ADVICE}")

    def _find_needed_for_caches(self) -> set[int]:
        """The places of the calls without which no cache can be written."""
        needed, tensors = set(), set()
        for place in reversed(range(len(self._step_calls))):
            call = self._step_calls[place]
            if isinstance(call, _DecoderCall):
                needed.add(place)
                tensors.add(id(call.target))
            elif any(id(one) in tensors for one in _keras_tensors(call.outputs)):
                needed.add(place)
                tensors.update(map(id, call.inputs))
        return needed

    # The source

    def _source_values(self, source: Any) -> dict[str, Tensor]:
        names = [one.name for one in self.sources]
        if source is None:
            given: Mapping[str, Any] = {}
        elif isinstance(source, Mapping):
            given = source
        else:
            given = {names[0]: source} if len(names) == 1 else {"source": source}
        if set(given) != set(names):
            raise ConfigError(f"source must be given for the inputs {names}; received {list(given)}")
        return {one.name: ops.convert_to_tensor(given[one.name], one.dtype) for one in self.sources}

    def _read_source(self, given: Mapping[str, Tensor]) -> _Source:
        values = {id(one): given[one.name] for one in self.sources}
        for call in self._source_calls:
            _run(call, values)
        key_values: list[Any] = []
        masks: list[Any] = []
        for decoder in self._decoder_calls:
            if decoder.source is None:
                key_values.append(())
                masks.append(())
                continue
            source = values[id(decoder.source)]
            mask = implicit_mask(source) if decoder.source_mask is None else values[id(decoder.source_mask)]
            key_values.append(decoder.layer.project_source(source))
            masks.append(() if mask is None else mask)
        return _Source(key_values, masks, [values[id(one)] for one in self._constants])

    # Steps: the protocol `Network`

    def init_caches(self, batch_size: Dimension, max_length: Dimension | None) -> list[Any]:
        return [call.layer.init_cache(batch_size, max_length) for call in self._decoder_calls]

    def __call__(
        self, token_ids: Tensor, caches: Any, source: _Source, positions: NewPositions, needs_logits: bool = True
    ) -> tuple[Tensor | None, Any]:
        values = {id(self.target): ops.cast(token_ids, self.target.dtype)}
        values |= {id(one): value for one, value in zip(self._constants, source.constants, strict=True)}
        remembered = zip(caches, source.key_values, source.masks, strict=True)
        written = []
        for place, call in enumerate(self._step_calls):
            if isinstance(call, _DecoderCall):
                cache, key_values, mask = next(remembered)
                values[id(call.outputs)], cache = call.layer.step(
                    values[id(call.target)],
                    cache,
                    source_key_values=None if isinstance(key_values, tuple) and not key_values else key_values,
                    source_mask=None if isinstance(mask, tuple) else mask,
                    **positions.arguments_for(call.layer),
                )
                written.append(cache)
            elif needs_logits or place in self._needed_for_caches:
                _run(call, values, positions.position_ids)
        if not needs_logits:
            return None, written
        outputs = values[id(self._output)]
        return ops.log(ops.cast(outputs, "float32")) if self._has_probabilities else outputs, written


class _StandIn(keras.Operation):
    """Takes the place of an operation in a copy of a graph, so that the operation itself is not called once more."""

    def __init__(self, operation: keras.Operation) -> None:
        super().__init__()
        self.operation = operation

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.operation.call(*args, **kwargs)

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
        calls.append(_Call(operation, args, kwargs, outputs))
        return outputs

    def record_model(model: keras.Model, inputs: Any) -> Any:
        if isinstance(model, keras.Sequential):
            for layer in model.layers:
                inputs = record_call(_StandIn(layer), inputs)
            return inputs
        # A plain functional model: what `clone_model` does with others is up to their classes.
        plain = keras.Model(model.input, model.output)
        return keras.models.clone_model(
            plain, input_tensors=inputs, clone_function=_StandIn, call_function=record_call
        ).output

    inputs = tree.map_structure(
        lambda tensor: keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name),
        model.inputs[0] if isinstance(model, keras.Sequential) else model.input,
    )
    return tree.flatten(inputs), calls, record_model(model, inputs)


def _run(call: _Call, values: dict[int, Tensor], position_ids: Tensor | None = None) -> None:
    """Computes a call and stores its outputs among the values of tensors."""
    args, kwargs = tree.map_structure(
        lambda one: values[id(one)] if keras.utils.is_keras_tensor(one) else one, (call.args, call.kwargs)
    )
    if position_ids is not None and _takes_positions(call.operation):
        arguments = _bound(call.operation, args, kwargs)
        start_index = arguments.pop("start_index", 0)
        outputs = call.operation(**arguments | {"position_ids": position_ids + start_index})
    else:
        outputs = call.operation(*args, **kwargs)
    for one, value in zip(tree.flatten(call.outputs), tree.flatten(outputs), strict=True):
        values[id(one)] = value


def _arguments(call: _Call) -> dict[str, Any]:
    return _bound(call.operation, call.args, call.kwargs)


def _bound(operation: keras.Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(operation.call).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _takes_positions(operation: keras.Operation) -> bool:
    return isinstance(operation, keras.Layer) and "position_ids" in inspect.signature(operation.call).parameters


def _is_position_wise(call: _Call, depends: Callable[[Any], bool]) -> bool:
    """Returns whether a call treats each position by itself: what it computes for one depends on no other."""
    operation, name = call.operation, type(call.operation).__name__
    ranks = {len(one.shape) for one in call.inputs if depends(one)}
    rank = max(ranks)
    # What is not computed from the target must be alike for all positions, which are along axis 1.
    if len(ranks) > 1 or not all(_is_alike(one, rank) for one in _tensors(call) if not depends(one)):
        return False
    if isinstance(operation, _LAST_AXIS_LAYERS):
        return rank > 2 and _is_last(operation.axis, rank)
    if isinstance(operation, keras.layers.EinsumDense):
        return _keeps_positions(operation.equation)
    if isinstance(operation, keras.layers.Dense):
        return rank > 2
    if isinstance(operation, _POSITION_WISE_LAYERS):
        # An activation may be a softmax.
        return rank > 2 or not isinstance(operation, keras.layers.Activation)
    if name in _LAST_AXIS_OPERATIONS:
        return rank > 2 and _is_last(operation.axis, rank)
    return name in _ELEMENT_WISE_OPERATIONS.split()


def _is_alike(tensor: Tensor, rank: int) -> bool:
    # (..., 1, width) or (width,), as it broadcasts to a tensor of the rank, (batch, length, ...)
    along_positions = len(tensor.shape) - (rank - 1)
    return along_positions < 0 or tensor.shape[along_positions] == 1


def _is_last(axis: Any, rank: int) -> bool:
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return all(one in (-1, rank - 1) for one in axes)


def _keeps_positions(equation: str) -> bool:
    """Returns whether axis 1 of the inputs of an `EinsumDense` is axis 1 of its outputs, and not in its kernel."""
    inputs, kernel, outputs = equation.replace(" ", "").replace("->", ",").split(",")
    if inputs.startswith("..."):
        return outputs.startswith("...") and len(inputs) == 4
    return inputs[1] == outputs[1] and inputs[1] not in kernel


def _is_softmax(call: _Call | _DecoderCall) -> bool:
    if isinstance(call, _DecoderCall):
        return False
    activation = getattr(call.operation, "activation", None)
    return type(call.operation).__name__ == "Softmax" or activation is keras.activations.softmax


def _keras_tensors(nest: Any) -> list[Tensor]:
    return [one for one in tree.flatten(nest) if keras.utils.is_keras_tensor(one)]


def _tensors(call: _Call) -> list[Tensor]:
    return [one for one in tree.flatten((call.args, call.kwargs)) if hasattr(one, "shape")]


def _shown(value: Any) -> str:
    return "a tensor" if hasattr(value, "shape") else repr(value)
