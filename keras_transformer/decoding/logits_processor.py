"""A function of the user's own that changes the logits during a search."""

from typing import Annotated, Protocol

from ..tensors import Tensor


class LogitsProcessor(Protocol):
    """Changes the logits of the next tokens: an argument of `generate` and of `Constraints`.

    Any function of this signature will do, or an object with such a `__call__`. It is written with
    `keras.ops`. TensorFlow and JAX trace it once, together with the search, so that Python values
    that it reads are those of the first call. The logits that it returns are those of the model to
    all that follows: the repetition penalty, what is forbidden, temperature, top_k and top_p, and
    the scores.

    Args:
        token_ids: the tokens of each hypothesis, with the prompt. The newest one is last, and -1
            stands before the first one. The size n is the same at every step, and may be larger
            than the longest text. A sequence that is finished keeps its row, whose logits are not
            used.
        logits: the model's logits of the next token.
        position: the number of new tokens so far: 0 when the first one is chosen.

    Returns:
        Logits of the same shape; -inf forbids a token.

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
