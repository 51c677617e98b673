"""Generates text from prompts, token by token."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import keras
import numpy as np

from ..decoding import Decodable, LogitsProcessor
from .generation_request import make_request
from .generator import generator_of


def stream_tokens(
    model: keras.Model | Decodable[Any],
    prompts: Sequence[Sequence[int]] | Annotated[np.ndarray, "int (batch, length)"],
    source: Any = None,
    *,
    max_new_tokens: int,
    stop_ids: int | Sequence[int] = (),
    padding_id: int | None = 0,
    forbidden_ids: int | Sequence[int] = (),
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
    logits_processor: LogitsProcessor | None = None,
    seed: int | None = None,
) -> Iterator[Annotated[np.ndarray, "int32 (batch,)"]]:
    """Continues prompts with greedy search or sampling, and yields each token once it is known.

    The tokens are the same as those that `generate` returns for the same arguments. Beam search is
    not supported. A single step is compiled, and reused in all calls with the same options.

    Args:
        model: as for `generate`.
        prompts: as for `generate`.
        source: as for `generate`.
        max_new_tokens: as for `generate`.
        stop_ids: as for `generate`.
        padding_id: as for `generate`. For texts that have ended, this id is yielded, or 0 if it is
            None.
        forbidden_ids: as for `generate`.
        temperature: as for `generate`.
        top_k: as for `generate`.
        top_p: as for `generate`.
        repetition_penalty: as for `generate`.
        no_repeat_ngram_size: as for `generate`.
        min_new_tokens: as for `generate`.
        logits_processor: as for `generate`.
        seed: as for `generate`.

    Yields:
        int32 (batch,). The next token of each text, until all texts have ended.

    Raises:
        ConfigError: As for `generate`. It is raised by the call itself, before the first token.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=100, d_model=32)
        >>> model = LanguageModel(embedding, Decoder(num_layers=2, num_heads=2, d_ff=64))
        >>> for tokens in stream_tokens(model, [[5, 6, 7], [8]], max_new_tokens=4):
        ...     print(tokens.shape)
        (2,)
        (2,)
        (2,)
        (2,)
    """
    request = make_request(
        prompts=prompts,
        source=source,
        max_new_tokens=max_new_tokens,
        stop_ids=stop_ids,
        padding_id=padding_id,
        forbidden_ids=forbidden_ids,
        beam_size=1,
        length_penalty=0.0,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
        min_new_tokens=min_new_tokens,
        logits_processor=logits_processor,
        seed=seed,
    )
    return generator_of(model).stream(request, padding_id or 0)
