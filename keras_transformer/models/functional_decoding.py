"""Decodes with functional models, one position at a time.

A functional model is treated as a list of calls of layers and of operations such as `a + b`. Calls
that do not depend on the target are computed once. The other calls are computed in each step:
layers with causal self-attention attend to a cache, and layers that take position ids receive the
ids of the step. All other layers and operations must be position-wise, which `ways_to_decode`
checks.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from keras import ops, tree

from ..decoding import Step
from ..errors import ConfigError
from ..masks import implicit_mask
from ..tensors import Dimension, Tensor
from .functional_graph import Call, bound_arguments
from .incremental_decoding import CacheEntries, DecoderState
from .step_plan import STOCK_ATTENTION, StepPlan, is_cached, values_of
from .stock_attention import StockAttention


class FunctionalDecoder:
    """A `keras_transformer.decoding.Decodable` that runs a functional model step by step.

    The model, functional or sequential, computes logits or probabilities (batch, length,
    vocab_size) from token ids. The decoder does not change the model, and keeps references only to
    its layers. If the model has one other input besides the target, the source is a tensor. If it
    has several, the source is a dict from input names to tensors.

    Args:
        plan: the calls. `ways_to_decode` has checked that steps return the same outputs as a single
            call.

    Attributes:
        max_length: the number of learned positions that the target can use, or None without a
            limit.
        vocab_size: the number of token ids that the target may have.
        plan: the calls.
    """

    def __init__(self, plan: StepPlan) -> None:
        self.plan = plan
        self._target = plan.target
        self._output = plan.graph.output
        self._constants = plan.constants
        self._has_probabilities = plan.has_probabilities
        self._cached_layers = [
            StockAttention(call.operation)
            if type(call.operation) in STOCK_ATTENTION
            else call.operation
            for call in plan.cached_calls
        ]
        self.max_length = plan.max_length
        self.vocab_size = plan.vocab_size

    def start_decoding(
        self,
        source: Any = None,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[DecoderState], DecoderState]:
        """Prepares to decode. See `keras_transformer.decoding.Decodable`."""
        inputs = {tensor.name: tensor for tensor in self.plan.sources}
        values = {
            id(inputs[name]): ops.convert_to_tensor(value, inputs[name].dtype)
            for name, value in named_sources(list(inputs), source).items()
        }
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
            for call in self.plan.step_calls:
                if not is_cached(call):
                    _run(call, values, positions.position_ids)
                    continue
                layer = self._cached_layers[len(caches)]
                values[id(call.outputs)], cache = layer.step(
                    values[id(call.first_argument)],
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
            if self._has_probabilities:
                outputs = ops.log(ops.cast(outputs, "float32"))
            return outputs, state

        def init_caches(batch_size: Dimension, num_entries: Dimension | None) -> list[Any]:
            return [layer.init_cache(batch_size, num_entries) for layer in self._cached_layers]

        for call in self.plan.source_calls:
            _run(call, values)
        sources = [_read_source(call, values) for call in self.plan.cached_calls]
        constants = [values[id(tensor)] for tensor in self._constants]
        return step, entries.start(step, init_caches, (sources, constants))


def named_sources(names: Sequence[str], source: Any) -> dict[str, Any]:
    """Returns the source as a dict from input names to values.

    Raises:
        ConfigError: The source is missing, or the names in a dict do not match the input names.
    """
    if source is None:
        source = {}
    elif not isinstance(source, Mapping):
        source = {names[0] if len(names) == 1 else "source": source}
    if set(source) != set(names):
        raise ConfigError(
            f"source must be given for the inputs {list(names)}; received {list(source)}"
        )
    return dict(source)


def _read_source(call: Call, values: dict[int, Any]) -> dict[str, Any]:
    """Returns the source arguments for the steps of a decoder, or {} without a source."""
    source = call.arguments.get("source")
    if source is None:
        return {}
    source, mask = values[id(source)], call.arguments.get("source_mask")
    mask = implicit_mask(source) if mask is None else values.get(id(mask), mask)
    key_values = call.operation.project_source(source)
    return dict(source_key_values=key_values) | ({} if mask is None else dict(source_mask=mask))


def _run(call: Call, values: dict[int, Any], position_ids: Tensor | None = None) -> None:
    """Computes a call and adds its outputs to `values`."""
    args, kwargs = values_of((call.args, call.kwargs), values)
    if position_ids is not None and call.takes_positions:
        arguments = bound_arguments(call.operation, args, kwargs)
        start_index = arguments.pop("start_index", 0)
        args, kwargs = (), arguments | {"position_ids": position_ids + start_index}
    outputs = call.operation(*args, **kwargs)
    for tensor, value in zip(tree.flatten(call.outputs), tree.flatten(outputs), strict=True):
        values[id(tensor)] = value
