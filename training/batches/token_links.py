"""Which source token each target token comes from, for guided alignment (Garg et al. 2019, arXiv 1909.02074)."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_transformer.model_dir.files import naming_errors
from keras_transformer.runtime.progress import ProgressBar

from ..alignment.model_1 import Counts, Sentences, best_links, in_blocks, learn_probabilities
from .encoded_pairs import EncodedPairs

# Pairs that are learned from.
_MAX_PAIRS = 200_000


def align_encoded(pairs: EncodedPairs) -> EncodedPairs:
    """Aligns the tokens of an encoded text by IBM Model 1, on whose links both directions agree.

    Learns from at most 200,000 of the pairs, and writes the links of all beside their token ids.

    Returns:
        The pairs with `has_links`.
    """
    num_pairs = min(len(pairs), _MAX_PAIRS)
    probabilities = learn_probabilities(lambda: _first_pairs(pairs, num_pairs), num_pairs, "aligning tokens")
    with ProgressBar("linking tokens", "sentence pairs", len(pairs)) as bar:
        for block in range(pairs.num_blocks):
            path = pairs.path("target", "links", block)
            with naming_errors(path), open(path, "wb") as file:
                for source, target in in_blocks(*_sentences(pairs, block)):
                    file.write(_source_places(source, target, probabilities).astype(pairs.dtype).tobytes())
                    bar.advance(len(source.lengths))
    return dataclasses.replace(pairs, has_links=True)


def _sentences(pairs: EncodedPairs, block: int) -> tuple[Sentences, Sentences]:
    source, target = (
        Sentences(*(ops.convert_to_numpy(part(side, block)) for part in (pairs.token_ids, pairs.lengths)))
        for side in ("source", "target")
    )
    return source, target


def _source_places(source: Sentences, target: Sentences, probabilities: Counts) -> np.ndarray:
    """For each target token the place of its source token, from 1; 0 for none."""
    places = np.zeros(len(target.token_ids), "int64")
    begins = np.cumsum(target.lengths) - target.lengths
    for begin, links in zip(begins, best_links(source, target, probabilities), strict=True):
        for source_place, target_place in links:
            places[begin + target_place] = source_place + 1
    return places


def _first_pairs(pairs: EncodedPairs, number: int) -> Iterator[tuple[Sentences, Sentences]]:
    """The first of the pairs. Those of each block were drawn at random."""
    for block in range(pairs.num_blocks):
        source, target = (side.part(0, min(number, len(side.lengths))) for side in _sentences(pairs, block))
        yield source, target
        number -= len(source.lengths)
        if number <= 0:
            return
