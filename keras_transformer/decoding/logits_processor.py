"""User-defined functions that change the logits during a search."""

from typing import Annotated, Protocol

from ..tensors import Tensor


class LogitsProcessor(Protocol):
    """A function that changes the logits of the next tokens.

    Pass it to `generate` or `Constraints`. Write a function with this signature, or an object with
    such a `__call__` method, that uses `keras.ops`. TensorFlow and JAX trace it once, together with
    the search, so Python variables keep their values from the first call. All further processing
    uses the returned logits: the repetition penalty, forbidden tokens, temperature, top_k, top_p
    and scores.

    Args:
        token_ids: the tokens of each hypothesis, including the prompt. The newest token is last,
            and padding before the first token is -1. n is the same at every step, and may be larger
            than the longest text. A finished sequence keeps its row, but its logits are not used.
        logits: the model's logits of the next token.
        position: the number of new tokens so far, 0 for the first new token.

    Returns:
        Logits of the same shape. -inf forbids a token.

    Example:
        >>> def no_echo(token_ids, logits, position):
        ...     is_newest = ops.one_hot(token_ids[..., -1], logits.shape[-1]) > 0
        ...     return ops.where(is_newest, -float("inf"), logits)
        >>> logits = no_echo(np.array([[[-1, 2, 1]]]), np.zeros((1, 1, 3)), 0)
        >>> np.array(logits).tolist()
        [[[0.0, -inf, 0.0]]]
    """

    def __call__(
        self,
        token_ids: Annotated[Tensor, "int32 (batch, beam_size, n)"],
        logits: Annotated[Tensor, "float32 (batch, beam_size, vocab_size)"],
        position: Annotated[Tensor, "int32 ()"],
        /,
    ) -> Annotated[Tensor, "(batch, beam_size, vocab_size)"]: ...
