"""Text from prompts, with any model that is made of our layers."""

import weakref
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..checks import require
from ..decoding import Constraints, Decodable, Hypotheses, Step, beam_search, greedy_search, sample
from ..errors import ConfigError
from ..rules import Count, NonNegative, Positive, Share, Size, checked
from ..tensors import Dimension, Tensor
from .functional_decoding import FunctionalDecoder

# JAX compiles for each shape: lengths of prompts are rounded up to a multiple of this.
_LENGTH_BUCKET = 32
# Fills the places before a shorter prompt.
_NO_TOKEN = -1


class Generated(NamedTuple):
    """What `generate` returns.

    Attributes:
        token_ids: the new tokens of each prompt, with the stop token; after it, the padding id, or
            0 if that is None.
        lengths: the numbers of new tokens, with the stop token.
        scores: log probabilities of the new tokens, which are those of the search, see
            `greedy_search`, `beam_search` and `sample` in `keras_transformer.decoding`.
    """

    token_ids: Annotated[np.ndarray, "int32 (batch, max_new_tokens)"]
    lengths: Annotated[np.ndarray, "int32 (batch,)"]
    scores: Annotated[np.ndarray, "float32 (batch,)"]


@checked
def generate(
    model: keras.Model | Decodable[Any],
    prompts: Sequence[Sequence[int]] | Annotated[np.ndarray, "int (batch, length)"],
    source: Any = None,
    *,
    max_new_tokens: Size,
    stop_ids: int | Sequence[int] = (),
    padding_id: Count | None = 0,
    forbidden_ids: Sequence[int] = (),
    beam_size: Size = 1,
    length_penalty: NonNegative = 0.0,
    temperature: Positive | None = None,
    top_k: Size | None = None,
    top_p: Share | None = None,
    repetition_penalty: Positive = 1.0,
    no_repeat_ngram_size: Count = 0,
    min_new_tokens: Count = 0,
    seed: int | None = None,
) -> Generated:
    """Continues prompts: by greedy search, by beam search or, if temperature, top_k or top_p is
    given, by sampling.

    The model is one of these:

    - A functional or sequential model from token ids to logits or probabilities, made of
      `PositionalEmbedding` or `keras.layers.Embedding`, `PositionalEncoding`, `DecoderLayer` or
      `Decoder`, and of layers and element-wise operations that treat each position by itself. The
      decoder may attend to a source, which anything may compute. `EncoderLayer`, `Encoder`, and
      self-attention, ours or Keras', take its place with `use_causal_mask=True`.
    - A `Transformer`.
    - Any object with a method `start_decoding`, see `keras_transformer.decoding.Decodable`.

    Prompts of different lengths are computed in one batch, each as if it were alone. Each position
    is computed once: all of the prompts in the first step, then one position at a time, from caches
    of keys and values.

    On TensorFlow the search is compiled once for each set of options, on JAX once for each set of
    options, batch size, shape of the source, and length of the longest prompt, rounded up to a
    multiple of 32. PyTorch runs it as it is. Other values of temperature, top_p, repetition_penalty
    and seed, and new weights, need no new compilation.

    Args:
        model: what computes the probabilities.
        prompts: token ids that each result continues, at least one each: a list of lists, or an
            array padded with `padding_id` on either side. With a `Transformer` they begin with the
            start token.
        source: what a model with a source is given besides the target, an array with a row per
            prompt; a list of lists is padded with `padding_id`. If that is several inputs, a dict
            from their names.
        max_new_tokens: the most tokens that continue a prompt.
        stop_ids: the token, or the tokens, that end a text.
        padding_id: the token id that pads prompts and results; it is not generated. None if there
            is none. Defaults to 0.
        forbidden_ids: tokens that are not generated. Defaults to none.
        beam_size: hypotheses of beam search. Defaults to 1: greedy search.
        length_penalty: of beam search; 0 ranks by probability, more favours longer texts. Defaults
            to 0.
        temperature: of sampling: below 1 for more probable tokens, above 1 for more variety.
        top_k: of sampling: how many of the most probable tokens are kept, see `sample`.
        top_p: of sampling: the probability that is kept, see `sample`.
        repetition_penalty: above 1 to make tokens less probable that the prompt or the new text
            has, see `Constraints`. Defaults to 1.
        no_repeat_ngram_size: no n-gram of this size occurs twice, those of the prompt included.
            Defaults to 0: n-grams may be repeated.
        min_new_tokens: no text ends before it has this many new tokens, including the stop token.
            Defaults to 0.
        seed: of sampling. The same seed gives the same text, on every backend and in any batch.
            Defaults to None: from Keras' global seed.

    Returns:
        `Generated`: new tokens, their numbers and scores, as NumPy arrays.

    Raises:
        ConfigError: An argument breaks its rule, or the model cannot be computed one position at a
            time.

    Example:
        >>> token_ids = keras.Input((None,), dtype="int32")
        >>> hidden = PositionalEmbedding(vocab_size=100, d_model=32)(token_ids)
        >>> hidden = DecoderLayer(num_heads=2, d_ff=64, norm_first=True)(hidden)
        >>> model = keras.Model(token_ids, keras.layers.Dense(100)(hidden))
        >>> generated = generate(model, [[5, 6, 7], [8]], max_new_tokens=4, top_p=0.9, seed=1)
        >>> generated.token_ids.shape
        (2, 4)
    """
    stop_ids = _token_ids("stop_ids", stop_ids)
    forbidden_ids = _token_ids("forbidden_ids", forbidden_ids)
    if padding_id is not None:
        forbidden_ids = (padding_id, *forbidden_ids)
    constraints = Constraints(1.0, no_repeat_ngram_size, min_new_tokens, forbidden_ids)

    # A search is compiled once for its options; the inputs are arrays, which may change between
    # calls.
    options: dict[str, Any] = dict(
        max_length=max_new_tokens, end_id=stop_ids, constraints=constraints
    )
    inputs: dict[str, Any] = dict(prompts=_left_padded(prompts, padding_id))
    if source is not None:
        inputs["source"] = _source_arrays(source, padding_id)
    search: Callable[..., Hypotheses]
    if temperature is not None or top_k is not None or top_p is not None:
        require(beam_size == 1, "beam_size", "1 with temperature, top_k or top_p", beam_size)
        seed = (
            int(ops.convert_to_numpy(keras.random.randint((), 0, 2**31 - 1)))
            if seed is None
            else seed
        )
        search, options["top_k"] = sample, top_k
        inputs["seed"] = np.array(seed % 2**32, "uint32").astype("int32")
        inputs["temperature"] = np.float32(1 if temperature is None else temperature)
        if top_p is not None:
            inputs["top_p"] = np.float32(top_p)
    else:
        require(seed is None, "seed", "None without temperature, top_k or top_p", seed)
        search = greedy_search
        if beam_size > 1:
            search, options = (
                beam_search,
                options | dict(beam_size=beam_size, length_penalty=float(length_penalty)),
            )
    if repetition_penalty != 1:
        inputs["repetition_penalty"] = np.float32(repetition_penalty)
    generator = _GENERATORS.get(model)
    if generator is None:
        generator = _GENERATORS[model] = _Generator(model)
    hypotheses = Hypotheses(*map(ops.convert_to_numpy, generator.generate(search, options, inputs)))
    lengths = hypotheses.lengths[:, 0]
    is_token = np.arange(max_new_tokens) < lengths[:, None]
    token_ids = np.where(is_token, hypotheses.token_ids[:, 0], padding_id or 0)
    return Generated(token_ids, lengths, hypotheses.scores[:, 0])


def start_decoding(
    model: keras.Model | Decodable[Any],
    source: Any = None,
    beam_size: int = 1,
    max_length: Dimension | None = None,
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
) -> tuple[Step[Any], Any]:
    """Returns the step function of a model that `generate` takes, for any search, and the state for
    its first call.

    Args:
        model: as for `generate`.
        source: what a model with a source is given besides the target, or None.
        beam_size: hypotheses per sequence. Defaults to 1.
        max_length: tokens after the prefix for which caches have room. Defaults to None: caches
            grow with every step.
        prefix: the tokens before position 0; shorter ones begin with negative ids. A model without
            a source needs it, if only of length 0: it says how many sequences there are.

    Raises:
        ConfigError: The model cannot be computed one position at a time.

    Example:
        The samplers of KerasHub ask for the token at `index` of their prompts, in which the first
        `length` tokens are given. The step function is an adapter away:

        >>> def run(sampler, model, prompt, length):
        ...     prefix = prompt[:, : length - 1]
        ...     step, cache = start_decoding(model, max_length=prompt.shape[1] - length + 1, prefix=prefix)
        ...     def next(prompt, cache, index):
        ...         newest = ops.take(prompt, index - 1, axis=1)[:, None]
        ...         logits, cache = step(newest, ops.zeros_like(newest), index - length, cache)
        ...         return logits[:, 0], None, cache
        ...     return sampler(next, prompt, cache, index=length)
    """
    return _decodable(model).start_decoding(source, beam_size, max_length, prefix)


class _Generator:
    """The compiled searches of a model, which it does not keep alive."""

    def __init__(self, model: Any) -> None:
        decodable = _decodable(model)
        # Both embeddings of a `Transformer` have a length if their positions are learned.
        embedding = getattr(decodable, "source_embedding", None)
        with_positions = decodable if isinstance(decodable, FunctionalDecoder) else embedding
        self._learned_positions = getattr(with_positions, "max_length", None)
        target_size, source_size = (
            getattr(part, "vocab_size", None) for part in (decodable, embedding)
        )
        self._vocab_sizes = {"prompts": target_size, "stop_ids": target_size, "source": source_size}
        self._find_decodable: Callable[[], Any] = (
            weakref.ref(decodable) if decodable is model else lambda: decodable
        )
        self._find_model = weakref.ref(model)
        self._compiled: dict[Any, Callable[[dict[str, Any]], Hypotheses]] = {}

    def generate(
        self, search: Callable[..., Hypotheses], options: dict[str, Any], inputs: dict[str, Any]
    ) -> Hypotheses:
        """Runs a search, which is compiled if it is the first one with these options.

        Args:
            search: `greedy_search`, `beam_search` or `sample`.
            options: arguments of the search that are compiled in; they can be hashed.
            inputs: NumPy arrays: prompts, the source, and arguments of the search that may change
                between calls.
        """
        num_prompts, length = inputs["prompts"].shape
        for array in tree.flatten(inputs.get("source", ())):
            rule = f"an array with a row for each of {num_prompts} prompts"
            require(
                np.shape(array)[:1] == (num_prompts,), "source", rule, f"shape {np.shape(array)}"
            )
        limit = self._learned_positions
        if self._vocab_sizes["source"] is not None and "source" in inputs:
            longest = max(map(len, _rows("source", inputs["source"])), default=0)
            require(
                limit is None or longest <= limit,
                "source",
                f"at most {limit} tokens long",
                f"{longest} tokens",
            )
            require(
                np.min(inputs["source"], initial=0) >= 0,
                "source",
                "token ids of at least 0",
                inputs["source"],
            )
        for name, vocab_size in self._vocab_sizes.items():
            token_ids = options["end_id"] if name == "stop_ids" else inputs.get(name, ())
            if vocab_size is not None and np.size(token_ids):
                largest = int(np.max(token_ids))
                require(largest < vocab_size, name, f"token ids below {vocab_size}", largest)
        num_positions = length + options["max_length"] - 1
        if limit is not None and num_positions > limit:
            raise ConfigError(
                f"the longest prompt and max_new_tokens={options['max_length']} need "
                f"{num_positions} positions; "
                f"the model has max_length={limit}"
            )
        # Quantization and LoRA give a model other variables.
        variables = list(getattr(self._find_model(), "variables", []))
        shapes = tree.map_structure(lambda array: (len(array.shape), str(array.dtype)), inputs)
        key = (search, *options.values(), tuple(map(id, variables)), str(shapes))
        if keras.backend.backend() == "jax":
            num_missing = -inputs["prompts"].shape[1] % _LENGTH_BUCKET
            prompts = np.pad(
                inputs["prompts"], ((0, 0), (num_missing, 0)), constant_values=_NO_TOKEN
            )
            inputs = inputs | {"prompts": prompts}
        if key not in self._compiled:
            self._compiled[key] = _compiled(
                lambda inputs: self._search(search, options, **inputs), variables, inputs
            )
        return self._compiled[key](inputs)

    def _search(
        self,
        search: Callable[..., Hypotheses],
        options: dict[str, Any],
        prompts: Tensor,  # int32 (batch, length)
        source: Any = None,
        repetition_penalty: float | Tensor = 1.0,
        **inputs: Tensor,
    ) -> Hypotheses:
        constraints = options["constraints"]._replace(repetition_penalty=repetition_penalty)
        max_length, beam_size = options["max_length"], options.get("beam_size", 1)
        step, state = self._find_decodable().start_decoding(
            source, beam_size, max_length, prompts[:, :-1]
        )
        max_lengths = ops.full_like(prompts[:, 0], max_length)
        return search(
            step,
            state,
            max_lengths,
            start_id=prompts,
            **options | {"constraints": constraints},
            **inputs,
        )


# A model's weights may change between two calls; its graph cannot.
_GENERATORS: "weakref.WeakKeyDictionary[Any, _Generator]" = weakref.WeakKeyDictionary()


def _compiled(
    function: Callable[[dict[str, Any]], Hypotheses],
    variables: list[keras.Variable],
    inputs: dict[str, Any],
) -> Callable[[dict[str, Any]], Hypotheses]:
    """Returns a function that the backend compiles when it is first called; PyTorch runs it as it
    is.

    TensorFlow compiles it once, for batches and lengths of any size; JAX does so for each shape.
    The values of the variables, which the function reads, may change between calls; ranks and types
    of the inputs may not.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def spec(array: np.ndarray) -> tf.TensorSpec:
            # Only batch and length may vary; other sizes, such as the width of features, are fixed.
            return tf.TensorSpec(
                [None] * min(len(array.shape), 2) + list(array.shape[2:]), array.dtype
            )

        return tf.function(
            function, input_signature=[tree.map_structure(spec, inputs)], autograph=False
        )
    if backend == "jax":
        import jax

        @jax.jit
        def with_values(values: list[Any], inputs: dict[str, Any]) -> Hypotheses:
            # Weights are arguments, because JAX would compile closed-over weights in as constants.
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(inputs)

        return lambda inputs: with_values([variable.value for variable in variables], inputs)
    if backend == "torch":
        import torch

        def without_gradients(inputs: dict[str, Any]) -> Hypotheses:
            with torch.no_grad():
                return function(tree.map_structure(ops.convert_to_tensor, inputs))

        return without_gradients
    return function


def _decodable(model: Any) -> Decodable[Any]:
    if hasattr(model, "start_decoding"):
        return model
    if isinstance(model, (keras.Function, keras.Sequential)) and getattr(model, "built", True):
        return FunctionalDecoder(model)
    raise ConfigError(
        "model must be a functional or sequential model that is built, or have a method "
        "start_decoding(source, beam_size, max_length, prefix), see "
        "keras_transformer.decoding.Decodable; "
        f"received {type(model).__name__}"
    )


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    try:
        ids = np.atleast_1d(np.asarray(value if np.ndim(value) else [value]))
    except ValueError:
        ids = np.array("")
    is_valid = ids.size == 0 or (ids.ndim == 1 and ids.dtype.kind in "iu" and ids.min() >= 0)
    require(bool(is_valid), name, "a token id, or a list of token ids", value)
    return tuple(ids.tolist())


def _left_padded(
    prompts: Any, padding_id: int | None
) -> Annotated[np.ndarray, "int32 (batch, length)"]:
    """Returns prompts that end together, with `_NO_TOKEN` before the shorter ones."""
    rows = _rows("prompts", prompts)
    if padding_id is not None and hasattr(prompts, "shape"):
        places = [np.flatnonzero(row != padding_id) for row in rows]
        rows = [
            row[at[0] : at[-1] + 1] if len(at) else row[:0]
            for row, at in zip(rows, places, strict=True)
        ]
    for index, row in enumerate(rows):
        require(len(row) > 0, f"prompts[{index}]", "at least one token", row.tolist())
        require(int(row.min()) >= 0, f"prompts[{index}]", "token ids of at least 0", row.tolist())
    require(len(rows) > 0, "prompts", "at least one", prompts)
    length = max(map(len, rows))
    return np.array([[_NO_TOKEN] * (length - len(row)) + row.tolist() for row in rows], "int32")


def _rows(name: str, lists: Any) -> list[np.ndarray]:
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


def _source_arrays(source: Any, padding_id: int | None) -> Any:
    if isinstance(source, dict):
        return {name: _source_arrays(value, padding_id) for name, value in source.items()}
    if hasattr(source, "shape"):
        return ops.convert_to_numpy(source)
    rows = _rows("source", source)
    length = max(map(len, rows), default=0)
    padded = [row.tolist() + [padding_id or 0] * (length - len(row)) for row in rows]
    return np.array(padded, "int32").reshape(len(rows), length)
