"""What a translator returns: of graphs, as tensors; in Python, as lists and arrays.

Lengths are the numbers of tokens of texts, with their end tokens. They are above the model's `max_length` where a text
is truncated; what is far beyond it is not counted.
"""

from typing import Annotated, NamedTuple

import numpy as np

from ..tensors import Tensor


class Translations(NamedTuple):
    """What a search finds for every text, the best first.

    Attributes:
        scores: log probability divided by `((5 + length) / 6) ** length_penalty`; with a beam of 1, the log
            probability.
        token_ids: the tokens of the translations, after their prefixes and with end tokens, padded with 0.
    """

    texts: Annotated[Tensor, "string (batch, n_best)"]
    scores: Annotated[Tensor, "float32 (batch, n_best)"]
    token_ids: Annotated[Tensor, "int32 (batch, n_best, length)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]


class Translation(NamedTuple):
    """The best translations of one text.

    Attributes:
        hypotheses: each translation with its score, as in `Translations`.
    """

    hypotheses: list[tuple[str, float]]
    source_length: int


class TokenScores(NamedTuple):
    """The log probabilities of pairs, those of their tokens, and how long their texts are.

    Attributes:
        log_probs: the sums of the tokens'.
        token_log_probs: of every token of the targets, with end tokens; 0 after them.
    """

    log_probs: Annotated[Tensor, "float32 (number of pairs,)"]
    token_log_probs: Annotated[Tensor, "float32 (number of pairs, target length)"]
    source_lengths: Annotated[Tensor, "int64 (number of pairs,)"]
    target_lengths: Annotated[Tensor, "int64 (number of pairs,)"]


def dual_scores(forward: TokenScores, backward: TokenScores) -> Annotated[np.ndarray, "float (number of pairs,)"]:
    """Computes scores by dual conditional cross-entropy (Junczys-Dowmunt 2018, arXiv 1809.00197).

    They are `exp(-(|a - b| + (a + b) / 2))`, of the cross-entropies `a` of the target given its source and `b` of the
    source given the target, each for a token: 1 for pairs of which both models are certain, near 0 for those that one
    of them finds less probable than the other, or both improbable.

    Args:
        forward: of the pairs.
        backward: of the same pairs by a model of the opposite direction, to which targets are sources.

    Example:
        >>> english, german, log_probs = np.array([1]), np.array([2]), np.array([[-2.0]])
        >>> forward = TokenScores(log_probs[:, 0], log_probs, english, german)
        >>> dual_scores(forward, TokenScores(log_probs[:, 0] - 1, log_probs - 1, german, english)).round(4)
        array([0.0183])
    """
    ours, theirs = (-scores.log_probs / scores.target_lengths for scores in (forward, backward))
    return np.exp(-(np.abs(ours - theirs) + (ours + theirs) / 2))


class Tokens(NamedTuple):
    """The tokens of texts as a model reads them: truncated, with end tokens, as text to show and as ids."""

    pieces: Annotated[Tensor, 'string (batch, length), padded with ""']
    token_ids: Annotated[Tensor, "int32 (batch, length), padded with 0"]
    lengths: Annotated[Tensor, "int64 (batch,)"]


class Alignments(NamedTuple):
    """Which tokens of their sources the tokens of targets come from.

    Attributes:
        positions: for each token of a target the position in its source that is attended to most; -1 after end tokens.
        attention: of a layer of the decoder, the mean of its heads, or the head that was trained to align: rows that
            sum to 1; 0 after end tokens.
    """

    source: Tokens
    target: Tokens
    positions: Annotated[Tensor, "int32 (number of pairs, target length)"]
    attention: Annotated[Tensor, "float32 (number of pairs, target length, source length)"]


class Alignment(NamedTuple):
    """Which tokens of its source the tokens of a target come from: `Alignments` of one pair, without padding."""

    source: list[str]
    target: list[str]
    positions: list[int]
    attention: Annotated[np.ndarray, "float32 (target length, source length)"]


class Embeddings(NamedTuple):
    """The encoder's outputs for texts: their mean over the tokens of a text, with its end token."""

    vectors: Annotated[Tensor, "float32 (batch, d_model)"]
    source_lengths: Annotated[Tensor, "int64 (batch,)"]
