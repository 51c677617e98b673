"""What is measured at a validation beside the loss."""

import dataclasses

from keras_transformer.config import DecodingConfig
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..evaluate import evaluate
from ..step.model import TrainingModel
from ..text.corpus import SentencePairs


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


def measure_bleu(translator: Translator, pairs: SentencePairs) -> float:
    """Translates the validation text, and returns its BLEU."""
    return evaluate(translator, pairs).bleu.score
