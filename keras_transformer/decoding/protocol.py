"""What a search needs of a model, and what it returns.

A search keeps `beam_size` hypotheses of every sequence and extends each of them by one token per
step. The search chooses which hypotheses survive; the model remembers what it needs about them in
its state.
"""

from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from ..tensors import Dimension, Tensor

# What a model remembers between two steps: any nest of tensors.
State = TypeVar("State")


class Step(Protocol[State]):
    """Computes the logits of the next token of every hypothesis.

    Args:
        token_ids: the newest token of every hypothesis; the start token at position 0.
        parents: the hypothesis of the previous step that each one continues, as an index from 0 to
            beam_size - 1; `i` continues `i` at position 0. What the state holds for hypotheses must
            be read through these indices.
        position: the position of `token_ids` in the target: 0, 1, 2, ...
        state: the state that the previous step returned.

    Returns:
        Logits of the token after `token_ids`; -inf forbids a token. And the next state: any nest of
        tensors of the same structure. Shapes stay the same from step to step. If the search is told
        to drop finished sequences, every tensor of the state must have one row per sequence, of
        which some are left out between steps, and its other sizes may change.
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
    """A model that can be searched."""

    def start_decoding(
        self,
        source: Any,
        beam_size: int = 1,
        max_length: Dimension | None = None,
        prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    ) -> tuple[Step[State], State]:
        """Prepares to decode.

        Args:
            source: what the model translates, one row per sequence; None for a model without a
                source.
            beam_size: hypotheses per sequence. Defaults to 1.
            max_length: the number of steps that the state must have room for. Defaults to None: the
                state may grow from step to step.
            prefix: the tokens before position 0; shorter ones begin with negative ids, which are no
                tokens. Only `generate`, and translations with prefixes, give one. Defaults to None:
                nothing is before position 0.

        Returns:
            The step function, and the state for its first call.
        """
        ...


class Hypotheses(NamedTuple):
    """The sequences that a search found, the best first.

    A place for which no sequence with a probability above 0 was found has length 0 and score -inf.

    Attributes:
        token_ids: the tokens, including the end token; 0 after it.
        lengths: in tokens, including the end token.
        scores: natural logarithms.
    """

    token_ids: Annotated[Tensor, "int32 (batch, n_best, max_length)"]
    lengths: Annotated[Tensor, "int32 (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
