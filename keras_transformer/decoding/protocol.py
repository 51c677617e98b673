"""What a search needs of a model: all of it.

A search keeps `beam_size` hypotheses of every sequence and extends each of them by one token per step. Which
hypotheses survive is the search's choice; what has to be remembered about them is the model's, in its state.
"""

from typing import Any, Protocol


class Step(Protocol):
    """Computes the logits of the next token of every hypothesis.

    Args:
        token_ids: int32 (batch, beam_size). The newest token of every hypothesis; the start token at position 0.
        parents: int32 (batch, beam_size). The hypothesis of the previous step that each one continues, as an index
            from 0 to beam_size - 1; `i` continues `i` at position 0. What the state holds for hypotheses must be
            read through these indices.
        position: int32 scalar. The position of `token_ids` in the target: 0, 1, 2, ...
        state: the state that the previous step returned.

    Returns:
        Logits (batch, beam_size, vocab_size) of the token after `token_ids`, with a static vocab_size; -inf forbids
        a token. And the next state: any nest of tensors of the same structure. Shapes stay the same from step to
        step. If the search is told to drop finished sequences, every tensor of the state must have one row per
        sequence, of which some are left out between steps, and its other sizes may change.
    """

    def __call__(self, token_ids: Any, parents: Any, position: Any, state: Any) -> tuple[Any, Any]: ...


class Decodable(Protocol):
    """A model that can be searched."""

    def start_decoding(self, source: Any, beam_size: int = 1, max_length: Any = None) -> tuple[Step, Any]:
        """Prepares to decode.

        Args:
            source: what the model translates, one row per sequence.
            beam_size: int. Hypotheses per sequence.
            max_length: int or int scalar. The number of steps that the state must have room for. None: the state
                may grow from step to step.

        Returns:
            The step function, and the state for its first call.
        """
        ...
