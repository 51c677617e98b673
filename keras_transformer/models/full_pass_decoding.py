"""Decodes with any model by calling it with all tokens so far at each step."""

import weakref
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..decoding import Step
from ..errors import ConfigError
from ..gather import gather_in_rows
from ..keras_versions import input_structure, with_sublayers
from ..tensors import Dimension, Tensor
from .compilation import compiled
from .functional_decoding import named_sources
from .step_plan import StepPlan

# The number of prompts that are used to check whether a model is causal.
_NUM_EXAMINED = 4


class FullPassState(NamedTuple):
    """The state between two steps.

    Attributes:
        token_ids: the tokens of each hypothesis, starting at the first position and followed by
            zeros.
        prefix_lengths: the number of tokens before position 0 of the search.
        source: a dict from input names to tensors, a nest of tensors, or ().
    """

    token_ids: Annotated[Tensor, "int32 (batch, beam_size, room)"]
    prefix_lengths: Annotated[Tensor, "int32 (batch, 1)"]
    source: Any


class FullPassDecoder:
    """A `keras_transformer.decoding.Decodable` that calls any model with all tokens at each step.

    The model computes logits or probabilities (batch, length, vocab_size) from token ids. Each step
    calls it with all tokens of all hypotheses, and reads the logits of the newest position. Tokens
    are left-aligned and padded at the end, so a causal model computes each text independently.

    A functional or sequential model is called with its inputs by name. Any other model is called
    with the token ids, and with the source as the second argument. If the source is a dict, its
    entries are passed as keyword arguments.

    Args:
        model: keras.Layer or keras.Function. The decoder keeps only a weak reference.
        reason: why the model is not decoded step by step, for a warning.
        plan: the calls of a functional model. Defaults to None.

    Attributes:
        max_length: the maximum number of positions, or None without a known limit.
        vocab_size: the number of token ids of the target, or None if it is not known.
        has_probabilities: whether the model returns probabilities. `examine` sets it for models
            that are not functional.
    """

    def __init__(self, model: Any, reason: str, plan: StepPlan | None = None) -> None:
        self._find_model = weakref.ref(model)
        self.reason = reason
        self.max_length = None if plan is None else plan.max_length
        self.vocab_size = None if plan is None else plan.vocab_size
        self.has_probabilities = plan is not None and plan.has_probabilities
        self._target_name = None if plan is None else plan.target.name
        self._examined: set[Any] = set()
        # A sequential model also accepts lengths that differ from the length of its input.
        self.fixed_length: int | None = None
        if isinstance(model, keras.Function):
            lengths = {t.shape[1] for t in model.inputs if t.name == self._target_name}
            if len(model.inputs) == 1:
                lengths = {model.inputs[0].shape[1]}
            self.fixed_length = max(lengths - {None}, default=None)
        if self.fixed_length is not None:
            self.max_length = min(self.max_length or self.fixed_length, self.fixed_length)

    def start_decoding(
        self,
        source: Any = None,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[FullPassState], FullPassState]:
        """Prepares to decode. See `keras_transformer.decoding.Decodable`."""
        model = self._find_model()
        source = self._converted(source)
        tensors = tree.flatten(source)
        if prefix is None and not tensors:
            raise ConfigError(
                "prefix must be given to a model without a source; received prefix=None"
            )
        if prefix is None:
            prefix = ops.zeros((ops.shape(tensors[0])[0], 0), "int32")

        def step(
            token_ids: Tensor, parents: Tensor, position: Dimension, state: FullPassState
        ) -> tuple[Tensor, FullPassState]:
            tokens = state.token_ids
            if self.fixed_length is None and max_length is None:
                more = ops.zeros((*ops.shape(tokens)[:2], 1), "int32")
                tokens = ops.concatenate([tokens, more], axis=2)
            tokens = gather_in_rows(tokens, parents)
            batch, _, room = ops.shape(tokens)
            places = state.prefix_lengths + position  # (batch, 1)
            is_newest = ops.equal(ops.arange(room, dtype="int32"), places[:, :, None])
            tokens = ops.where(is_newest, token_ids[:, :, None], tokens)
            rows = ops.reshape(tokens, (batch * beam_size, room))
            row_places = ops.reshape(
                ops.broadcast_to(places, (batch, beam_size)), (batch * beam_size, 1)
            )
            sources = state.source
            if beam_size > 1:
                sources = tree.map_structure(lambda s: ops.repeat(s, beam_size, axis=0), sources)
            outputs = gather_in_rows(self._call(model, rows, sources), row_places)
            logits = ops.reshape(outputs, (batch, beam_size, outputs.shape[-1]))
            if self.has_probabilities:
                logits = ops.log(ops.cast(logits, "float32"))
            return logits, state._replace(token_ids=tokens)

        tokens, lengths = _at_the_beginning(prefix)
        batch, length = ops.shape(tokens)
        # Without a limit, each step adds room for one token.
        room = self.fixed_length
        if room is None and max_length is not None:
            room = length - 1 + max_length
        if room is not None:
            tokens = ops.concatenate([tokens, ops.zeros((batch, room), "int32")], axis=1)[:, :room]
        else:
            tokens = tokens[:, : length - 1 + 0 * batch]
        room = ops.shape(tokens)[1]
        tokens = ops.broadcast_to(tokens[:, None], (batch, beam_size, room))
        return step, FullPassState(tokens, lengths, source)

    def examine(
        self,
        prompts: Annotated[np.ndarray, "int32 (batch, length), negative before the first token"],
        source: Any,
        max_length: int,
    ) -> None:
        """Calls the model with some of the prompts to check whether full passes are possible.

        The logits of a prompt must not depend on later tokens or on padding. Each pair of prompt
        length and total length is examined only once.

        Raises:
            ConfigError: The output of the model is not logits, or the model is not causal.
        """
        length = prompts.shape[1]
        room = self.fixed_length or length - 1 + max_length
        if (length, room) in self._examined:
            return
        texts = [row[row >= 0] for row in prompts[:_NUM_EXAMINED]]
        source = tree.map_structure(lambda tensor: tensor[: len(texts)], self._converted(source))
        twice = tree.map_structure(lambda tensor: ops.repeat(tensor, 2, axis=0), source)
        # Two rows for each text. Ids up to the highest id in the prompts are known to be in the
        # vocabulary.
        rows = _with_different_ends(texts, room, max(int(prompts.max()), 1))
        outputs = self._outputs(rows, twice, length)
        same = [
            (outputs[2 * number, : len(text)], outputs[2 * number + 1, : len(text)])
            for number, text in enumerate(texts)
        ]
        text = texts[0]
        if self.fixed_length is None and len(text) > 0:
            alone = tree.map_structure(lambda tensor: tensor[:1], source)
            same.append((same[0][0], self._outputs(text[None], alone, len(text))[0]))
        if not all(_is_close(first, second, self._tolerance()) for first, second in same):
            raise ConfigError(
                f"model must be causal: the logits of {_name_of(self._find_model())} at a position "
                "depend on later tokens"
            )
        found = np.concatenate([first for first, _ in same])
        if len(found) and not np.isnan(found).any():
            is_probability = (found >= 0).all() and (abs(found.sum(axis=-1) - 1) < 1e-2).all()
            self.has_probabilities = self.has_probabilities or bool(is_probability)
            self._examined.add((length, room))

    def _outputs(self, rows: np.ndarray, source: Any, length: int) -> np.ndarray:
        """Returns the model's outputs for token ids, at the first `length` positions."""
        model = self._find_model()

        def call(inputs: Any) -> Any:
            return self._call(model, *inputs)

        if keras.backend.backend() == "jax" and isinstance(model, keras.Layer) and model.built:
            # Otherwise, JAX would compile each operation separately.
            call = compiled(call, model.variables, (rows, source), fixed_shapes=True)
        outputs = call((ops.convert_to_tensor(rows, "int32"), source))
        shapes = tree.map_structure(lambda tensor: tuple(tensor.shape), outputs)
        if tree.is_nested(outputs) or len(shapes) != 3 or shapes[:2] != rows.shape:
            raise ConfigError(
                "model must return one output, logits of shape (batch, length, vocab_size); for "
                f"token ids of shape {rows.shape}, {_name_of(model)} returns {shapes}"
            )
        return ops.convert_to_numpy(ops.cast(outputs[:, :length], "float32"))

    def _call(self, model: Any, token_ids: Tensor, source: Any) -> Any:
        if isinstance(model, keras.Function):
            structure = input_structure(model)
            inputs = {tensor.name: tensor for tensor in tree.flatten(structure)}
            (target_name,) = set(inputs) - set(source)
            values = {**source, target_name: ops.cast(token_ids, inputs[target_name].dtype)}
            arguments = tree.map_structure(lambda tensor: values[tensor.name], structure)
            return model(arguments)
        if isinstance(source, Mapping):
            return model(token_ids, **source)
        return model(token_ids, *source)

    def _converted(self, source: Any) -> Any:
        """Returns the source as a dict from input names to tensors, or as a tuple of tensors."""
        model = self._find_model()
        if isinstance(model, keras.Sequential):
            return tuple(named_sources([], source))
        if not isinstance(model, keras.Function):
            if isinstance(source, Mapping):
                return {name: ops.convert_to_tensor(value) for name, value in source.items()}
            return () if source is None else (ops.convert_to_tensor(source),)
        inputs = {tensor.name: tensor for tensor in model.inputs}
        names = [name for name in inputs if name != self._find_target_name(inputs, source)]
        return {
            name: ops.convert_to_tensor(value, inputs[name].dtype)
            for name, value in named_sources(names, source).items()
        }

    def _find_target_name(self, inputs: Mapping[str, Tensor], source: Any) -> str:
        """Returns the name of the input for the target, which the source does not contain."""
        if self._target_name is not None:
            return self._target_name
        if len(inputs) == 1:
            return next(iter(inputs))
        given = set(source) if isinstance(source, Mapping) else {"source"}
        others = [name for name in inputs if name not in given]
        if len(others) != 1:
            raise ConfigError(
                "source must be a dict from names to arrays, for all inputs but the one for the "
                f"token ids; {_name_of(self._find_model())} has the inputs {list(inputs)}"
            )
        return others[0]

    def _tolerance(self) -> float:
        """Returns the relative difference that rounding may cause in the logits."""
        model = self._find_model()
        parts = with_sublayers(model) if isinstance(model, keras.Layer) else []
        dtypes = {part.compute_dtype for part in parts}
        return 0.1 if dtypes & {"float16", "bfloat16"} else 1e-3


def _at_the_beginning(
    prefix: Annotated[Tensor, "int (batch, n), negative before the first token"],
) -> tuple[Annotated[Tensor, "int32 (batch, n + 1)"], Annotated[Tensor, "int32 (batch, 1)"]]:
    """Returns left-aligned rows of tokens, padded with at least one 0, and their lengths."""
    prefix = ops.cast(prefix, "int32")
    batch, length = ops.shape(prefix)
    lengths = ops.sum(ops.cast(prefix >= 0, "int32"), axis=1, keepdims=True)
    padded = ops.concatenate([prefix, ops.zeros((batch, 1), "int32")], axis=1)
    places = ops.arange(length + 1, dtype="int32")[None]
    sources = ops.where(places < lengths, places + length - lengths, length)
    return gather_in_rows(padded, sources), lengths


def _with_different_ends(
    texts: list[np.ndarray], length: int, highest_id: int
) -> Annotated[np.ndarray, "int32 (2 * number of texts, length)"]:
    """Returns two rows for each text: followed by zeros, and followed by other tokens."""
    other_tokens = np.random.default_rng(0).integers(1, highest_id + 1, length)
    rows = np.tile([np.zeros_like(other_tokens), other_tokens], (len(texts), 1))
    for number, text in enumerate(texts):
        rows[2 * number : 2 * number + 2, : len(text)] = text
    return rows.astype("int32")


def _is_close(left: np.ndarray, right: np.ndarray, tolerance: float) -> bool:
    scale = abs(left[np.isfinite(left)]).max(initial=0)
    return np.allclose(left, right, rtol=0, atol=tolerance * scale, equal_nan=True)


def _name_of(model: Any) -> str:
    return f"{model.name!r} ({type(model).__name__})"
