"""Training: `fit` on one device or several, from the first step or where an earlier run stopped."""

import dataclasses
import functools
import logging
import os
from collections.abc import Sequence
from typing import TypedDict, Unpack, cast

import keras
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.config.values import TrainingPrecision
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import Transformer, build_transformer
from keras_transformer.runtime.device import choose_precision
from keras_transformer.runtime.progress import ProgressBar, counted, quiet

from ..alignment.shortlist import build_shortlist
from ..batches.pipeline import training_dataset, validation_dataset
from ..batches.plan import BatchPlan
from ..step.adam import Adam
from ..step.learning_rate import learning_rate
from ..step.model import TrainingModel
from ..text.corpus import SentencePairs
from ..text.fingerprint import require_same_text
from .average import average_checkpoints
from .checkpoints import is_out_of_patience
from .data import TrainingData, augmentation_of, prepare_data, tokenizers_of
from .directory import directory_for_token_ids, directory_in_use, require_resumable, write_description
from .interruption import Interruption
from .log import restore_log
from .loop import TrainingLoop, TrainingRun
from .memory import require_memory_to_train
from .progress_report import ProgressReport
from .state import restore_training_state
from .validation import greedy_translation, measure_bleu
from .workers import Workers

_log = logging.getLogger(__name__)


class RunOptions(TypedDict, total=False):
    """What `train` takes by name, and describes."""

    parallel_parts: int
    allow_changed_text: bool
    interruption: Interruption | None
    init_from: ModelDir | None
    callbacks: Sequence[keras.callbacks.Callback]


def train(
    config: Config,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs,
    model_dir: str | os.PathLike[str] | ModelDir,
    strategy: tf.distribute.Strategy,
    **options: Unpack[RunOptions],
) -> None:
    """Trains a translator, or resumes a training run that was stopped.

    Initial weights and dropout follow from Keras' global seed: call `keras.utils.set_random_seed` before, and before
    any tokenizer is loaded, because TensorFlow then loses the SentencePiece models that it holds.

    Args:
        config: Config, from `load_recipe`.
        train_pairs: SentencePairs to train on.
        valid_pairs: SentencePairs to validate on.
        model_dir: str, path or ModelDir; the directory is made if it does not exist.
        strategy: from `make_strategy`.
        parallel_parts: int. Into how many parts all devices together divide a batch, to compute them side by side:
            what `divide_cores` returns. Defaults to 1.
        allow_changed_text: bool. Whether a run may be resumed with another text. Defaults to False.
        interruption: Interruption or None. What signals do to the run. Defaults to None: what they do to any Python
            program.
        init_from: ModelDir or None. The model whose tokenizers and weights the training starts with; the
            configuration must be made from it (`load_recipe`). Defaults to None: a new vocabulary and random weights.
        callbacks: list of `keras.callbacks.Callback`, such as those of Weights & Biases or MLflow, or your own. Keras
            calls each validation the end of an epoch. Defaults to none.

    After each step, the logs that a callback gets have `loss`, the mean since the last validation. After each
    validation they have `step`, `learning_rate`, `loss`, `val_loss`, `val_perplexity`, `val_accuracy`, `val_bleu` if
    checkpoints are ranked by it, and `skipped_steps` in float16; by then everything is saved. `self.model.transformer`
    is the model. A callback that sets `self.model.stop_training = True` ends the run after the next validation, and
    the run can be resumed. Callbacks themselves are not saved.

    With several workers, each calls the callbacks that it was given, and all stop if one of them is asked to. Only the
    chief's logs have `val_bleu`, and only the chief saves.

    Raises:
        ConfigError: The directory holds a model with another configuration, the text is not that of the run that is
            resumed, or a value does not fit the text.
        LockedError: Another training runs in the directory.
        InvalidFileError: A file that the run starts from does not fit the model, or is damaged.
        DivergedError: The training diverged. What was saved before stays.
        MemoryLimitError: The model takes more memory than the machine has.
        OSError: A file cannot be written. What was saved before stays.

    Example:
        >>> from keras_transformer.training.recipe import load_recipe
        >>> class StopWhenGoodEnough(keras.callbacks.Callback):
        ...     def on_epoch_end(self, epoch, logs):
        ...         print("after step", logs["step"])
        ...         self.model.stop_training = logs["val_perplexity"] < 1e6
        >>> pairs = SentencePairs(["Anna sees a tree."] * 8, ["Anna sieht einen Baum."] * 8, name="invented")
        >>> model = ModelDir("models/en-de")
        >>> config = load_recipe("fine-tune", ["training.steps=9", "training.validate_every=3"], init_from=model)
        >>> train(
        ...     config,
        ...     pairs,
        ...     pairs,
        ...     "models/tuned",
        ...     tf.distribute.get_strategy(),
        ...     init_from=model,
        ...     callbacks=[StopWhenGoodEnough()],
        ... )
        after step 3
    """
    if unknown := set(options) - set(RunOptions.__annotations__):
        raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
    model_dir, init_from = ModelDir(model_dir), options.get("init_from")
    workers = Workers(strategy)
    if not workers.is_chief:
        _log.info(f"{workers.name}: the chief shows the progress")
    with workers.naming_the_lost(), directory_in_use(model_dir, workers), quiet(not workers.is_chief):
        if workers.is_chief:
            require_resumable(model_dir, config)
        workers.require_same("the options", repr(config))
        parts_per_device = max(options.get("parallel_parts", 1) // len(workers.replicas), 1)
        num_parts = strategy.num_replicas_in_sync * parts_per_device
        require_memory_to_train(config)
        config = _with_precision(config, model_dir, num_parts, workers)
        augmentation = augmentation_of(config)
        # In the shapes in which the model sees it.
        seen_pairs = augmentation.text(train_pairs) if augmentation else train_pairs
        with directory_for_token_ids(model_dir) as directory:
            tokenizers = tokenizers_of(config, seen_pairs, model_dir, init_from, workers, directory)
            config = config.with_vocab_sizes(*(tokenizer.vocab_size for tokenizer in tokenizers))
            # Before the whole text is tokenized: a model that does not fit into memory is noticed early.
            model = _build_model(config, strategy, parts_per_device)
            data = prepare_data(config, train_pairs, valid_pairs, tokenizers, augmentation, num_parts, directory)
            with strategy.scope():
                state = restore_training_state(model_dir, model, workers, init_from)
            if not options.get("allow_changed_text"):
                require_same_text(model_dir, state.text, data.fingerprint)
            state.text = data.fingerprint
            workers.require_same("the texts", repr(state.text))
            if workers.is_chief:
                # Nothing is written before everything that was given has been read.
                write_description(model_dir, config, tokenizers)
            _report(model, data.train, workers)
            interruption = options.get("interruption") or Interruption()
            run = TrainingRun(model, config, model_dir, state, workers, interruption)
            _fit(run, data, valid_pairs, options.get("callbacks", ()))
        if workers.is_chief:
            _average(config, model_dir)
            if config.decoding.shortlist and not model_dir.shortlist_path.is_file():
                build_shortlist(model_dir, seen_pairs, tokenizers, config.model.max_length)


def _with_precision(config: Config, model_dir: ModelDir, num_parts: int, workers: Workers) -> Config:
    """The configuration with the precision that was chosen when training began, or that the chief chooses now."""
    if config.training.precision != "auto":
        return config
    precision: TrainingPrecision = "auto"
    if workers.is_chief:
        precision = model_dir.read_config().training.precision if model_dir.config_path.is_file() else "auto"
        reason = "this training run started with it"
        if precision == "auto":
            tokens_per_part = config.training.tokens_per_batch // num_parts
            precision, reason = choose_precision(config.model, tokens_per_part, training=True)
        _log.info(f"precision: {precision}, because {reason}")
    precision = cast(TrainingPrecision, workers.from_chief(precision.encode()).decode())
    return dataclasses.replace(config, training=dataclasses.replace(config.training, precision=precision))


def _build_model(config: Config, strategy: tf.distribute.Strategy, parts_per_device: int) -> TrainingModel:
    with strategy.scope():
        precision = config.training.precision
        policy = "float32" if precision == "float32" else f"mixed_{precision}"
        transformer = build_transformer(config.model, dtype=policy)
        _freeze(transformer, config.training.freeze)
        schedule = learning_rate(config.model.d_model, config.training)
        # Section 5.3 of the paper.
        optimizer = Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9, skip_nan=precision == "float16")
        optimizer.build(transformer.trainable_variables)
    model = TrainingModel(transformer, config.training, parts_per_device, strategy)
    # The model scales its loss itself; Keras' way fails under a strategy.
    model.compile(optimizer=optimizer, auto_scale_loss=False)
    return model


def _freeze(transformer: Transformer, parts: str) -> None:
    if parts in ("embeddings", "both"):
        transformer.source_embedding.trainable = transformer.target_embedding.trainable = False
    if parts in ("encoder", "both"):
        transformer.encoder.trainable = False


def _fit(
    run: TrainingRun, data: TrainingData, valid_pairs: SentencePairs, callbacks: Sequence[keras.callbacks.Callback]
) -> None:
    model, state, training = run.model, run.state, run.config.training
    run.interruption.saved_step = state.step
    if run.workers.is_chief:
        restore_log(run.model_dir, state)
    if run.workers.any(state.step >= training.steps or is_out_of_patience(state, training)):
        _log.info(f"training has already ended, after step {state.step:,}")
        return
    if state.step:
        _log.info(f"resuming after step {state.step:,}")
    bleu = None
    if run.workers.is_chief and training.validate_by == "bleu":
        translate = greedy_translation(model, data.tokenizers, run.config.decoding)
        bleu = functools.partial(measure_bleu, translate, valid_pairs)
    with ProgressBar("training", "steps", training.steps, done=state.step) as bar:
        report = ProgressReport(bar, data.train.pairs.num_target_tokens / data.train.num_steps)
        loop = TrainingLoop(run, report, bleu, callbacks)
        for steps, initial_epoch, epochs in intervals(state.step, training.steps, training.validate_every):
            loop.set_params({"steps": steps, "epochs": -(-training.steps // training.validate_every), "verbose": 0})
            train_batches, valid_batches = _batches(data, training.seed, state.step, model.strategy, run.workers)
            model.fit(
                train_batches,
                steps_per_epoch=steps,
                initial_epoch=initial_epoch,
                epochs=epochs,
                validation_data=valid_batches,
                validation_steps=data.valid.num_steps,
                callbacks=loop,
                shuffle=False,
                verbose=0,
            )
            if model.stop_training:
                break
        loop.finish()
    run.interruption.is_awaited = False
    if is_out_of_patience(state, training):
        _log.info(f"stopped after step {state.step:,}: {training.patience} validations without a new best")
    elif state.step < training.steps:
        _log.info(f"stopped after step {state.step:,} by a callback; run the same command to resume")


def _batches(
    data: TrainingData, seed: int, first_step: int, strategy: tf.distribute.Strategy, workers: Workers
) -> tuple[tf.distribute.DistributedDataset, tf.distribute.DistributedDataset]:
    """The shares of the replicas of this process in the batches to train and to validate on."""
    shares = dict(
        start_id=data.tokenizers.target.start_id, replicas=workers.replicas, num_replicas=strategy.num_replicas_in_sync
    )
    train = training_dataset(data.train, seed=seed, first_step=first_step, **shares)
    # Endless: several workers would have to agree after each batch on whether there is another one.
    valid = validation_dataset(data.valid, **shares).repeat()
    train, valid = (strategy.distribute_datasets_from_function(lambda _, each=each: each) for each in (train, valid))
    return train, valid


def intervals(step: int, steps: int, interval: int) -> list[tuple[int, int, int]]:
    """Plans the calls of `fit` for the updates from `step` to `steps`, with a validation every `interval` updates.

    What lies between two validations is one of Keras' epochs.

    Returns:
        A list of `(steps_per_epoch, initial_epoch, epochs)`.

    Example:
        >>> intervals(step=5, steps=18, interval=4)
        [(3, 1, 2), (4, 2, 4), (2, 4, 5)]
    """
    calls = []
    while step < steps:
        epoch, done = divmod(step, interval)
        if done or steps - step < interval:
            length, epochs = min(interval - done, steps - step), epoch + 1
        else:
            length, epochs = interval, steps // interval
        calls.append((length, epoch, epochs))
        step += length * (epochs - epoch)
    return calls


def _average(config: Config, model_dir: ModelDir) -> None:
    for name in ("last", "best"):
        if number := getattr(config.training, f"average_{name}"):
            paths = average_checkpoints(model_dir, **{name: number})
            _log.info(f"averaged the {name} {counted(len(paths), 'checkpoint')} into {model_dir.average_path}")


def _report(model: TrainingModel, plan: BatchPlan, workers: Workers) -> None:
    devices = counted(model.strategy.num_replicas_in_sync, "device")
    if workers.number > 1:
        devices += f" of {workers.number} workers"
    _log.info(
        f"{model.transformer.count_params():,} parameters, {devices}; "
        f"one pass over the text takes {counted(plan.num_steps, 'step')}, with batches of "
        f"{counted(len(plan.buckets), 'shape')} and {plan.padding_share:.0%} padding"
    )
