"""The model directory of a training run: what an earlier run left there, and what the run writes when it begins."""

import contextlib
import dataclasses
import itertools
import logging
import pathlib
from collections.abc import Iterator
from typing import cast

from keras_transformer.config import Config
from keras_transformer.config.values import TrainingPrecision
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import checksum_path, locked, remove_leftovers, temporary_beside
from keras_transformer.runtime.device import choose_precision
from keras_transformer.tokenizers import TokenizerPair

from .devices import Workers

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def directory_in_use(model_dir: ModelDir, workers: Workers) -> Iterator[None]:
    """Makes the directory if it does not exist, and keeps other training runs out of it."""
    model_dir.path.mkdir(parents=True, exist_ok=True)
    try:
        with (
            locked(model_dir.lock_path, "another training runs here") if workers.is_chief else contextlib.nullcontext()
        ):
            yield
    finally:
        # Remove the directory again if the run did not start.
        with contextlib.suppress(OSError):
            model_dir.path.rmdir()


def resumable_config(model_dir: ModelDir, config: Config, workers: Workers, num_parts: int) -> Config:
    """Returns the configuration of a new run, or of one that is resumed, with the precision of its first step.

    Args:
        num_parts: into how many parts all devices together divide a batch.

    Raises:
        ConfigError: The run in the directory cannot be resumed with the configuration, or a worker has another one.
    """
    precision = config.training.precision
    if workers.is_chief:
        earlier = model_dir.read_config() if model_dir.config_path.is_file() else None
        _require_state(model_dir, is_described=earlier is not None)
        if earlier is not None:
            _require_same_configuration(model_dir, earlier, config)
        if precision == "auto" and earlier is not None:
            precision, reason = earlier.training.precision, "this training run started with it"
        if precision == "auto":
            tokens_per_part = config.training.tokens_per_batch // num_parts
            precision, reason = choose_precision(config.model, tokens_per_part, training=True)
        if precision != config.training.precision:
            _log.info(f"precision: {precision}, because {reason}")
    workers.require_same("the options", repr(config))
    precision = cast(TrainingPrecision, workers.from_chief(precision.encode()).decode())
    return dataclasses.replace(config, training=dataclasses.replace(config.training, precision=precision))


def _require_state(model_dir: ModelDir, is_described: bool) -> None:
    """Checks that the directory of an earlier run has its configuration, and what resuming needs."""
    # A run that is killed before it has saved a state leaves a checkpoint.
    paths = [model_dir.training_state_path, model_dir.previous_state_path, *model_dir.checkpoints().values()]
    of_training = [path for path in paths if path.is_file()]
    if is_described and not of_training and model_dir.is_trained():
        raise ConfigError(
            f"{model_dir}: the directory has trained weights, but no training_state.npz to resume from. To "
            f"continue from these weights, train in another --model-dir with --init-from {model_dir}"
        )
    if of_training and not is_described:
        raise ConfigError(
            f"{model_dir}: the directory has {of_training[0].relative_to(model_dir.path)} of an earlier training run, "
            "but no config.yaml. Put the file back, or train in another --model-dir"
        )


def _require_same_configuration(model_dir: ModelDir, old: Config, config: Config) -> None:
    """Checks that what a resumed run cannot change is as it was."""
    # The vocabulary may have turned out smaller than what was asked for.
    new = config.with_vocab_sizes(old.model.source_vocab_size, old.model.target_vocab_size)
    for section, names in (
        ("tokenizer", [field.name for field in dataclasses.fields(old.tokenizer)]),
        ("model", [field.name for field in dataclasses.fields(old.model)]),
        # Checkpoints are compared by `validate_by`; the state has the average of `ema`, and Adam's moments of the
        # weights that are not frozen.
        ("training", ["validate_by", "ema", "freeze"]),
    ):
        for name in names:
            before, now = getattr(getattr(old, section), name), getattr(getattr(new, section), name)
            if before != now:
                raise ConfigError(
                    f"{section}.{name} must be {before!r}, as in the model that {model_dir} holds; received "
                    f"{section}.{name}={now!r}. Resume with the old value, or train in another --model-dir"
                )


@contextlib.contextmanager
def directory_for_token_ids(model_dir: ModelDir) -> Iterator[pathlib.Path]:
    """A directory in the model directory while training runs: the system's own temporary files may be in memory."""
    for left_by_a_killed_run in (model_dir.path, model_dir.checkpoints_path):
        remove_leftovers(left_by_a_killed_run)
    with temporary_beside(model_dir.path / "token-ids", is_directory=True) as directory:
        yield directory


def write_description(model_dir: ModelDir, config: Config, tokenizers: TokenizerPair) -> None:
    """Writes what makes the directory a model directory."""
    if not model_dir.config_path.is_file():
        _move_foreign_files(model_dir, tokenizers)
    tokenizers.save(model_dir.path)
    model_dir.write_config(config)


def _move_foreign_files(model_dir: ModelDir, tokenizers: TokenizerPair) -> None:
    """Renames files that no training has written, but that have the name of a file that a training writes."""
    paths = [model_dir.log_path, model_dir.best_path, model_dir.average_path, model_dir.shortlist_path]
    for name, tokenizer in tokenizers.files().items():
        path = model_dir.path / name
        # A run that was killed before it wrote the configuration has written the tokenizers.
        if path.is_file() and path.read_bytes() != tokenizer.file_content:
            paths.append(path)
    for path in [*paths, *map(checksum_path, paths)]:
        if path.exists():
            names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
            free = next(name for name in names if not name.exists())
            path.rename(free)
            _log.info(f"{path} is not of this training: it is {free.name} now")
