"""BLEU and chrF of a translator, by sacreBLEU, and how often it uses a glossary's terms."""

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

# Stands around words: a noncharacter of Unicode.
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
    """Translates the sources and compares the translations with the targets, in mixed case.

    Args:
        translate: Translator, or any function from a list of texts to a list of texts.
        pairs: SentencePairs.
        tokenize: str or None. sacreBLEU's tokenizer for BLEU, one of `BLEU_TOKENIZERS`; "none" for
            text that is tokenized already. Defaults to None: the one for the script of the targets.

    Raises:
        ConfigError: There is no such tokenizer, or its package or model is missing.
    """
    bleu = make_bleu(tokenize or choose_tokenizer(pairs.target))
    translations = translate(list(pairs.source))
    references = [list(pairs.target)]

    def score(metric: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF) -> Score:
        result = metric.corpus_score(translations, references)
        return Score(result.score, str(result), str(metric.get_signature()))

    return Evaluation(score(bleu), score(sacrebleu.metrics.CHRF()), translations)


class TermUse(NamedTuple):
    """How often translations use the terms of a glossary."""

    used: int  # how many terms of the sources have their translations
    number: int  # how many terms the sources have
    share: float  # the share that is used; 1 if there are no terms

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.number:,}"


def count_terms(
    glossary: Mapping[str, str], sources: Sequence[str], *systems: Sequence[str]
) -> list[TermUse]:
    """Counts for each system the terms of sources whose translations are in its translations.

    A translation counts where its words are whole words, written as in the glossary; its first
    letter may be a capital. A term that comes twice must be translated twice.

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
