"""What is measured on the validation text beside the loss."""

import dataclasses

import keras

from keras_transformer.translator import Translator

from .evaluate import evaluate


class Validation(keras.callbacks.Callback):
    """Adds to each validation's log the updates done as `step`, and BLEU as `val_bleu` if asked for.

    BLEU is that of greedy translations, which need no beam's time.

    Args:
        pairs: `SentencePairs`, the validation text.
        tokenizer: the model's.
        decoding: a `DecodingConfig`, whose beam is not used.
        with_bleu: whether the text is translated.
    """

    def __init__(self, pairs, tokenizer, decoding, with_bleu):
        super().__init__()
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.decoding = dataclasses.replace(decoding, beam_size=1)
        self.with_bleu = with_bleu

    def set_model(self, model):
        super().set_model(model)
        if self.with_bleu:
            self.translator = Translator(model.transformer, self.tokenizer, self.decoding)

    def on_epoch_end(self, epoch, logs):
        logs["step"] = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        if self.with_bleu:
            logs["val_bleu"] = evaluate(self.translator, self.pairs)["bleu"]["score"]
