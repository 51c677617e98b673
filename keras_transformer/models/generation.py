"""Generates text from prompts with any causal model."""

from collections.abc import Sequence
from typing import Annotated, Any

import keras
import numpy as np
from keras import tree

from ..decoding import Decodable, LogitsProcessor, Step
from ..masks import known_values
from ..tensors import Dimension, Tensor
from .full_pass_decoding import FullPassDecoder
from .generated import Generated
from .generation_request import make_request
from .generator import decodable_of, generator_of


def generate(
    model: keras.Model | Decodable[Any],
    prompts: Sequence[Sequence[int]] | Annotated[np.ndarray, "int (batch, length)"],
    source: Any = None,
    *,
    max_new_tokens: int,
    stop_ids: int | Sequence[int] = (),
    padding_id: int | None = 0,
    forbidden_ids: int | Sequence[int] = (),
    beam_size: int = 1,
    length_penalty: float = 0.0,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
    logits_processor: LogitsProcessor | None = None,
    seed: int | None = None,
) -> Generated:
    """Continues prompts with greedy search, beam search or sampling.

    For beam search, pass `beam_size`. For sampling, pass `temperature`, `top_k` or `top_p`;
    `temperature=1` alone samples from all tokens. Otherwise, the search is greedy.

    A `LanguageModel`, a `Transformer` and any other object with a `start_decoding` method (see
    `keras_transformer.decoding.Decodable`) compute each position once and keep keys and values in
    caches; any other causal Keras model from token ids to logits or probabilities (batch, length,
    vocab_size) is called with all tokens at each step, which takes much longer for long texts.

    Prompts of different lengths are processed in one batch, and do not affect each other. A text
    ends early if every next token is forbidden.

    Args:
        model: `keras.Model`, or an object with a `start_decoding` method. If it has an attribute
            `padding_id`, this token must not be in a prompt, and is never generated.
        prompts: list of lists of ints or array. The prompts to continue, as token ids for the input
            that the decoder's causal attention reads. Each prompt has at least one token. In an
            array (batch, length), shorter prompts are padded with `padding_id`, on the left or on
            the right. The prompts of a `Transformer` begin with the start token.
        source: array, list of lists of ints, dict or None. The source sequences, one for each
            prompt. A list of lists is padded with `padding_id`. If the model has several other
            inputs, pass a dict from their names to their values. A model that is not functional
            receives them as keyword arguments. Defaults to None.
        max_new_tokens: int. Maximum number of new tokens for each prompt, at most 1,000,000.
        stop_ids: int or sequence of ints. Tokens that end a text. Defaults to none.
        padding_id: int or None. The token that pads prompts and results. It is never generated.
            None means that there is no such token. Defaults to 0.
        forbidden_ids: int or sequence of ints. Tokens that are never generated. Defaults to none.
        beam_size: int. Number of hypotheses in beam search, at most 1,000. Must be 1 for sampling.
            Defaults to 1: no beam search.
        length_penalty: float. For beam search: with 0, texts are ranked by their probability;
            larger values (up to 5) favor longer texts. Defaults to 0.
        temperature: float or None. For sampling: divisor of the logits. Values below 1 favor
            probable tokens, and values above 1 give more variety. Defaults to None, which means 1
            if `top_k` or `top_p` is given.
        top_k: int or None. For sampling: the next token is drawn from the k most probable tokens.
            Defaults to None: all tokens.
        top_p: float or None. For sampling: the next token is drawn from the smallest set of most
            probable tokens that together have at least this probability. It is applied after
            `top_k`, to the probabilities among the remaining tokens. Defaults to None: all tokens.
        repetition_penalty: float. Penalty from 0.01 to 100. Values above 1 make tokens that already
            occur in the prompt or the new text less probable. See
            `keras_transformer.decoding.Constraints`. Defaults to 1: no penalty.
        no_repeat_ngram_size: int. Size, at most 100, of n-grams that may not be repeated. A token
            that would repeat an n-gram of the prompt or of the new text is not generated. Defaults
            to 0: n-grams may be repeated.
        min_new_tokens: int. Minimum number of new tokens, including the stop token. Defaults to 0.
        logits_processor: callable or None. `logits_processor(token_ids, logits, position)` returns
            the new logits of the next tokens. It is called before all other options are applied.
            See `keras_transformer.decoding.LogitsProcessor` for the shapes. It is compiled with the
            search, so pass the same function in every call. Defaults to None.
        seed: int or None. For sampling: calls with the same seed return the same tokens, on every
            backend. The random numbers for a prompt depend on its index, but not on the other
            prompts. Must be None without sampling. Defaults to None: a seed from Keras' global seed
            generator.

    Returns:
        A `Generated`, a named tuple of NumPy arrays: `token_ids` of shape (batch, max_new_tokens),
        the new tokens with the stop token, followed by padding; `lengths` of shape (batch,), the
        numbers of new tokens; and `scores` of shape (batch,), their log probabilities.

    Raises:
        ConfigError: An argument is invalid, the model is not causal, or it does not return logits
            or probabilities.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=100, d_model=32)
        >>> model = LanguageModel(embedding, Decoder(num_layers=2, num_heads=2, d_ff=64))
        >>> generated = generate(model, [[5, 6, 7], [8]], max_new_tokens=4, top_p=0.9, seed=1)
        >>> generated.token_ids.shape
        (2, 4)

    Note:
        TensorFlow compiles the search once for each set of options. JAX compiles it once for each
        set of options, batch size, shape of the source, and length of the longest prompt, rounded
        up to a multiple of 32. For full passes, both compile it for each exact shape. PyTorch does
        not compile. New weights, and other values of `temperature`, `top_p`, `repetition_penalty`
        and `seed`, do not require another compilation.
    """
    request = make_request(
        prompts=prompts,
        source=source,
        max_new_tokens=max_new_tokens,
        stop_ids=stop_ids,
        padding_id=padding_id,
        forbidden_ids=forbidden_ids,
        beam_size=beam_size,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
        min_new_tokens=min_new_tokens,
        logits_processor=logits_processor,
        seed=seed,
    )
    hypotheses = generator_of(model).search(request)
    lengths = hypotheses.lengths[:, 0]
    is_token = np.arange(request.max_new_tokens) < lengths[:, None]
    token_ids = np.where(is_token, hypotheses.token_ids[:, 0], padding_id or 0)
    return Generated(token_ids, lengths, hypotheses.scores[:, 0])


def start_decoding(
    model: keras.Model | Decodable[Any],
    source: Any = None,
    beam_size: int = 1,
    max_length: Dimension | None = None,
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
) -> tuple[Step[Any], Any]:
    """Returns the step function of a model for your own search, and the state for its first call.

    Args:
        model: as for `generate`. A model without `start_decoding` is checked with the prefix.
            Inside a compiled function, values are unknown, so nothing is checked; the model must
            then be causal and return logits.
        source: array, dict or None. The model's other input, or a dict of its other inputs.
            Defaults to None.
        beam_size: int. Number of hypotheses for each sequence. Defaults to 1.
        max_length: int, tensor or None. Number of tokens after the prefix that fit into the caches.
            Defaults to None: caches grow in every step.
        prefix: tensor or None. The tokens before position 0, of shape (batch, prefix length).
            Shorter prefixes are padded on the left with negative ids. A model without a source
            needs a prefix, even one of length 0, because its first axis determines the number of
            sequences. Defaults to None: no tokens.

    Returns:
        A tuple of the step function (see `keras_transformer.decoding.Step`) and the state for its
        first call.

    Raises:
        ConfigError: As for `generate`.

    Example:
        A KerasHub sampler calls `next(prompt, cache, index)` for the logits of the token at
        position `index`. This adapter runs such a sampler on a model without a source. The first
        `length` columns of `prompt` contain the prompt, and the other columns are room for new
        tokens:

        >>> def run(sampler, model, prompt, length):
        ...     prefix, room = prompt[:, : length - 1], prompt.shape[1] - length + 1
        ...     step, cache = start_decoding(model, max_length=room, prefix=prefix)
        ...     def next(prompt, cache, index):
        ...         newest = ops.take(prompt, index - 1, axis=1)[:, None]
        ...         parents = ops.zeros_like(newest)  # each hypothesis continues itself
        ...         logits, cache = step(newest, parents, index - length, cache)
        ...         return logits[:, 0], None, cache
        ...     return sampler(next, prompt, cache, index=length)
    """
    decodable = decodable_of(model)
    if isinstance(decodable, FullPassDecoder):
        prompts = None if prefix is None else known_values(prefix)
        tensors = [] if source is None else tree.flatten(source)
        is_known = all(known_values(tensor) is not None for tensor in tensors)
        if prompts is not None and is_known:
            # A search computes at least one position more than the prefix.
            room = max_length + 1 if isinstance(max_length, int) else 2
            decodable.examine(prompts.astype("int32"), source, room)
    return decodable.start_decoding(source, beam_size, max_length, prefix)
