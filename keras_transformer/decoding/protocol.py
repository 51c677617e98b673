"""The protocol between a search and a model, and the result of a search.

A search keeps `beam_size` hypotheses for every sequence, and extends each hypothesis by one token
per step. The search selects the hypotheses; the model keeps its data about them in a state.
"""

from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from ..tensors import Dimension, Tensor

# The data that a model keeps between two steps: any nest of tensors.
State = TypeVar("State")


class Step(Protocol[State]):
    """A function that computes the logits of the next token of every hypothesis.

    Args:
        token_ids: the newest token of every hypothesis, or the start token at position 0.
        parents: for every hypothesis, the index from 0 to beam_size - 1 of its parent, the
            hypothesis of the previous step that it continues. At position 0, hypothesis i has the
            parent i. Use these indices to select each hypothesis's data in the state.
        position: the position of `token_ids` in the target: 0, 1, 2, ...
        state: the state that the previous step returned.

    Returns:
        A tuple of the logits of the token after `token_ids`, where -inf forbids a token, and the
        next state. The state keeps its structure and shapes from step to step; with `Growth`, the
        shapes change once. If the search drops finished sequences, every tensor in the state must
        have one row per sequence: the search removes rows between steps, and other sizes may
        change.
    """

    def __call__(
        self,
        token_ids: Annotated[Tensor, "int32 (batch, beam_size)"],
        parents: Annotated[Tensor, "int32 (batch, beam_size)"],
        position: Annotated[Tensor, "int32 ()"],
        state: State,
        /,
    ) -> tuple[Annotated[Tensor, "(batch, beam_size, vocab_size)"], State]: ...


class Decodable(Protocol[State]):
    """A model that can be decoded with the searches of this package."""

    def start_decoding(
        self,
        source: Any,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[State], State]:
        """Prepares to decode.

        Args:
            source: the source sequences, one row per sequence, or None for a model without a
                source.
            beam_size: number of hypotheses per sequence. Defaults to 1.
            max_length: number of steps that the state must have room for. Defaults to None: the
                state may grow from step to step.
            prefix: the tokens before position 0. Shorter prefixes are padded on the left with
                negative ids. Only `generate` and translations with prefixes pass it. Defaults to
                None: no prefix.

        Returns:
            A tuple of the step function and the state for its first call.
        """
        ...


class Hypotheses(NamedTuple):
    """The results of a search, ordered from the best sequence to the worst.

    If there are fewer than n_best sequences with a probability above 0, the remaining entries have
    a length of 0 and a score of -inf.

    Attributes:
        token_ids: the tokens, including the end token, followed by zeros.
        lengths: lengths in tokens, including the end token.
        scores: scores, as natural logarithms.
        margins: for each sequence, the smallest difference by which a decision of the search fell,
            see `margins.py`. None if the search did not compute it.
    """

    token_ids: Annotated[Tensor, "int32 (batch, n_best, max_length)"]
    lengths: Annotated[Tensor, "int32 (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    margins: Annotated[Tensor, "float32 (batch,)"] | None = None
