"""Runs searches with a model, compiled once for each set of options."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..checks import require
from ..decoding import Decodable, Hypotheses, beam_search, greedy_search, sample
from ..decoding.greedy_search import choose_most_probable
from ..decoding.sampling import choose_at_random
from ..decoding.single_hypothesis import Choose, SingleHypothesisSearch
from ..errors import ConfigError
from ..tensors import Tensor
from .compilation import compiled, compiled_steps
from .full_pass_decoding import FullPassDecoder
from .generation_request import NO_TOKEN, GenerationRequest, rows_of
from .transformer import Transformer

# JAX compiles for each shape, so prompt lengths are rounded up to a multiple of this number.
_LENGTH_BUCKET = 32


class _Limits(NamedTuple):
    """Limits on the inputs of a model. A limit that is not known is None.

    Attributes:
        vocab_size: the number of token ids of the target.
        max_length: the number of positions of the target.
        source_vocab_size: the number of token ids of the source.
        source_max_length: the number of positions of the source.
        padding_id: the token that the model masks, so that it must not occur in a target.
    """

    vocab_size: int | None = None
    max_length: int | None = None
    source_vocab_size: int | None = None
    source_max_length: int | None = None
    padding_id: int | None = None

    @classmethod
    def of(cls, model: Any, decodable: Any) -> "_Limits":
        if isinstance(model, Transformer):
            source = model.source_embedding
            target = model.target_embedding
            return cls(
                model.vocab_size,
                target.max_length,
                source.vocab_size,
                source.max_length,
                model.padding_id,
            )
        # Other models may have these attributes.
        return cls(
            getattr(decodable, "vocab_size", None),
            getattr(decodable, "max_length", None),
            padding_id=getattr(decodable, "padding_id", None),
        )

    def apply(self, request: GenerationRequest) -> GenerationRequest:
        """Returns a request that never generates padding.

        Raises:
            ConfigError: The request exceeds the limits.
        """
        for array in tree.flatten(() if request.source is None else request.source):
            num_prompts = len(request.prompts)
            if np.shape(array)[:1] != (num_prompts,):
                raise ConfigError(
                    f"source must be an array with a row for each of {num_prompts} prompts; "
                    f"received source of shape {np.shape(array)}"
                )
        if self.source_vocab_size is not None and request.source is not None:
            self._check_source(request.source)
        _check_token_ids("prompts", request.prompts, self.vocab_size)
        if self.padding_id is not None and (request.prompts == self.padding_id).any():
            raise ConfigError(
                f"prompts must not contain token {self.padding_id}, which the model masks as "
                "padding"
            )
        _check_token_ids("stop_ids", request.stop_ids, self.vocab_size)
        num_positions = request.prompts.shape[1] + request.max_new_tokens - 1
        if self.max_length is not None and num_positions > self.max_length:
            raise ConfigError(
                f"the longest prompt and max_new_tokens={request.max_new_tokens} need "
                f"{num_positions} positions; the model has max_length={self.max_length}"
            )
        if self.padding_id is None:
            return request
        forbidden_ids = (*request.constraints.forbidden_ids, self.padding_id)
        constraints = request.constraints._replace(forbidden_ids=tuple(sorted({*forbidden_ids})))
        return request._replace(constraints=constraints)

    def _check_source(self, source: Any) -> None:
        longest = max((len(row) for row in rows_of("source", source)), default=0)
        limit = self.source_max_length
        if limit is not None and longest > limit:
            raise ConfigError(
                f"source must be at most {limit} tokens long; received source of {longest} tokens"
            )
        is_valid = np.min(source, initial=0) >= 0
        require(is_valid, "source", "token ids of at least 0", source)
        _check_token_ids("source", source, self.source_vocab_size)


def _check_token_ids(name: str, ids: Any, vocab_size: int | None) -> None:
    largest = int(np.max(ids, initial=0))
    is_valid = vocab_size is None or largest < vocab_size
    require(is_valid, name, f"token ids below {vocab_size}", largest)


class Generator:
    """The compiled searches of a model, to which the generator keeps only a weak reference."""

    def __init__(self, model: Any) -> None:
        decodable = decodable_of(model)
        self._limits = _Limits.of(model, decodable)
        self._find_model = weakref.ref(model)
        self._find_decodable: Callable[[], Any] = (
            weakref.ref(decodable) if decodable is model else lambda: decodable
        )
        self._full_passes = decodable if isinstance(decodable, FullPassDecoder) else None
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def search(self, request: GenerationRequest) -> Hypotheses:
        """Returns the best text for each prompt, as NumPy arrays."""
        request = self._limits.apply(request)

        # A compiled function stays in memory, and must not keep these inputs alive.
        options = request._replace(inputs={})

        def search(decodable: Any, inputs: dict[str, Any]) -> Hypotheses:
            return self._search(decodable, options, **inputs)

        run, inputs = self._compiled_function("search", compiled, search, request)
        token_ids, lengths, scores, _ = run(inputs)
        return Hypotheses(*map(ops.convert_to_numpy, (token_ids, lengths, scores)))

    def stream(
        self, request: GenerationRequest, padding_id: int
    ) -> Iterator[Annotated[np.ndarray, "int32 (batch,)"]]:
        """Returns an iterator that yields the new tokens of all texts at each position.

        Args:
            request: for greedy search or sampling.
            padding_id: the token to yield after the end of a text.
        """
        request = self._limits.apply(request)

        # As in `search`.
        options = request._replace(inputs={})

        def prepare(decodable: Any, inputs: dict[str, Any]) -> tuple[Any, Callable[..., Any]]:
            search, choose, state = self._single_hypothesis(decodable, options, **inputs)

            def extend(active: Any, position: Tensor) -> tuple[Any, Any]:
                lengths = active.results.lengths
                active, tokens = search.extend(choose, position, active)
                # A token whose probability is NaN does not belong to the text.
                is_possible = active.results.log_probs > -math.inf
                is_new = ops.logical_and(active.results.lengths > lengths, is_possible)
                tokens = ops.squeeze(ops.where(is_new, tokens, padding_id), 1)
                return active, (tokens, ops.any(is_new), ops.any(active.is_unfinished))

            return search.start(state), extend

        kind = ("stream", padding_id)
        begin, inputs = self._compiled_function(kind, compiled_steps, prepare, request)

        def tokens_of_each_position() -> Iterator[np.ndarray]:
            active, extend = begin(inputs)
            for position in range(request.max_new_tokens):
                active, results = extend(active, ops.convert_to_tensor(position, "int32"))
                tokens, is_any_new, is_any_unfinished = map(ops.convert_to_numpy, results)
                if is_any_new:
                    yield tokens
                if not is_any_unfinished:
                    break

        return tokens_of_each_position()

    def _compiled_function(
        self,
        kind: Any,
        compile: Callable[..., Any],
        function: Callable[..., Any],
        request: GenerationRequest,
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Returns a function that is compiled once, and its inputs.

        Args:
            kind: a hashable key for the kind of function.
            compile: `compiled` or `compiled_steps`.
            function: function that accepts a `Decodable` and the inputs of the request.
            request: the request.
        """
        inputs, full_passes = request.inputs, self._full_passes
        if full_passes is not None:
            # This also builds a model that has not been called yet.
            full_passes.examine(request.prompts, request.source, request.max_new_tokens)
        elif keras.backend.backend() == "jax":
            missing = -request.prompts.shape[1] % _LENGTH_BUCKET
            prompts = np.pad(request.prompts, ((0, 0), (missing, 0)), constant_values=NO_TOKEN)
            inputs = inputs | {"prompts": prompts}
        # Quantization and LoRA change the variables of a model.
        variables = list(getattr(self._find_model(), "variables", []))
        is_fixed = full_passes is not None
        shapes = tree.map_structure(
            lambda array: (array.shape if is_fixed else array.ndim, str(array.dtype)), inputs
        )
        key = (
            kind,
            *request.compiled_options,
            *map(id, variables),
            str(shapes),
            full_passes and full_passes.has_probabilities,
        )
        if key not in self._compiled:
            self._compiled[key] = compile(
                lambda inputs: function(self._find_decodable(), inputs), variables, inputs, is_fixed
            )
        return self._compiled[key], inputs

    def _search(
        self,
        decodable: Any,
        request: GenerationRequest,
        prompts: Tensor,  # int32 (batch, length)
        source: Any = None,
        repetition_penalty: float | Tensor = 1.0,
        **sampling: Any,
    ) -> Hypotheses:
        step, state = decodable.start_decoding(
            source, request.beam_size, request.max_new_tokens, prompts[:, :-1]
        )
        arguments: dict[str, Any] = dict(
            max_lengths=ops.full_like(prompts[:, 0], request.max_new_tokens),
            max_length=request.max_new_tokens,
            start_ids=prompts,
            end_ids=request.stop_ids,
            constraints=request.constraints._replace(repetition_penalty=repetition_penalty),
        )
        if request.is_sampled:
            return sample(step, state, top_k=request.top_k, **sampling, **arguments)
        if request.beam_size == 1:
            return greedy_search(step, state, **arguments)
        return beam_search(
            step,
            state,
            beam_size=request.beam_size,
            length_penalty=request.length_penalty,
            **arguments,
        )

    def _single_hypothesis(
        self,
        decodable: Any,
        request: GenerationRequest,
        prompts: Tensor,  # int32 (batch, length)
        source: Any = None,
        repetition_penalty: float | Tensor = 1.0,
        **sampling: Any,
    ) -> tuple[SingleHypothesisSearch[Any], Choose, Any]:
        """Returns a search for a single hypothesis, a function that chooses tokens, and a state."""
        step, state = decodable.start_decoding(source, 1, request.max_new_tokens, prompts[:, :-1])
        search = SingleHypothesisSearch(
            step,
            ops.full_like(prompts[:, 0], request.max_new_tokens),
            request.max_new_tokens,
            prompts,
            request.stop_ids,
            request.constraints._replace(repetition_penalty=repetition_penalty),
        )
        if not request.is_sampled:
            return search, choose_most_probable, state
        rows = ops.arange(search.batch_size, dtype="int32")
        seed, length = sampling.pop("seed"), request.max_new_tokens
        choose = choose_at_random(seed, rows, length, top_k=request.top_k, **sampling)
        return search, choose, state


# Generators can be reused: between calls, only the weights of a model change, not its graph.
_GENERATORS: "weakref.WeakKeyDictionary[Any, Generator]" = weakref.WeakKeyDictionary()


def generator_of(model: Any) -> Generator:
    """Returns the generator of a model, which exists as long as the model."""
    if model not in _GENERATORS:
        _GENERATORS[model] = Generator(model)
    return _GENERATORS[model]


def decodable_of(model: Any) -> Decodable[Any]:
    """Returns the model itself if it is a `Decodable`, otherwise a `FullPassDecoder`.

    Raises:
        ConfigError: The model is neither a `Decodable` nor a Keras model.
    """
    if hasattr(model, "start_decoding"):
        return model
    if isinstance(model, (keras.Layer, keras.Function)):
        return FullPassDecoder(model)
    raise ConfigError(
        "model must be a Keras model or an object with a method start_decoding; received "
        f"{type(model).__name__}"
    )
