"""Decodes with any causal model by calling it with all tokens so far at each step."""

import weakref
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..decoding import Step
from ..errors import ConfigError
from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor
from .compilation import compiled


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

    A functional model is called with its inputs by name. Any other model is called with the token
    ids, and with the source as the second argument. If the source is a dict, its entries are passed
    as keyword arguments.

    Args:
        model: keras.Layer or keras.Function. The decoder keeps only a weak reference.

    Attributes:
        max_length: the maximum number of positions, or None without a known limit.
        has_probabilities: whether the model returns probabilities. `examine` sets it.
    """

    def __init__(self, model: Any) -> None:
        self._find_model = weakref.ref(model)
        self.has_probabilities = False
        self._examined: set[Any] = set()
        # A sequential model also accepts lengths that differ from the length of its input.
        self.max_length: int | None = None
        if isinstance(model, keras.Function) and len(model.inputs) == 1:
            self.max_length = model.inputs[0].shape[1]

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
            if self.max_length is None and max_length is None:
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
        room = self.max_length
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
        """Checks whether full passes are possible, with the shortest prompt.

        Its logits must be the same alone and before other tokens. Each pair of prompt length and
        total length is examined only once.

        Raises:
            ConfigError: The output of the model is not logits, or the model is not causal.
        """
        lengths = np.sum(prompts >= 0, axis=1)
        row = int(np.argmin(np.where(lengths > 0, lengths, prompts.shape[1] + 1)))
        text = prompts[row][prompts[row] >= 0]
        room = self.max_length or prompts.shape[1] - 1 + max_length
        if len(text) == 0 or (len(text), room) in self._examined:
            return
        source = tree.map_structure(lambda tensor: tensor[row : row + 1], self._converted(source))
        # A functional model may have a fixed length.
        alone = np.pad(text, (0, 0 if self.max_length is None else room - len(text)))
        # Other tokens, which are in the vocabulary because no prompt has a higher one.
        num_known = max(int(prompts.max()), 1) + 1
        others = (text[-1] + 1 + np.arange(room - len(text))) % num_known
        continued = np.concatenate([text, others.astype("int32")])
        first, second = (
            self._outputs(ids[None], source)[0, : len(text)] for ids in (alone, continued)
        )
        largest = abs(first[np.isfinite(first)]).max(initial=0)
        tolerance = largest * _tolerance_of(self._find_model())
        if not np.allclose(first, second, rtol=0, atol=tolerance, equal_nan=True):
            raise ConfigError(
                f"model must be causal: the logits of {_name_of(self._find_model())} at a position "
                "depend on later tokens"
            )
        if not np.isnan(first).any():
            is_probability = (first >= 0).all() and (abs(first.sum(axis=-1) - 1) < 1e-2).all()
            self.has_probabilities = bool(is_probability)
            self._examined.add((len(text), room))

    def _outputs(
        self, rows: np.ndarray, source: Any
    ) -> Annotated[np.ndarray, "float32 (batch, length, vocab_size)"]:
        """Returns the model's outputs for token ids."""
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
        return ops.convert_to_numpy(ops.cast(outputs, "float32"))

    def _call(self, model: Any, token_ids: Tensor, source: Any) -> Any:
        if not isinstance(source, Mapping):
            return model(token_ids, *source)
        if isinstance(model, keras.Function):
            (name,) = {tensor.name for tensor in model.inputs} - set(source)
            return model({**source, name: token_ids})
        return model(token_ids, **source)

    def _converted(self, source: Any) -> Any:
        """Returns the source as a dict from input names to tensors, or as a tuple of tensors."""
        model = self._find_model()
        inputs = model.inputs if isinstance(model, keras.Function) else []
        if len(inputs) > 1:
            names = [tensor.name for tensor in inputs]
            # Keras accepts a dict only for inputs with names.
            if any(name.startswith("keras_tensor") for name in names):
                raise ConfigError(
                    f"the inputs of {_name_of(model)} must have names, as in "
                    "keras.Input(shape, name='token_ids')"
                )
            given = source if isinstance(source, Mapping) else {"source": source}
            if len(set(names) - set(given)) != 1 or not set(given) <= set(names):
                raise ConfigError(
                    "source must be a dict from names to arrays, for all inputs but the one for "
                    f"the token ids; {_name_of(model)} has the inputs {names}"
                )
            source = given
        elif len(inputs) == 1 and source is not None:
            raise ConfigError(
                f"source must be None, because {_name_of(model)} has only one input; received "
                "a source"
            )
        if isinstance(source, Mapping):
            return {name: ops.convert_to_tensor(value) for name, value in source.items()}
        return () if source is None else (ops.convert_to_tensor(source),)


def _tolerance_of(model: Any) -> float:
    """Returns the relative difference that rounding may cause in the logits."""
    parts = [model, *getattr(model, "layers", [])]
    dtypes = {getattr(part, "compute_dtype", "float32") for part in parts}
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


def _name_of(model: Any) -> str:
    return f"{model.name!r} ({type(model).__name__})"
