"""Search for target sequences, or draw them, with any model that implements a small protocol (`protocol.py`).

    step, state = model.start_decoding(source, beam_size)
    found = beam_search(step, state, max_lengths, max_length=50, start_id=2, end_id=3, beam_size=beam_size)

Nothing that a search does per step grows with the prefix: it records each step's tokens and parents, and follows
the records back from the ends of the sequences once, when all of them are finished.
"""

from .beam_search import beam_search
from .candidates import among, places_among, with_token_ids
from .greedy import greedy_search
from .hypotheses import Hypotheses
from .protocol import Decodable, Step
from .sampling import sample

__all__ = [
    "Decodable",
    "Hypotheses",
    "Step",
    "among",
    "beam_search",
    "greedy_search",
    "places_among",
    "sample",
    "with_token_ids",
]
