"""What a translator returns: of graphs, as tensors; in Python, as lists and arrays."""

from typing import Annotated, NamedTuple

import numpy as np

from ..tensors import Tensor


class Translations(NamedTuple):
    """What a search finds for every text, the best first.

    Attributes:
        texts: string (batch, n_best), the translations.
        scores: (batch, n_best). Log probability divided by `((5 + length) / 6) ** length_penalty`; with a beam of 1,
            the log probability.
        token_ids: int (batch, n_best, length), the tokens of the translations, after their prefixes and with end
            tokens, padded with 0.
        source_lengths: int (batch,), the numbers of tokens of the texts with their end tokens. They are above the
            model's `max_length` where a text is truncated; what is far beyond it is not counted.
    """

    texts: Tensor
    scores: Tensor
    token_ids: Tensor
    source_lengths: Tensor


class Translation(NamedTuple):
    """The best translations of one text.

    Attributes:
        hypotheses: list of (translation, score), the best first. The scores are those of `Translations`.
        source_length: int. The number of tokens of the text with its end token. It is above the model's `max_length`
            if the text is truncated; what is far beyond it is not counted.
    """

    hypotheses: list[tuple[str, float]]
    source_length: int


class Scores(NamedTuple):
    """The log probabilities of pairs, and how long their texts are.

    Attributes:
        log_probs: float32 (number of pairs,).
        source_lengths: int (number of pairs,), the numbers of tokens with end tokens. They are above the model's
            `max_length` where a text is truncated; what is far beyond it is not counted.
        target_lengths: int (number of pairs,), likewise.
    """

    log_probs: np.ndarray
    source_lengths: np.ndarray
    target_lengths: np.ndarray


def dual_scores(forward: Scores, backward: Scores) -> Annotated[np.ndarray, "float (number of pairs,)"]:
    """Computes scores by dual conditional cross-entropy (Junczys-Dowmunt 2018, arXiv 1809.00197).

    They are `exp(-(|a - b| + (a + b) / 2))`, of the cross-entropies `a` of the target given its source and `b` of the
    source given the target, each for a token: 1 for pairs of which both models are certain, near 0 for those that one
    of them finds less probable than the other, or both improbable.

    Args:
        forward: Scores of the pairs.
        backward: Scores of the same pairs by a model of the opposite direction, to which targets are sources.

    Example:
        >>> english, german = np.array([1]), np.array([2])
        >>> forward, backward = Scores(np.array([-2.0]), english, german), Scores(np.array([-3.0]), german, english)
        >>> dual_scores(forward, backward).round(4)
        array([0.0183])
    """
    ours, theirs = (-scores.log_probs / scores.target_lengths for scores in (forward, backward))
    return np.exp(-(np.abs(ours - theirs) + (ours + theirs) / 2))


class TokenScores(NamedTuple):
    """The log probabilities of pairs, those of their tokens, and how long their texts are.

    Attributes:
        log_probs: float32 (number of pairs,), the sums of the tokens'.
        token_log_probs: float32 (number of pairs, target length), of every token of the targets, with end tokens; 0
            after them.
        source_lengths: int (number of pairs,), the numbers of tokens with end tokens, before texts are truncated.
        target_lengths: int (number of pairs,), likewise.
    """

    log_probs: Tensor
    token_log_probs: Tensor
    source_lengths: Tensor
    target_lengths: Tensor


class Tokens(NamedTuple):
    """The tokens of texts as a model reads them: truncated, with end tokens.

    Attributes:
        pieces: string (batch, length), the tokens as text to show, padded with "".
        token_ids: int32 (batch, length), padded with 0.
        lengths: int (batch,), the numbers of tokens with end tokens, before texts are truncated.
    """

    pieces: Tensor
    token_ids: Tensor
    lengths: Tensor


class Alignments(NamedTuple):
    """Which tokens of their sources the tokens of targets come from.

    Attributes:
        source: `Tokens` of the sources.
        target: `Tokens` of the targets.
        positions: int32 (number of pairs, target length), for each token of a target the position in its source that
            is attended to most; -1 after end tokens.
        attention: float32 (number of pairs, target length, source length), the mean of the heads of a layer of the
            decoder: rows that sum to 1; 0 after end tokens.
    """

    source: Tokens
    target: Tokens
    positions: Tensor
    attention: Tensor


class Alignment(NamedTuple):
    """Which tokens of its source the tokens of a target come from.

    Attributes:
        source: list of str, the tokens of the source with the end token.
        target: list of str, the tokens of the target with the end token.
        positions: list of int, for each token of the target a position in the source.
        attention: float32 (target length, source length), rows that sum to 1.
    """

    source: list[str]
    target: list[str]
    positions: list[int]
    attention: np.ndarray


class Embeddings(NamedTuple):
    """What the encoder makes of texts.

    Attributes:
        vectors: float32 (batch, d_model), the mean over the tokens of a text, with its end token.
        source_lengths: int (batch,), the numbers of tokens with end tokens, before texts are truncated.
    """

    vectors: Tensor
    source_lengths: Tensor
