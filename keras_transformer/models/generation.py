"""Text from prompts, with any causal model."""

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
from .generator import generator_of, warn_of_full_passes
from .ways_to_decode import decodable_of


def generate(
    model: keras.Model | Decodable[Any],
    prompts: Sequence[Sequence[int]] | Annotated[np.ndarray, "int (batch, length)"],
    source: Any = None,
    *,
    max_new_tokens: int,
    stop_ids: int | Sequence[int] = (),
    padding_id: int | None = 0,
    forbidden_ids: Sequence[int] = (),
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
    """Continues prompts by greedy search, by beam search (`beam_size`), or by sampling
    (`temperature`, `top_k` or `top_p`).

    The model may be any causal Keras model from token ids to logits or probabilities (batch,
    length, vocab_size). The tokens are those of `model(token_ids)`, computed in one of two ways:

    - Step by step: each position is computed once, and attention reads earlier positions from
      caches of keys and values. This serves a `Transformer`, and functional and sequential models
      whose layers between the prompt and the logits are all known: `DecoderLayer` and `Decoder`;
      `EncoderLayer`, `Encoder`, `MultiHeadAttention` and Keras' own attention with
      `use_causal_mask=True`; embeddings; layers and element-wise operations that treat each
      position by itself; and such models inside the model. Layers that read only the source can be
      of any kind, because they are computed only once. An object with a method `start_decoding`
      brings steps of its own, see `keras_transformer.decoding.Decodable`.
    - By full passes: each step calls the model for all tokens so far. This serves every other
      model, such as a subclassed one, or one with a recurrent layer or with a layer of your own
      that does not say how to compute a step (see below), and any model that masks a token as
      padding which is in a prompt or may be generated. A warning names the reason. The model is
      tried with other tokens after a prompt, and refused if they change its logits.

    A layer of your own is computed step by step if the class that defines its `call` says how:

    - A layer that attends to other positions has the methods `init_cache` and `step` and the
      property `needs_position_ids`, as `DecoderLayer` has. Its cache is a nest of tensors with the
      positions on the third axis.
    - A layer that treats each position by itself has the class attribute
      `is_position_wise = True`.

    Prompts of different lengths are computed in one batch, each as if it were alone. A text ends
    where no token may follow.

    On TensorFlow the search is compiled once for each set of options, on JAX once for each set of
    options, batch size, shape of the source, and length of the longest prompt, rounded up to a
    multiple of 32. For full passes, both compile for each exact shape. PyTorch runs the search as
    it is. Other values of temperature, top_p, repetition_penalty and seed, and new weights, need no
    new compilation.

    Args:
        model: keras.Model, or an object with `start_decoding`.
        prompts: list of lists of ints, or int (batch, length). Token ids that each result
            continues, at least one each; an array is padded with `padding_id` on either side. With
            a `Transformer` they begin with the start token.
        source: array, list of lists of ints, or dict of them. The source sequences, one for each
            prompt. A list of lists is padded with `padding_id`. If the model has several inputs
            besides the prompt, pass a dict from their names. The prompt is the input that the
            causal attention reads. A model that is not functional is called with the sources as
            further arguments. Defaults to None.
        max_new_tokens: int. The most tokens that continue a prompt; at most 1,000,000.
        stop_ids: int or sequence of ints. The tokens that end a text. Defaults to none.
        padding_id: int or None. The token id that pads prompts and results; it is not generated.
            None if there is none. Defaults to 0.
        forbidden_ids: sequence of ints. Tokens that are not generated. Defaults to none.
        beam_size: int. Hypotheses of beam search, at most 1,000. Defaults to 1: greedy search.
        length_penalty: float. For beam search: 0 ranks by probability, more favours longer texts;
            at most 5. Defaults to 0.
        temperature: float or None. For sampling: below 1 for more probable tokens, above 1 for more
            variety. Defaults to None: 1.
        top_k: int or None. For sampling: only so many of the most probable tokens are drawn.
            Defaults to None: all.
        top_p: float or None. For sampling: only the most probable tokens that together have this
            probability are drawn, see `keras_transformer.decoding.sample`. Defaults to None: all.
        repetition_penalty: float. Values above 1 make tokens that already occur in the prompt or
            the new text less probable, see `keras_transformer.decoding.Constraints`; 0.01 to 100.
            Defaults to 1.
        no_repeat_ngram_size: int. No n-gram of this size, at most 100, occurs twice, in prompt and
            text together. Defaults to 0: n-grams may be repeated.
        min_new_tokens: int. No text ends before it has this many new tokens, including the stop
            token. Defaults to 0.
        logits_processor: callable or None. `logits_processor(token_ids, logits, position)` returns
            the logits of the next tokens in place of those of the model, before all other options,
            see `keras_transformer.decoding.LogitsProcessor` for the shapes. It is compiled with the
            search: pass the same function to every call. Defaults to None.
        seed: int or None. For sampling: the same seed gives the same text, on every backend and in
            any batch. Defaults to None: from Keras' global seed.

    Returns:
        `Generated`: new tokens, their numbers and scores, as NumPy arrays.

    Raises:
        ConfigError: An argument breaks its rule, or the model is not causal, or does not return
            logits.

    Warns:
        UserWarning: All positions are computed for each new token. Once for each model.

    Example:
        >>> token_ids = keras.Input((None,), dtype="int32")
        >>> hidden = PositionalEmbedding(vocab_size=100, d_model=32)(token_ids)
        >>> hidden = DecoderLayer(num_heads=2, d_ff=64, norm_first=True)(hidden)
        >>> model = keras.Model(token_ids, keras.layers.Dense(100)(hidden))
        >>> generated = generate(model, [[5, 6, 7], [8]], max_new_tokens=4, top_p=0.9, seed=1)
        >>> generated.token_ids.shape
        (2, 4)
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
    """Returns the step function of a model that `generate` takes, for any search, and the state for
    its first call.

    Args:
        model: as for `generate`. Full passes try the model with the prefix, unless a graph is being
            made, whose values are not known: then a model that is not functional must return
            logits, and must be causal.
        source: the other input of a model with a source, or a dict of such inputs, or None.
        beam_size: int. Hypotheses per sequence. Defaults to 1.
        max_length: int or int scalar. Tokens after the prefix for which caches have room. Defaults
            to None: caches grow with every step.
        prefix: int (batch, prefix length). The tokens before position 0; shorter ones begin with
            negative ids. A model without a source needs it, if only of length 0: it says how many
            sequences there are.

    Raises:
        ConfigError: As for `generate`.

    Example:
        A sampler of KerasHub calls `next(prompt, cache, index)` for the logits of position `index`.
        This adapter lets it use a model without a source. The first `length` tokens of each prompt
        are given:

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
        warn_of_full_passes(model, decodable.reason)
        prompts = None if prefix is None else known_values(prefix)
        tensors = [] if source is None else tree.flatten(source)
        is_known = all(known_values(tensor) is not None for tensor in tensors)
        if prompts is not None and is_known:
            # One position more than the prefix is the least that a search computes.
            room = max_length + 1 if isinstance(max_length, int) else 2
            decodable.examine(prompts.astype("int32"), source, room)
    return decodable.start_decoding(source, beam_size, max_length, prefix)
