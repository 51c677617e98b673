"""What is measured at a validation beside the loss."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

import sacrebleu

from keras_transformer.config import DecodingConfig
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..text.corpus import SentencePairs

_NUM_SAMPLES = 5

_log = logging.getLogger(__name__)


class Sample(NamedTuple):
    """A sentence of the validation text, to look at."""

    source: str
    reference: str
    translation: str


def greedy_translators(
    model: Transformer, tokenizers: TokenizerPair, decoding: DecodingConfig
) -> Callable[[str], Translator]:
    """Returns a function from a tag, which is empty for none, to a translator that ranks checkpoints without a beam."""

    # Each tag has a graph of its own.
    @functools.cache
    def translator(tag: str) -> Translator:
        return Translator(model, tokenizers, dataclasses.replace(decoding, beam_size=1, tag=tag or None))

    return translator


def measure_bleu(translators: Callable[[str], Translator], pairs: SentencePairs) -> tuple[float, list[Sample]]:
    """Returns the BLEU of the translations of the validation text, and the first of them.

    Where the text has several tags, the log has the BLEU of each.
    """
    texts = zip(pairs.source, pairs.target, strict=True)
    samples: list[Sample] = []
    bleu_of_tags = []
    for number, tag in pairs.tags or ((len(pairs), ""),):
        if number:
            sources, references = zip(*itertools.islice(texts, number), strict=True)
            samples_of_tag = [*map(Sample, sources, references, translators(tag)(list(sources)))]
            samples += samples_of_tag
            if len(pairs.tags) > 1:
                bleu_of_tags.append(f"{tag or 'without a tag'} {_bleu(samples_of_tag):.2f}")
    if bleu_of_tags:
        _log.info(f"BLEU {', '.join(bleu_of_tags)}")
    return _bleu(samples), samples[:_NUM_SAMPLES]


def _bleu(samples: list[Sample]) -> float:
    return sacrebleu.corpus_bleu(
        [sample.translation for sample in samples], [[sample.reference for sample in samples]]
    ).score
