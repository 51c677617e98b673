"""Chooses between the average of checkpoints (section 6.1) and the best checkpoint.

An average that includes half-trained weights may be worse than the best checkpoint. Therefore, both
are evaluated on the validation text, with the score that ranks the checkpoints of the run.
"""

import logging
import math
import pathlib
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.errors import DamagedFileError
from keras_transformer.metrics import Perplexity
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import load_weights, save_weights
from keras_transformer.model_dir.files import remove_with_checksum, temporary_beside
from keras_transformer.models import Transformer
from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import TokenizerPair, load_tokenizers
from keras_transformer.tokenizers.placeholders import span_finder
from keras_transformer.tokenizers.text_codec import TextCodec

from ..batches.encoded_pairs import EncodedPairs, Epochs, encode
from ..batches.pipeline import plan_batches, validation_dataset
from ..text.corpus import SentencePairs
from .ranking import is_better, score_of
from .report import bleu_measure
from .state import load_average

_log = logging.getLogger(__name__)

# Limit the memory for the logits of a batch, because a single device computes the whole batch.
_MOST_TOKENS_PER_BATCH = 2048


class Measured(NamedTuple):
    """The scores of a model's weights on the validation text."""

    score: float
    perplexity: float
    bleu: float | None  # None if perplexity ranks all weights of the run

    def __str__(self) -> str:
        perplexity = f"perplexity {self.perplexity:.2f}"
        return perplexity if self.bleu is None else f"BLEU {self.bleu:.2f}, {perplexity}"


class ValidationText:
    """Evaluates the weights of a model on the validation text in float32.

    Args:
        config: The configuration of the run.
        encoded: The token ids of the pairs.
    """

    def __init__(
        self,
        model: Transformer,
        config: Config,
        tokenizers: TokenizerPair,
        pairs: SentencePairs,
        encoded: EncodedPairs,
    ) -> None:
        training = config.training
        most_tokens = min(training.tokens_per_batch, _MOST_TOKENS_PER_BATCH)
        plan = plan_batches(encoded, most_tokens, training.num_buckets)
        self._batches = validation_dataset(plan, start_id=tokenizers.target.start_id)
        self._perplexity = Perplexity()
        self._measure_bleu = None
        if training.validate_by == "bleu":
            self._measure_bleu = bleu_measure(model, tokenizers, config, pairs)

        token_ids = tf.TensorSpec([None, None], tf.int32)

        @tf.function(
            autograph=False,
            input_signature=[{"source": token_ids, "target": token_ids}, token_ids],
        )
        def update(inputs: dict[str, Tensor], labels: Tensor) -> None:
            self._perplexity.update_state(labels, model(inputs, training=False))

        self._update = update

    def measure(self) -> Measured:
        """Evaluates the current weights of the model."""
        self._perplexity.reset_state()
        for inputs, labels in self._batches:
            self._update(inputs, labels)
        perplexity = float(keras.ops.convert_to_numpy(self._perplexity.result()))
        if math.isnan(perplexity):
            perplexity = math.inf
        if self._measure_bleu is None:
            return Measured(score_of(perplexity, None, ""), perplexity, None)
        measured = self._measure_bleu()
        score = score_of(perplexity, measured.score, measured.doubt)
        return Measured(score, perplexity, measured.score)


def encode_validation(
    config: Config, pairs: SentencePairs, tokenizers: TokenizerPair, directory: pathlib.Path
) -> EncodedPairs:
    """Tokenizes the validation text and writes the token ids to files in a new directory."""
    spans = span_finder(config.decoding, tokenizers)
    codec = TextCodec(tokenizers, config.model.max_length, spans)
    return encode(Epochs(pairs), codec, directory)


def average_if_better(
    model_dir: ModelDir,
    pairs: SentencePairs,
    *,
    last: int | None = None,
    best: int | None = None,
) -> list[pathlib.Path]:
    """Averages checkpoints, and uses the average unless the best checkpoint is better.

    Both are measured on the validation text. The log shows which weights are used for translation
    from then on. If the best checkpoint is better, the average is removed from the directory. If
    there is no best checkpoint, or if it is damaged, the average is used.

    Args:
        pairs: The validation text.
        last, best: The checkpoints to average, as in `average_checkpoints`.

    Returns:
        The paths of the averaged checkpoints.

    Raises:
        ConfigError, DamagedFileError: As in `average_checkpoints`.
    """
    config = model_dir.read_config()
    model, averaged = load_average(model_dir, last=last, best=best)
    tokenizers = load_tokenizers(model_dir.path, config.tokenizer, config.data.normalization)
    with temporary_beside(model_dir.path / "token-ids", is_directory=True) as directory:
        encoded = encode_validation(config, pairs, tokenizers, directory / "valid")
        text = ValidationText(model, config, tokenizers, pairs, encoded)
        of_average = text.measure()
        mean = model.get_weights()
        kind = "last" if best is None else "best"
        name = f"the {kind} checkpoint"
        if len(averaged) > 1:
            name = f"the average of the {kind} {len(averaged):,} checkpoints"
        of_best = None
        if model_dir.best_path.is_file():
            try:
                load_weights(model, model_dir.best_path)
                of_best = text.measure()
            except DamagedFileError as error:
                _log.warning(f"{error}; it is not compared with the average")
    if of_best is not None and is_better(*of_best[:2], *of_average[:2]):
        remove_with_checksum(model_dir.average_path)
        _log.info(
            f"{model_dir.best_path.name} translates: the best checkpoint has {of_best}, better "
            f"than {name} ({of_average})"
        )
        return averaged
    model.set_weights(mean)
    save_weights(model, model_dir.average_path)
    against = "" if of_best is None else f", the best checkpoint {of_best}"
    _log.info(f"{model_dir.average_path.name} translates: {name} has {of_average}{against}")
    return averaged
