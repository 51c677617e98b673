"""The result of `generate`."""

from typing import Annotated, NamedTuple

import numpy as np


class Generated(NamedTuple):
    """The result of `generate`, with a row for each prompt.

    Attributes:
        token_ids: the new tokens, including the stop token. They are followed by the padding id, or
            by 0 if `padding_id` is None.
        lengths: the number of new tokens, including the stop token.
        scores: the log probability of the new tokens, before `temperature`, `top_k` and `top_p` are
            applied. Beam search with a length penalty divides it by
            `((5 + length) / 6) ** length_penalty`.
    """

    token_ids: Annotated[np.ndarray, "int32 (batch, max_new_tokens)"]
    lengths: Annotated[np.ndarray, "int32 (batch,)"]
    scores: Annotated[np.ndarray, "float32 (batch,)"]
