"""What is measured at a validation beside the loss."""

import dataclasses
import itertools
from typing import NamedTuple

from keras_transformer.config import DecodingConfig
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..evaluate import evaluate
from ..step.model import TrainingModel
from ..text.corpus import SentencePairs

_NUM_SAMPLES = 5


class Sample(NamedTuple):
    """A sentence of the validation text, to look at."""

    source: str
    reference: str
    translation: str


class TranslatedText(NamedTuple):
    """What the translations of the validation text say.

    Attributes:
        bleu: float.
        samples: list of Sample, of its first sentences.
    """

    bleu: float
    samples: list[Sample]


def measure_progress(model: TrainingModel) -> dict[str, float]:
    """Returns `step`, `learning_rate` and, in float16, `skipped_steps`.

    The step is the number of updates so far. Float16 skips those whose gradient overflows; they are counted, too.
    """
    numbers: dict[str, float] = {"step": model.num_updates, "learning_rate": model.learning_rate}
    if model.loss_scale is not None:
        numbers["skipped_steps"] = model.loss_scale.skipped_steps
    return numbers


def greedy_translator(model: TrainingModel, tokenizers: TokenizerPair, decoding: DecodingConfig) -> Translator:
    """Returns a translator for `measure_bleu`, whatever the beam size: ranking checkpoints needs no beam."""
    return Translator(model.validated, tokenizers, dataclasses.replace(decoding, beam_size=1))


def measure_bleu(translator: Translator, pairs: SentencePairs) -> TranslatedText:
    """Translates the validation text."""
    found = evaluate(translator, pairs)
    samples = map(Sample, pairs.source, pairs.target, found.translations)
    return TranslatedText(found.bleu.score, list(itertools.islice(samples, _NUM_SAMPLES)))
