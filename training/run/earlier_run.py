"""Checks that a run can start or resume in a model directory, before any text is read."""

import dataclasses
import logging

from keras_transformer.checks import require
from keras_transformer.config import Config
from keras_transformer.config.values import listed
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir

from ..bleu import make_bleu

_log = logging.getLogger(__name__)


def require_possible(
    model_dir: ModelDir, config: Config, init_from: ModelDir | None = None
) -> Config | None:
    """Checks that a run can start or resume in a model directory.

    Returns:
        The configuration of the earlier run, or None if the run is new.

    Raises:
        ConfigError: The earlier run in the directory cannot be resumed with this configuration, or
            the new vocabulary would not support the translation settings of the configuration.
    """
    earlier = model_dir.read_config() if model_dir.config_path.is_file() else None
    _require_state(model_dir, earlier)
    if earlier is not None:
        _require_same_configuration(model_dir, earlier, completed(config, earlier))
    if config.training.validate_by == "bleu" and config.training.bleu_tokenizer:
        # Raise an error if the tokenizer's package is missing.
        make_bleu(config.training.bleu_tokenizer)
    if init_from is None and not model_dir.is_trained():
        _require_pieces(config)
    return earlier


def completed(config: Config, earlier: Config) -> Config:
    """Completes a configuration with the normal form and the BLEU tokenizer of an earlier run.

    Values that the configuration sets are kept. Runs of earlier releases did not store these
    options: they did not normalize text, and computed BLEU on words.
    """
    normalize = config.data.normalize or earlier.data.normalization
    bleu_tokenizer = config.training.bleu_tokenizer or earlier.training.bleu_tokenizer
    if config.training.validate_by == "bleu":
        bleu_tokenizer = bleu_tokenizer or "13a"
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, normalize=normalize),
        training=dataclasses.replace(config.training, bleu_tokenizer=bleu_tokenizer),
    )


def _require_pieces(config: Config) -> None:
    """Checks that the vocabulary to be learned will contain the tokens that `decoding` needs."""
    decoding, data, kind = config.decoding, config.data, config.tokenizer.kind
    rule = (
        "bpe, unigram or wordpiece without --init-from, because the vocabulary is learned from "
        "the text"
    )
    require(kind != "sentencepiece", "tokenizer.kind", rule, kind)
    tags = list(dict.fromkeys(tag for tag in data.tags or () if tag))
    rule = f"one of data.tags, {listed(tags)}" if tags else "null without data.tags"
    require(decoding.tag in (None, *tags), "decoding.tag", rule, decoding.tag)
    if decoding.terms is not None and not data.terms:
        raise ConfigError(
            "decoding.terms needs a model that is trained with data.terms; received "
            f"data.terms={data.terms}"
        )


def _require_state(model_dir: ModelDir, earlier: Config | None) -> None:
    """Checks that the directory of an earlier run contains its configuration and its state."""
    states = [
        path
        for path in (model_dir.training_state_path, model_dir.previous_state_path)
        if path.is_file()
    ]
    checkpoints = model_dir.checkpoints()
    of_training = [*states, *checkpoints.values()]
    if earlier is None:
        if of_training:
            raise ConfigError(
                f"{model_dir}: the directory has {of_training[0].relative_to(model_dir.path)} "
                "of an earlier training run, but no config.yaml. "
                "Put the file back, or train in another --model-dir"
            )
        return
    if states:
        return
    # A run that is killed in its first validation leaves a checkpoint, but no state.
    first = earlier.training.validate_every
    is_lost = max(checkpoints) > first if checkpoints else model_dir.is_trained()
    if is_lost:
        raise ConfigError(
            f"{model_dir}: the directory has trained weights, "
            "but no training_state.npz to resume from. To continue from these weights, "
            f"train in another --model-dir with --init-from {model_dir}"
        )


def _require_same_configuration(model_dir: ModelDir, old: Config, config: Config) -> None:
    """Checks that a resumed run keeps all values that are fixed, and logs the others that change.

    The model, the tokenizers and the fields with `is_fixed` are fixed: checkpoints are ranked by
    `validate_by`, for example, and the state contains the average of `ema`.
    """
    # The learned vocabulary may be smaller than requested.
    new = config.with_vocab_sizes(old.model.source_vocab_size, old.model.target_vocab_size)
    old = completed(old, old)
    changes = []
    for section in dataclasses.fields(Config):
        before, now = getattr(old, section.name), getattr(new, section.name)
        for field in dataclasses.fields(before):
            name = f"{section.name}.{field.name}"
            value, new_value = getattr(before, field.name), getattr(now, field.name)
            if value == new_value:
                continue
            if section.name in ("model", "tokenizer") or field.metadata.get("is_fixed"):
                raise ConfigError(
                    f"{name} must be {value!r}, as in the model that {model_dir} holds; "
                    f"received {name}={new_value!r}. "
                    "Resume with the old value, or train in another --model-dir"
                )
            changes.append(f"{name}={new_value!r} instead of {value!r}")
    if changes:
        _log.info(f"training resumes with {', '.join(changes)}")
