"""Training: `fit` under `tf.distribute.MirroredStrategy`, one device or many, from the first step or a later one."""

import contextlib
import dataclasses
import itertools
import pathlib
import shutil
import sys
import tempfile

import keras

from keras_transformer.config import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.schedules import WarmupInverseSqrt
from keras_transformer.tokenizers import load_tokenizer

from .adam import Adam
from .average import average_checkpoints
from .batches import padding_share, steps_per_epoch, training_dataset, validation_dataset
from .buckets import make_buckets
from .checkpoints import SaveCheckpoints, is_out_of_patience, restore_training_state
from .devices import parts_at_once
from .subword_dropout import SubwordDropout
from .token_ids import encode
from .token_mean import TokenMeanTraining
from .validation import Validation
from .vocabulary import train_tokenizer


def train(recipe, train_pairs, valid_pairs, model_dir, strategy):
    """Trains a translator, or goes on where an earlier run with the same recipe stopped.

    Args:
        recipe: a `Recipe`.
        train_pairs, valid_pairs: `SentencePairs`.
        model_dir: path of the model directory; made if it does not stand.
        strategy: of `mirrored_strategy`.

    Raises:
        ConfigError: the directory holds a model of another configuration, or a value does not fit the text.
    """
    model_dir = ModelDir(model_dir)
    with _folder_for_token_ids(model_dir) as folder:
        _train(recipe, train_pairs, valid_pairs, model_dir, strategy, folder)


@contextlib.contextmanager
def _folder_for_token_ids(model_dir):
    """A folder in the model directory while training runs: a system's own for temporary files may lie in memory."""
    prefix = ".token-ids-"
    model_dir.path.mkdir(parents=True, exist_ok=True)
    for left_by_a_killed_run in model_dir.path.glob(f"{prefix}*"):
        shutil.rmtree(left_by_a_killed_run)
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=model_dir.path) as folder:
            yield pathlib.Path(folder)
    finally:
        # Where training did not begin, nothing is left behind.
        if not any(model_dir.path.iterdir()):
            model_dir.path.rmdir()


def _train(recipe, train_pairs, valid_pairs, model_dir, strategy, folder):
    training = recipe.training
    keras.utils.set_random_seed(training.seed)

    tokenizer = _tokenizer(recipe.tokenizer, train_pairs, model_dir)
    config = dataclasses.replace(
        recipe.model,
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
    )
    if model_dir.config_path.is_file():
        _require_same(model_dir, config, recipe.tokenizer, training)
    encoded = _encode_for_training(train_pairs, tokenizer, config.max_length, training, _made(folder / "train"))
    encoded_valid = encode(valid_pairs, tokenizer, config.max_length, _made(folder / "valid"))
    _report_pairs("train", encoded)
    _report_pairs("valid", encoded_valid)

    batching = dict(tokens_per_batch=training.tokens_per_batch, num_buckets=training.num_buckets)
    steps = steps_per_epoch(encoded, **batching)
    num_shapes = len(make_buckets(encoded.length_counts, **batching))
    padding = padding_share(encoded, **batching)
    batching["num_replicas"] = strategy.num_replicas_in_sync
    with strategy.scope():
        policy = "mixed_bfloat16" if training.precision == "bfloat16" else "float32"
        transformer = build_transformer(config, dtype=policy)
        model = TokenMeanTraining(
            transformer,
            training.label_smoothing,
            training.clip_norm,
            training.consistency,
            training.accumulate_steps,
            parts_at_once(strategy),
        )
        schedule = learning_rate(config.d_model, training)
        optimizer = Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
        model.compile(optimizer=optimizer)
        optimizer.build(model.trainable_variables)
        progress = restore_training_state(model_dir, model)
    # Nothing is written before all that was given has been read, and the model stands.
    tokenizer.save(model_dir.path / tokenizer.filename)
    model_dir.write_config(config, recipe.tokenizer, recipe.decoding, recipe.training)
    _say(
        f"{transformer.count_params():,} parameters, {strategy.num_replicas_in_sync} device(s), "
        f"{steps:,} steps an epoch in {num_shapes} shapes, {padding:.0%} padding"
    )
    if progress.step >= training.steps or is_out_of_patience(progress, training):
        _say(f"training ended already, after step {progress.step:,}")
    else:
        if progress.step:
            _say(f"going on after step {progress.step:,}")
        validation = Validation(
            valid_pairs, tokenizer, recipe.decoding, with_bleu=training.validate_by == "bleu"
        )
        batching["start_id"] = tokenizer.start_id
        _fit(model, encoded, encoded_valid, batching, validation, training, model_dir, progress)
        num_programs = model.num_traces // strategy.num_replicas_in_sync
        _say(f"{num_programs} training program(s) for {num_shapes} shapes")
    for name in ("last", "best"):
        if number := getattr(training, f"average_{name}"):
            paths = average_checkpoints(model_dir, **{name: number})
            _say(f"averaged the {name} {len(paths)} checkpoints into {model_dir.average_path}")


def _fit(model, encoded, encoded_valid, batching, validation, training, model_dir, progress):
    if not progress.step:
        model_dir.log_path.unlink(missing_ok=True)
    callbacks = [
        validation,
        keras.callbacks.CSVLogger(str(model_dir.log_path), append=True),
        keras.callbacks.TensorBoard(str(model_dir.tensorboard_path), write_graph=False),
        SaveCheckpoints(model_dir, training, progress),
    ]
    validation_batches = validation_dataset(encoded_valid, **batching)
    # Keras prints its progress on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        for steps, initial_epoch, epochs in intervals(
            progress.step, training.steps, training.validate_every
        ):
            model.fit(
                training_dataset(
                    encoded, seed=training.seed, first_step=progress.step, **batching
                ),
                steps_per_epoch=steps,
                initial_epoch=initial_epoch,
                epochs=epochs,
                validation_data=validation_batches,
                callbacks=callbacks,
                shuffle=False,
                verbose=1 if sys.stderr.isatty() else 2,
            )
            if is_out_of_patience(progress, training):
                _say(
                    f"ended after step {progress.step:,}: "
                    f"{training.patience} validations without a better one"
                )
                break


def intervals(step, steps, interval):
    """How `fit` is called for the updates from `step` to `steps`, with a validation at every multiple of `interval`.

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


def _tokenizer(config, train_pairs, model_dir):
    if model_dir.config_path.is_file():
        return load_tokenizer(model_dir.path)
    _say(f"learning a vocabulary of {config.vocab_size:,} tokens")
    return train_tokenizer(
        itertools.chain(train_pairs.source, train_pairs.target), config.kind, config.vocab_size
    )


def _encode_for_training(pairs, tokenizer, max_length, training, folder):
    if not training.subword_dropout:
        return encode(pairs, tokenizer, max_length, folder)
    sampler = SubwordDropout(tokenizer, training.subword_dropout, training.seed)
    return encode(pairs, sampler, max_length, folder, times=training.subword_samples)


def _made(folder):
    folder.mkdir()
    return folder


def learning_rate(d_model, training):
    """The schedule of a `TrainingConfig`."""
    warmup_steps = training.warmup_steps
    highest = (d_model * warmup_steps) ** -0.5
    peak = training.peak_learning_rate or highest
    if training.decay == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            decay_steps=max(training.steps - warmup_steps, 1),
            warmup_target=peak,
            warmup_steps=warmup_steps,
        )
    return WarmupInverseSqrt(d_model, warmup_steps, scale=peak / highest)


def _require_same(model_dir, model, tokenizer, training):
    old_model, old_tokenizer, _, old_training = model_dir.read_config()
    for section, old, new, names in (
        ("tokenizer", dataclasses.asdict(old_tokenizer), tokenizer, dataclasses.asdict(tokenizer)),
        ("model", dataclasses.asdict(old_model), model, dataclasses.asdict(model)),
        # Checkpoints are compared with earlier ones, and the log has columns for it.
        ("training", old_training, training, ["validate_by"]),
    ):
        for name in names:
            before, now = old.get(name), getattr(new, name)
            if before != now:
                raise ConfigError(
                    f"{model_dir} holds a model with {section}.{name}={before}; received {now}. "
                    "Train into another --model-dir, or with the old value"
                )


def _report_pairs(name, encoded):
    left_out = [
        f"{count:,} {reason}"
        for count, reason in ((encoded.num_empty, "empty"), (encoded.num_too_long, "too long"))
        if count
    ]
    note = f" (left out: {', '.join(left_out)})" if left_out else ""
    _say(f"{name}: {len(encoded):,} sentence pairs{note}")


def _say(message):
    print(message, file=sys.stderr, flush=True)
