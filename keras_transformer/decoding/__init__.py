"""Search for target sequences, or draw them, with any model that implements a small protocol
(`protocol.py`).

    step, state = model.start_decoding(source, beam_size)
    hypotheses = beam_search(
        step, state, max_lengths, max_length=50, start_id=2, end_id=3, beam_size=beam_size
    )

Nothing that a search does per step grows with the prefix: it records each step's tokens and
parents, and follows the record back from the ends of the sequences once, when all of them are
finished.
"""

from .beam_search import beam_search
from .constraints import Constraints
from .greedy_search import greedy_search
from .logits_processor import LogitsProcessor
from .protocol import Decodable, Hypotheses, Step
from .sampling import sample

__all__ = [
    "Constraints",
    "Decodable",
    "Hypotheses",
    "LogitsProcessor",
    "Step",
    "beam_search",
    "greedy_search",
    "sample",
]
