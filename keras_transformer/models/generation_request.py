"""The checked arguments of `generate` and `stream_tokens`."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops

from ..checks import (
    integer,
    non_negative_int,
    require,
)
from ..config import search_options
from ..decoding import Constraints
from ..decoding.logits_processor import LogitsProcessor
from ..errors import ConfigError

# Padding before the tokens of shorter prompts.
NO_TOKEN = -1


class GenerationRequest(NamedTuple):
    """The options and inputs of a search.

    Attributes:
        max_new_tokens: int.
        stop_ids: tokens that end a text.
        beam_size: 1 for greedy search and sampling.
        length_penalty: float, for beam search.
        is_sampled: whether to sample tokens.
        top_k: int or None, for sampling.
        constraints: all constraints except the repetition penalty, which is in `inputs`.
        inputs: arrays that may change without compiling again: "prompts" and, if given, "source",
            "repetition_penalty", "seed", "temperature" and "top_p".
    """

    max_new_tokens: int
    stop_ids: tuple[int, ...]
    beam_size: int
    length_penalty: float
    is_sampled: bool
    top_k: int | None
    constraints: Constraints
    inputs: dict[str, Any]

    @property
    def prompts(self) -> Annotated[np.ndarray, "int32 (batch, length)"]:
        """The prompts, padded on the left with `NO_TOKEN`."""
        return self.inputs["prompts"]

    @property
    def source(self) -> Any:
        """The source as an array, a dict of arrays, or None."""
        return self.inputs.get("source")

    @property
    def compiled_options(self) -> tuple[Any, ...]:
        """A hashable key of all options that a compiled search depends on."""
        processor = self.constraints.logits_processor
        # A processor is not always hashable, but its id is unique, because the search keeps it
        # alive.
        constraints = self.constraints._replace(logits_processor=None)
        options = self._replace(constraints=constraints, inputs={})
        return (*options[:-1], None if processor is None else id(processor))


def make_request(
    *,
    prompts: Any,
    source: Any,
    max_new_tokens: int,
    stop_ids: Any,
    padding_id: int | None,
    forbidden_ids: Any,
    beam_size: int,
    length_penalty: float,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    repetition_penalty: float,
    no_repeat_ngram_size: int,
    min_new_tokens: int,
    logits_processor: LogitsProcessor | None,
    seed: int | None,
) -> GenerationRequest:
    """Checks the arguments, which `generate` documents, and returns a request.

    Raises:
        ConfigError: An argument is invalid.
    """
    max_new_tokens = search_options.most_new_tokens("max_new_tokens", max_new_tokens)
    beam_size = search_options.beam_size("beam_size", beam_size)
    length_penalty = float(search_options.length_penalty("length_penalty", length_penalty))
    temperature = search_options.temperature("temperature", temperature, optional=True)
    top_k = search_options.top_k("top_k", top_k)
    top_p = search_options.top_p("top_p", top_p)
    repetition_penalty = search_options.repetition_penalty("repetition_penalty", repetition_penalty)
    seed = integer("seed", seed, optional=True)
    forbidden_ids = token_ids("forbidden_ids", forbidden_ids)
    if padding_id is not None:
        forbidden_ids = (non_negative_int("padding_id", padding_id), *forbidden_ids)
    constraints = Constraints(
        no_repeat_ngram_size=search_options.no_repeat_ngram_size(
            "no_repeat_ngram_size", no_repeat_ngram_size
        ),
        min_length=search_options.number_of_tokens("min_new_tokens", min_new_tokens),
        forbidden_ids=forbidden_ids,
        logits_processor=logits_processor,
    )
    constraints.check()

    inputs: dict[str, Any] = {"prompts": _left_padded(prompts, padding_id)}
    if source is not None:
        inputs["source"] = _source_arrays(source, padding_id)
    if repetition_penalty != 1:
        inputs["repetition_penalty"] = np.float32(repetition_penalty)
    is_sampled = temperature is not None or top_k is not None or top_p is not None
    if is_sampled:
        require(beam_size == 1, "beam_size", "1 with temperature, top_k or top_p", beam_size)
        if seed is None:
            seed = int(ops.convert_to_numpy(keras.random.randint((), 0, 2**31 - 1)))
        inputs["seed"] = np.array(seed % 2**32, "uint32").astype("int32")
        inputs["temperature"] = np.float32(1 if temperature is None else temperature)
        if top_p is not None:
            inputs["top_p"] = np.float32(top_p)
    else:
        require(seed is None, "seed", "None without temperature, top_k or top_p", seed)
    return GenerationRequest(
        max_new_tokens,
        token_ids("stop_ids", stop_ids),
        beam_size,
        length_penalty,
        is_sampled,
        top_k,
        constraints,
        inputs,
    )


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Returns a tuple of token ids from a token id or a list of token ids."""
    try:
        ids = np.atleast_1d(np.asarray(value if np.ndim(value) else [value]))
    except ValueError:
        ids = np.array("")
    is_valid = ids.size == 0 or (ids.ndim == 1 and ids.dtype.kind in "iu" and ids.min() >= 0)
    require(bool(is_valid), name, "a token id, or a list of token ids", value)
    return tuple(ids.tolist())


def rows_of(name: str, lists: Any) -> list[np.ndarray]:
    """Returns the rows of a list of lists of token ids, or of an array."""
    if hasattr(lists, "shape"):
        lists = ops.convert_to_numpy(lists)
    try:
        rows = [np.asarray(row) for row in lists]
    except (TypeError, ValueError):
        rows = [np.array("")]
    if not all(row.ndim == 1 and (row.size == 0 or row.dtype.kind in "iu") for row in rows):
        raise ConfigError(
            f"{name} must be a list of lists of token ids, or an integer array (batch, length)"
        )
    return rows


def _left_padded(
    prompts: Any, padding_id: int | None
) -> Annotated[np.ndarray, "int32 (batch, length)"]:
    """Returns prompts, padded on the left with `NO_TOKEN`."""
    rows = rows_of("prompts", prompts)
    if padding_id is not None and hasattr(prompts, "shape"):
        rows = [_without_padding(row, padding_id) for row in rows]
    for index, row in enumerate(rows):
        require(len(row) > 0, f"prompts[{index}]", "at least one token", row.tolist())
        require(int(row.min()) >= 0, f"prompts[{index}]", "token ids of at least 0", row.tolist())
    require(len(rows) > 0, "prompts", "at least one", prompts)
    length = max(map(len, rows))
    return np.array([[NO_TOKEN] * (length - len(row)) + row.tolist() for row in rows], "int32")


def _without_padding(row: np.ndarray, padding_id: int) -> np.ndarray:
    """Returns a row without padding at its start and end."""
    (places,) = np.nonzero(row != padding_id)
    return row[places[0] : places[-1] + 1] if len(places) else row[:0]


def _source_arrays(source: Any, padding_id: int | None) -> Any:
    if isinstance(source, Mapping):
        return {name: _source_arrays(value, padding_id) for name, value in source.items()}
    if hasattr(source, "shape"):
        return ops.convert_to_numpy(source)
    rows = rows_of("source", source)
    length = max(map(len, rows), default=0)
    padded = [row.tolist() + [padding_id or 0] * (length - len(row)) for row in rows]
    return np.array(padded, "int32").reshape(len(rows), length)
