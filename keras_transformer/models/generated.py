"""What `generate` returns."""

from typing import Annotated, NamedTuple

import numpy as np


class Generated(NamedTuple):
    """What `generate` returns.

    Attributes:
        token_ids: the new tokens of each prompt, with the stop token; after it, the padding id, or
            0 if that is None.
        lengths: the numbers of new tokens, with the stop token.
        scores: log probabilities of the new tokens; with a length penalty, divided by
            `((5 + length) / 6) ** length_penalty`.
    """

    token_ids: Annotated[np.ndarray, "int32 (batch, max_new_tokens)"]
    lengths: Annotated[np.ndarray, "int32 (batch,)"]
    scores: Annotated[np.ndarray, "float32 (batch,)"]
