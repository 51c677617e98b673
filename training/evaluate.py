"""Evaluates a translator with sacreBLEU's BLEU and chrF, and counts the glossary terms it uses."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import regex
import sacrebleu
import tensorflow as tf

from keras_transformer.tokenizers.terms import Glossary
from keras_transformer.tokenizers.words import with_marks

from .bleu import choose_tokenizer, make_bleu
from .text.corpus import SentencePairs

# This Unicode noncharacter marks the beginning and the end of words.
_MARK = "\ufdd9"


class Score(NamedTuple):
    score: float
    text: str  # the score with its parts, as sacreBLEU prints it
    signature: str  # how it was computed


class Evaluation(NamedTuple):
    bleu: Score
    chrf: Score
    translations: list[str]


def evaluate(
    translate: Callable[[list[str]], list[str]],
    pairs: SentencePairs,
    tokenize: str | None = None,
) -> Evaluation:
    """Translates the sources and scores the translations against the targets, case-sensitively.

    Args:
        translate: A `Translator`, or any function that accepts and returns a list of texts.
        pairs: SentencePairs. The sources and their references.
        tokenize: str or None. sacreBLEU's tokenizer for BLEU, one of `BLEU_TOKENIZERS`. Use "none"
            for text that is already tokenized. Defaults to None, which chooses the tokenizer for
            the script of the targets.

    Raises:
        ConfigError: The tokenizer does not exist, or its package or model is missing.
    """
    bleu = make_bleu(tokenize or choose_tokenizer(pairs.target))
    translations = translate(list(pairs.source))
    references = [list(pairs.target)]

    def score(metric: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF) -> Score:
        result = metric.corpus_score(translations, references)
        return Score(result.score, str(result), str(metric.get_signature()))

    return Evaluation(score(bleu), score(sacrebleu.metrics.CHRF()), translations)


class TermUse(NamedTuple):
    """Use of glossary terms in translations."""

    used: int  # number of terms in the sources whose translations are used
    number: int  # number of terms in the sources
    share: float  # share of the terms that are used; 1 if there are no terms

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.number:,}"


def count_terms(
    glossary: Mapping[str, str], sources: Sequence[str], *systems: Sequence[str]
) -> list[TermUse]:
    """Counts the terms in the sources that each system translates as in a glossary.

    A translation of a term counts if it consists of whole words that are written as in the
    glossary. Its first letter may be a capital. A term that occurs twice must be translated twice.

    Example:
        >>> translations = ["Hund beißt Mann.", "Hunde."]
        >>> count_terms({"dog": "Hund"}, ["Dog bites dog.", "A dog."], translations)
        [TermUse(used=1, number=3, share=0.3333333333333333)]
    """
    terms_of_sources = Glossary(glossary).translations(tf.constant(list(sources), tf.string))
    expected = [Counter(row) for row in terms_of_sources.to_list()]
    number = sum(row.total() for row in expected)
    results = []
    for translations in systems:
        used = sum(
            min(count, len(_pattern(term.decode()).findall(with_marks(text, _MARK))))
            for row, text in zip(expected, translations, strict=True)
            for term, count in row.items()
        )
        results.append(TermUse(used, number, used / number if number else 1.0))
    return results


def _pattern(term: str) -> regex.Pattern[str]:
    capital = term[0].upper()
    forms = [term, capital + term[1:]] if len(capital) == 1 else [term]
    return regex.compile("|".join(regex.escape(with_marks(form, _MARK)) for form in forms))
