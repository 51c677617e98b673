"""BLEU and chrF of a translator, by sacreBLEU."""

from collections.abc import Callable
from typing import NamedTuple

import sacrebleu

from .text.corpus import SentencePairs


class Score(NamedTuple):
    """A corpus score."""

    score: float
    text: str  # the score with its parts, as sacreBLEU prints it
    signature: str  # how it was computed


class Evaluation(NamedTuple):
    bleu: Score
    chrf: Score
    translations: list[str]


def evaluate(translate: Callable[[list[str]], list[str]], pairs: SentencePairs, tokenize: str = "13a") -> Evaluation:
    """Translates the sources and compares the translations with the targets, in mixed case.

    Args:
        translate: Translator, or any function from a list of texts to a list of texts.
        pairs: SentencePairs.
        tokenize: str. sacreBLEU's tokenization for BLEU; "none" for text that is tokenized already. Defaults to
            "13a".
    """
    translations = translate(list(pairs.source))
    references = [list(pairs.target)]

    def score(metric: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF) -> Score:
        result = metric.corpus_score(translations, references)
        return Score(result.score, str(result), str(metric.get_signature()))

    bleu = sacrebleu.metrics.BLEU(tokenize=tokenize, force=tokenize == "none")
    return Evaluation(score(bleu), score(sacrebleu.metrics.CHRF()), translations)
