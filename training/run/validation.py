"""What is measured at a validation beside the loss."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from keras_transformer.config import DecodingConfig
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..evaluate import Evaluation, evaluate
from ..text.corpus import SentencePairs

_NUM_SAMPLES = 5
# Translates texts whose sources have a tag, which is empty for none.
Translate = Callable[[list[str], str], list[str]]

_log = logging.getLogger(__name__)


class Sample(NamedTuple):
    """A sentence of the validation text, to look at."""

    source: str
    reference: str
    translation: str


class TranslatedText(NamedTuple):
    """The BLEU of the translations of the validation text, and the first of them."""

    bleu: float
    samples: list[Sample]


def greedy_translation(model: Transformer, tokenizers: TokenizerPair, decoding: DecodingConfig) -> Translate:
    """Returns how `measure_bleu` translates, whatever the beam size: ranking checkpoints needs no beam."""

    # Each tag has a graph of its own.
    @functools.cache
    def translator(tag: str) -> Translator:
        return Translator(model, tokenizers, dataclasses.replace(decoding, beam_size=1, tag=tag or None))

    return lambda texts, tag: translator(tag)(texts)


def measure_bleu(translate: Translate, pairs: SentencePairs) -> TranslatedText:
    """Translates the validation text; where it has several tags, the log has the BLEU of each."""
    texts, translations = iter(pairs.source), []
    for number, tag in pairs.tags or ((len(pairs), ""),):
        translations.append(translate(list(itertools.islice(texts, number)), tag))
    evaluation = _evaluation(list(itertools.chain.from_iterable(translations)), pairs)
    if len(pairs.tags) > 1:
        _log.info(f"BLEU {', '.join(_bleu_of_tags(pairs, translations))}")
    samples = map(Sample, pairs.source, pairs.target, evaluation.translations)
    return TranslatedText(evaluation.bleu.score, list(itertools.islice(samples, _NUM_SAMPLES)))


def _bleu_of_tags(pairs: SentencePairs, translations: list[list[str]]) -> Iterator[str]:
    texts = zip(pairs.source, pairs.target, strict=True)
    for (number, tag), translations_of_tag in zip(pairs.tags, translations, strict=True):
        if number:
            source, target = zip(*itertools.islice(texts, number), strict=True)
            evaluation = _evaluation(translations_of_tag, SentencePairs(source, target, tag))
            yield f"{tag or 'without a tag'} {evaluation.bleu.score:.2f}"


def _evaluation(translations: list[str], pairs: SentencePairs) -> Evaluation:
    return evaluate(lambda _: translations, pairs)
