"""Search among some tokens of a vocabulary, as if all others had logits of -inf.

A search knows tokens by their places among the candidates, which are ascending, so that of equals the same one comes
first as in a search of the whole vocabulary. The first candidates are tokens 0, 1, 2, ..., with all that a search is
told of, such as the end token: these have the same number as token and as place.

    step, state = model.start_decoding(source, beam_size, candidates=candidates)  # logits of candidates alone
    found = beam_search(among(candidates, step), state, ...)
    found = with_token_ids(candidates, found)
"""

from typing import Annotated

from keras import ops

from ..tensors import Tensor
from .hypotheses import Hypotheses
from .protocol import State, Step

Candidates = Annotated[Tensor, "int32 (number of candidates,)"]


def among(candidates: Candidates, step: Step[State]) -> Step[State]:
    """Returns a step that is told places among the candidates.

    Args:
        candidates: token ids, ascending.
        step: a step that is told token ids and returns the logits of the candidates alone.
    """

    def step_among(
        places: Tensor, parents: Tensor, position: Tensor, state: State
    ) -> tuple[Annotated[Tensor, "(batch, beam_size, number of candidates)"], State]:
        return step(ops.take(candidates, places, axis=0), parents, position, state)

    return step_among


def places_among(
    candidates: Candidates, token_ids: Annotated[Tensor, "int32 (batch, n)"]
) -> Annotated[Tensor, "int32 (batch, n)"]:
    """Returns the places of tokens that are among the candidates; negative ids stay as they are."""
    # `ops.searchsorted` of Keras 3.15 takes one row alone on TensorFlow.
    places = ops.reshape(ops.searchsorted(candidates, ops.reshape(token_ids, (-1,))), ops.shape(token_ids))
    return ops.where(token_ids < 0, token_ids, ops.cast(places, "int32"))


def with_token_ids(candidates: Candidates, found: Hypotheses) -> Hypotheses:
    """Returns what a search found, with token ids in the place of places."""
    return found._replace(token_ids=ops.take(candidates, found.token_ids, axis=0))
