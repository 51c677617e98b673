"""Search for the best target sentence. Knows a step function, never a model.

Both searches drive the same function, which feeds one token of every live hypothesis to the model:

    logits, state = step(token_ids, parents, position, state)

    token_ids: int32 (batch, beam_size), the newest token of every live hypothesis; `start_id` at
               position 0.
    parents:   int32 (batch, beam_size), the hypothesis of the previous step that each one continues
               (i continues i at position 0). The step function follows them in its own state.
    position:  int32 scalar, the position of `token_ids` in the target: 0, 1, ...
    state:     any nest of tensors whose shapes stay as they are; the search only hands it on. With
               `drop_done` each tensor has a row for each sentence, of which the search drops some,
               and its other sizes may change.
    logits:    (batch, beam_size, vocab_size); -inf forbids a token.

Nothing that a search does per step grows with the prefix: it notes each step's tokens and parents,
and reads the sentences back from the notes once, at the end. Sentences that are done stay as they
are while others go on, or leave the batch.
"""

from .beam_search import beam_search
from .greedy import greedy_search
from .hypotheses import Hypotheses

__all__ = ["Hypotheses", "beam_search", "greedy_search"]
