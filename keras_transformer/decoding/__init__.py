"""Beam search, greedy search and sampling with any model that implements the protocol `Decodable`.

    step, state = model.start_decoding(source, beam_size)
    hypotheses = beam_search(
        step, state, max_lengths, max_length=50, start_ids=2, end_ids=3, beam_size=beam_size
    )

Apart from the model, the cost of a step does not grow with the length of the sequences. A search
records the tokens and parents of each step. When all sequences are finished, it traces them back
through this record once, from their ends.
"""

from .beam_search import beam_search
from .constraints import Constraints
from .forced_search import forced_search
from .greedy_search import greedy_search
from .logits_processor import LogitsProcessor
from .protocol import Decodable, Hypotheses, Step
from .sampling import sample
from .search_loop import Growth

__all__ = [
    "Constraints",
    "Decodable",
    "Growth",
    "Hypotheses",
    "LogitsProcessor",
    "Step",
    "beam_search",
    "forced_search",
    "greedy_search",
    "sample",
]
