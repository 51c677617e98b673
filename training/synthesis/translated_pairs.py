"""Pairs that a model translates: back-translations of a text in the target language, and a teacher's translations."""

import os
from collections.abc import Iterable
from typing import Literal

import sacrebleu

from keras_transformer.rules import Size
from keras_transformer.translation import Sampling, Translator

from ..text.filters import Pair
from ..text.text_files import Reread
from .pair_files import Made, Settings, made_of, write_pairs

Metric = Literal["bleu", "chrf"]


def backtranslate(
    translator: Translator,
    targets: Iterable[str],
    output: str | os.PathLike[str],
    settings: Settings,
    sampling: Sampling | None = None,
) -> None:
    r"""Writes pairs of back-translations and a text (Sennrich et al. 2016, arXiv 1511.06709).

    Args:
        translator: Translator from the target language into the source language.
        targets: iterable of str. The sentences of the text, which are read twice.
        output: str or path. The beginning of the files' names, see `write_pairs`, which also says what is raised.
        settings: mapping. What decides about the pairs, by which a run is resumed with the same options only.
        sampling: Sampling or None. Draws translations at random, from which more is learned where there is a lot of
            text (Edunov et al. 2018, arXiv 1808.09381). Defaults to None: the best are searched.

    Example:
        >>> backtranslate(Translator.load("models/en-de"), ["Anna sees a tree.", " "], "bt", settings={})
        >>> with open("bt.target") as file:
        ...     file.read()
        'Anna sees a tree.\n'
    """
    max_length = translator.model.config.max_length

    def make(first: int, lines: list[Pair]) -> Made:
        texts = [text for _, text in lines]
        block_sampling = None if sampling is None else sampling._replace(first_row=first)
        translations = translator.translate(texts, sampling=block_sampling)
        pairs = ((result.hypotheses[0][0], text) for result, text in zip(translations, texts, strict=True))
        return made_of(pairs, [result.source_length > max_length for result in translations])

    write_pairs(output, settings, Reread(lambda: (("", text) for text in targets)), make)


def distill(
    translator: Translator,
    pairs: Iterable[Pair],
    output: str | os.PathLike[str],
    settings: Settings,
    n_best: Size = 1,
    metric: Metric = "bleu",
) -> None:
    r"""Writes pairs of sources and a teacher's translations (Kim and Rush 2016, arXiv 1606.07947).

    With references, each translation is the one of the `n_best` that is most like its reference (their sequence-level
    interpolation); ties go to the more probable one. Otherwise it is the best.

    Args:
        translator: Translator. The teacher.
        pairs: iterable of (source, reference), which are read twice. References that are empty do not count.
        output: str or path. The beginning of the files' names, see `write_pairs`, which also says what is raised.
        settings: mapping. What decides about the pairs, by which a run is resumed with the same options only.
        n_best: int, at most the beam size. How many translations are compared with the reference. Defaults to 1.
        metric: "bleu" or "chrf", of sentences, by sacreBLEU. What "most like" means. Defaults to "bleu".

    Example:
        >>> teacher = Translator.load("models/en-de")
        >>> distill(teacher, [("Anna sees a tree.", "Anna sieht einen Baum.")], "distilled", settings={}, n_best=4)
        >>> with open("distilled.source") as file:
        ...     file.read()
        'Anna sees a tree.\n'
    """
    max_length = translator.model.config.max_length
    # With effective order, BLEU counts the n-grams that a short sentence has.
    score = sacrebleu.metrics.BLEU(effective_order=True) if metric == "bleu" else sacrebleu.metrics.CHRF()

    def make(_: int, lines: list[Pair]) -> Made:
        translations = translator.translate([source for source, _ in lines], n_best)
        chosen = (
            (source, most_like(reference, [text for text, _ in result.hypotheses], score))
            for result, (source, reference) in zip(translations, lines, strict=True)
        )
        return made_of(chosen, [result.source_length > max_length for result in translations])

    write_pairs(output, settings, pairs, make)


def most_like(reference: str, translations: list[str], score: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF) -> str:
    """Returns the translation with the highest score; ties, and a blank reference, go to the first.

    Example:
        >>> from sacrebleu.metrics import CHRF
        >>> most_like("a dog runs", ["the cat sits", "a dog ran", "a dog"], CHRF())
        'a dog ran'
    """
    if len(translations) == 1 or not reference.strip():
        return translations[0]
    return max(translations, key=lambda text: score.sentence_score(text, [reference]).score)
