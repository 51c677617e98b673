"""What is measured on the validation text beside the loss."""

import dataclasses
from typing import Any

import keras

from keras_transformer.config import DecodingConfig
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..evaluate import evaluate
from ..text.corpus import SentencePairs


class Validation(keras.callbacks.Callback):
    """Adds to each validation's log what Keras does not: `step`, `learning_rate`, `skipped_steps` and `val_bleu`.

    The step is the number of updates so far. Float16 skips those whose gradient overflows; they are counted, too.

    Args:
        pairs: SentencePairs, the validation text.
        tokenizers: TokenizerPair.
        decoding: DecodingConfig. Search is greedy, whatever its beam size: ranking checkpoints needs no beam.
        with_bleu: bool. Whether to translate the text.
    """

    def __init__(
        self, pairs: SentencePairs, tokenizers: TokenizerPair, decoding: DecodingConfig, with_bleu: bool
    ) -> None:
        super().__init__()
        self.pairs = pairs
        self.tokenizers = tokenizers
        self.decoding = dataclasses.replace(decoding, beam_size=1)
        self.with_bleu = with_bleu

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        if self.with_bleu:
            self.translator = Translator(model.validated, self.tokenizers, self.decoding)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        logs["step"] = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        if self.model.loss_scale is not None:
            logs["skipped_steps"] = self.model.loss_scale.skipped_steps
        if self.with_bleu:
            logs["val_bleu"] = evaluate(self.translator, self.pairs).bleu.score
