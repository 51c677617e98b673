"""Trains on one or several devices, from the first step or from where an earlier run stopped.

The functions below `train` are its steps: they load or learn the tokenizers, plan the batches, and
check that the run fits the model directory.
"""

import contextlib
import dataclasses
import itertools
import logging
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.checks import require, shown
from keras_transformer.config import Config
from keras_transformer.config.values import TrainingPrecision
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import require_fitting, require_memory
from keras_transformer.model_dir.files import (
    checksum_path,
    naming_errors,
    remove_leftovers,
)
from keras_transformer.runtime.device import choose_precision
from keras_transformer.runtime.progress import ProgressBar, counted, quiet
from keras_transformer.tokenizers import (
    SentencePieceTokenizer,
    TokenizerPair,
    load_tokenizers,
    tokenizer_filenames,
)
from keras_transformer.tokenizers.placeholders import SpanFinder, span_finder
from keras_transformer.tokenizers.text_codec import TextCodec

from ..alignment.model_1 import learn_lexicon
from ..alignment.shortlist import build_shortlist
from ..batches.augmentation import Augmentation, SubwordDropout, TermAnnotation
from ..batches.encoded_pairs import EncodedPairs, Epochs, align_encoded, encode
from ..batches.pipeline import BatchPlan, plan_batches, training_dataset, validation_dataset
from ..batches.token_cache import TokenCache, settings_of_training, settings_of_validation
from ..batches.vocabulary import learn_tokenizers
from ..bleu import choose_tokenizer
from ..step.model import build_training_step
from ..step.optimizer import learning_rate
from ..text.corpus import SentencePairs, TextFingerprint
from .devices import Workers
from .earlier_run import completed, require_possible
from .interruption import Interruption
from .loop import TrainingRun, run_loop
from .report import ProgressReport, bleu_measure, restore_log
from .selection import average_if_better, encode_validation
from .state import restore_training_state

_log = logging.getLogger(__name__)

# Warn if at least this share of the tokens is unknown. A vocabulary leaves out only one in 10,000
# characters of the text from which it is learned.
_NOTABLE_SHARE = 0.01


def train(
    config: Config,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs,
    model_dir: str | os.PathLike[str] | ModelDir,
    strategy: tf.distribute.Strategy,
    *,
    parallel_parts: int = 1,
    allow_changed_text: bool = False,
    interruption: Interruption | None = None,
    init_from: ModelDir | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    token_cache: str | os.PathLike[str] | bool = True,
) -> None:
    """Trains a translation model, or resumes a training run that was stopped.

    Initial weights and dropout depend on Keras' global seed. Call `keras.utils.set_random_seed`
    first, before you load any tokenizer, because setting the seed makes TensorFlow lose the
    SentencePiece models that it has loaded.

    Args:
        config: The configuration from `load_recipe`.
        train_pairs: Pairs to train on.
        valid_pairs: Pairs to validate on.
        model_dir: The model directory, which is created if it does not exist.
        strategy: The strategy from `make_strategy`.
        parallel_parts: Number of parts into which all devices together divide a batch, to compute
            them in parallel (see `divide_cores`). Defaults to 1.
        allow_changed_text: Whether a run may be resumed with another text. Defaults to False.
        interruption: Handles signals during the run. Defaults to None: signals have the same effect
            as in any Python program.
        init_from: The model whose tokenizers and weights the training starts with. Load the
            configuration with the same `init_from` (`load_recipe`). Defaults to None: a new
            vocabulary and random weights.
        callbacks: Keras callbacks, for example from Weights & Biases or MLflow, or your own. For
            them, each validation is the end of an epoch. Defaults to no callbacks.
        token_cache: Where to keep the token ids of the texts, which the next start uses again if
            neither the texts nor the settings for them have changed: True for the folder `tokens`
            of the model directory, or the path of a directory that several trainings may share.
            With False, they are removed when training ends. Defaults to True.

    After each step, the logs that a callback receives contain `loss`, the mean since the last
    validation. After each validation, they contain `step`, `learning_rate`, `loss`, `val_loss`,
    `val_perplexity` and `val_accuracy`; also `val_bleu` and `val_chrf` if BLEU ranks checkpoints,
    and `skipped_steps` in float16. By then, everything is saved. `self.model.transformer` is the
    model. If a callback sets `self.model.stop_training = True`, the run ends after the next
    validation, and you can resume it. The state of callbacks is not saved.

    With several workers, each worker calls its own callbacks, and all workers stop if a callback
    stops any of them. Only the chief's logs contain `val_bleu` and `val_chrf`, and only the chief
    saves.

    Raises:
        ConfigError: The run in the directory cannot be resumed with this configuration or this
            text, or a value does not fit the text.
        LockedError: Another training is running in the directory.
        InvalidFileError: A file that the run starts from does not fit the model, or is damaged.
        DivergedError: The training diverged. Everything that was saved before is kept.
        MemoryLimitError: The model needs more memory than the machine has.
        OSError: A file cannot be written. Everything that was saved before is kept.

    Example:
        >>> from keras_transformer.training.recipe import load_recipe
        >>> class StopWhenGoodEnough(keras.callbacks.Callback):
        ...     def on_epoch_end(self, epoch, logs):
        ...         print("after step", logs["step"])
        ...         self.model.stop_training = logs["val_perplexity"] < 1e6
        >>> sources, targets = ["Anna sees a tree."] * 8, ["Anna sieht einen Baum."] * 8
        >>> pairs = SentencePairs(sources, targets, name="invented")
        >>> model = ModelDir("models/en-de")
        >>> settings = ["training.steps=9", "training.validate_every=3"]
        >>> config = load_recipe("fine-tune", settings, init_from=model)
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
    model_dir = ModelDir(model_dir)
    workers = Workers(strategy)
    if not workers.is_chief:
        _log.info(f"{workers.name}: the chief shows the progress")
    with (
        workers.naming_the_lost(),
        _directory_in_use(model_dir, workers),
        quiet(not workers.is_chief),
    ):
        _require_memory(config)
        parts_per_device = max(parallel_parts // len(workers.replicas), 1)
        num_parts = strategy.num_replicas_in_sync * parts_per_device
        config = _resumable_config(model_dir, config, workers, init_from)
        training = config.training
        augmentation = None
        seen_pairs = train_pairs
        if config.data.augment:
            spans = SpanFinder.of(config.decoding)
            augmentation = Augmentation(config.data.augment, training.seed, spans)
            # Learn vocabularies and shortlists from the text as the model sees it.
            seen_pairs = augmentation.text(train_pairs)
        remove_leftovers(model_dir.checkpoints_path)
        with TokenCache(model_dir, token_cache) as cache:
            tokenizers = load_or_learn_tokenizers(
                config, seen_pairs, model_dir, init_from, workers, cache.temporary
            )
            # Raise an error here if the vocabulary does not support the translation settings.
            TextCodec.for_translation(tokenizers, config.model.max_length, config.decoding)
            config = config.with_vocab_sizes(*(tokenizer.vocab_size for tokenizer in tokenizers))
            if init_from is not None and workers.is_chief and not model_dir.is_trained():
                require_fitting(init_from.weights_path(), config.model)
            # Build the model before tokenizing the whole text, so that a model that does not fit
            # into memory fails early.
            model = build_training_step(config.model, training, strategy, parts_per_device)
            plan, valid_plan = plan_texts(
                config, train_pairs, valid_pairs, augmentation, tokenizers, num_parts, cache
            )
            with strategy.scope():
                state = restore_training_state(model_dir, model, workers, init_from)
            fingerprints = {"train": plan.pairs.fingerprint, "valid": valid_plan.pairs.fingerprint}
            if not allow_changed_text:
                _require_same_text(model_dir, state.text, fingerprints)
            if state.text.get("valid", fingerprints["valid"]) != fingerprints["valid"]:
                _log.info("the validation text has changed: earlier validations no longer count")
                state.forget_scores()
            state.text = fingerprints
            workers.require_same("the texts", repr(state.text))
            cache.commit()
            measure = None
            earlier = config
            if workers.is_chief:
                # Do not write anything before all inputs have been read.
                if model_dir.config_path.is_file():
                    earlier = model_dir.read_config()
                else:
                    _move_foreign_files(model_dir, tokenizers)
                tokenizers.save(model_dir.path)
                if training.validate_by == "bleu" and training.bleu_tokenizer is None:
                    training = dataclasses.replace(
                        training, bleu_tokenizer=choose_tokenizer(valid_pairs.target)
                    )
                    config = dataclasses.replace(config, training=training)
                model_dir.write_config(config)
                restore_log(model_dir, state.rows, state.step)
                if training.validate_by == "bleu":
                    measure = bleu_measure(model.model_to_save, tokenizers, config, valid_pairs)
            devices = counted(strategy.num_replicas_in_sync, "device")
            if workers.number > 1:
                devices += f" of {workers.number} workers"
            steps_of_pass = math.ceil(plan.num_steps / _num_copies(config))
            _log.info(
                f"{model.transformer.count_params():,} parameters, {devices}; "
                f"one pass over the text takes {counted(steps_of_pass, 'step')}, with batches of "
                f"{counted(len(plan.buckets), 'shape')} and {plan.padding_share:.0%} padding"
            )
            run = TrainingRun(
                model, model_dir, state, workers, interruption or Interruption(), measure
            )
            if workers.any(state.step >= training.steps or run.is_out_of_patience()):
                _log.info(f"training has already ended, after step {state.step:,}")
            else:
                if state.step:
                    _log.info(f"resuming after step {state.step:,}")
                    _warn_of_another_rate(earlier, config, state.step)
                shares = dict(
                    start_id=tokenizers.target.start_id,
                    replicas=workers.replicas,
                    num_replicas=strategy.num_replicas_in_sync,
                )
                train_batches = training_dataset(
                    plan, seed=training.seed, first_step=state.step, **shares
                )
                # Repeat the validation batches endlessly. Otherwise, the workers would have to
                # agree after each batch on whether there is another batch.
                valid_batches = validation_dataset(valid_plan, **shares).repeat()
                with ProgressBar("training", "steps", training.steps, done=state.step) as bar:
                    report = ProgressReport(bar, plan.pairs.num_target_tokens / plan.num_steps)
                    run_loop(
                        run, train_batches, valid_batches, valid_plan.num_steps, report, callbacks
                    )
        if workers.is_chief:
            if training.average_last:
                average_if_better(model_dir, valid_pairs, last=training.average_last)
            if training.average_best:
                average_if_better(model_dir, valid_pairs, best=training.average_best)
            if config.decoding.shortlist and not model_dir.shortlist_path.is_file():
                build_shortlist(model_dir, seen_pairs)


def load_or_learn_tokenizers(
    config: Config,
    pairs: SentencePairs,
    model_dir: ModelDir,
    init_from: ModelDir | None,
    workers: Workers,
    directory: pathlib.Path,
) -> TokenizerPair:
    """Loads the tokenizers of an earlier run or of `init_from`, or learns them from the pairs.

    Workers other than the chief receive the chief's tokenizers, and store them in `directory`.
    """
    if not workers.is_chief:
        for name in tokenizer_filenames(config.tokenizer):
            path = directory / name
            content = workers.from_chief(b"")
            with naming_errors(path):
                path.write_bytes(content)
        return load_tokenizers(directory, config.tokenizer, config.data.normalization)
    trained = model_dir if model_dir.is_trained() else init_from
    if trained is not None:
        tokenizers = load_tokenizers(trained.path, config.tokenizer, config.data.normalization)
    else:
        tokenizers = learn_tokenizers(
            pairs, config.tokenizer, config.data.terms > 0, config.data.normalization
        )
    for tokenizer in tokenizers.files().values():
        workers.from_chief(tokenizer.file_content)
    return tokenizers


def plan_texts(
    config: Config,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs,
    augmentation: Augmentation | None,
    tokenizers: TokenizerPair,
    num_parts: int,
    cache: TokenCache,
) -> tuple[BatchPlan, BatchPlan]:
    """Tokenizes both texts, or finds their token ids in the cache, and plans the batches.

    Each batch can be divided into `num_parts` equal parts.
    """
    train_ids = cache.get(
        "train",
        train_pairs,
        settings_of_training(config, tokenizers, _num_copies(config)),
        lambda directory: encode_training(config, train_pairs, augmentation, tokenizers, directory),
    )
    valid_ids = cache.get(
        "valid",
        valid_pairs,
        settings_of_validation(config, tokenizers),
        lambda directory: encode_validation(config, valid_pairs, tokenizers, directory),
    )
    # A source vocabulary may spell the translations of terms in bytes. Validation text contains no
    # annotated terms.
    sides = ["target"] if config.data.terms else TokenizerPair._fields
    _report_pairs("training text", train_ids, tokenizers, sides)
    _report_pairs("validation text", valid_ids, tokenizers)
    training = config.training
    sizes = training.tokens_per_batch, training.num_buckets, num_parts
    return plan_batches(train_ids, *sizes), plan_batches(valid_ids, *sizes)


def encode_training(
    config: Config,
    pairs: SentencePairs,
    augmentation: Augmentation | None,
    tokenizers: TokenizerPair,
    directory: pathlib.Path,
) -> EncodedPairs:
    """Tokenizes the training text, with its random changes, and writes the token ids to files.

    `settings_of_training` returns every setting that this function may use.

    Args:
        directory: A new directory for the token ids.
    """
    training = config.training
    samplers = tokenizers
    if training.subword_dropout:
        # Both sides share a sampler if they share the vocabulary.
        dropouts = [
            SubwordDropout(
                cast(SentencePieceTokenizer, tokenizer), training.subword_dropout, training.seed
            )
            for tokenizer in tokenizers.files().values()
        ]
        samplers = TokenizerPair(dropouts[0], dropouts[-1])
    terms = None
    share = config.data.terms
    if share:
        has_pieces = len(tokenizers.source.term_ids) > 0
        require(has_pieces, "data.terms", "0 for a vocabulary without pieces for terms", share)
        terms = TermAnnotation(learn_lexicon(pairs), share, training.seed)
    epochs = Epochs(pairs, _num_copies(config), augmentation, terms)
    spans = span_finder(config.decoding, tokenizers)
    codec = TextCodec(samplers, config.model.max_length, spans, are_annotated=terms is not None)
    encoded = encode(epochs, codec, directory)
    return align_encoded(encoded) if training.guided_alignment else encoded


def _num_copies(config: Config) -> int:
    """Returns how many copies of the text are encoded, each with different random changes."""
    changes = config.training.subword_dropout or config.data.augment or config.data.terms
    return config.training.subword_samples if changes else 1


def _report_pairs(
    name: str,
    pairs: EncodedPairs,
    tokenizers: TokenizerPair,
    sides: Sequence[str] = TokenizerPair._fields,
) -> None:
    """Logs the number of pairs, and warns if the vocabulary of a side hardly covers its text."""
    left_out = []
    if pairs.num_empty:
        left_out.append(f"{pairs.num_empty:,} empty")
    if pairs.num_too_long:
        left_out.append(f"{pairs.num_too_long:,} too long")
    remark = f" (left out: {', '.join(left_out)})" if left_out else ""
    _log.info(f"{name}: {counted(len(pairs), 'sentence pair')}{remark}")
    for side in sides:
        tokenizer = getattr(tokenizers, side)
        # The first block is representative, because pairs were assigned to blocks at random.
        share = np.isin(np.asarray(pairs.token_ids(side, 0)), tokenizer.unknown_ids()).mean()
        if share >= _NOTABLE_SHARE:
            _log.warning(
                f"{name}: {share:.1%} of the {side} tokens are unknown to the vocabulary or "
                "spelled in bytes, as with another script; a model learns little from them"
            )


def _require_memory(config: Config) -> None:
    """Checks that the machine has the minimum memory that training needs.

    All variables are float32: weights and their moving average, and, for weights that are trained,
    Adam's two moments and the gradients. With a GPU, the gradients are in GPU memory, but all
    variables are copied to main memory to be saved. The memory for computing a batch is not
    included.
    """
    copies = 1 + (config.training.ema > 0)
    # Count moments and gradients only if no weights are frozen, because the number of frozen
    # weights is not known here.
    if config.training.freeze == "none":
        copies += 2 if tf.config.list_physical_devices("GPU") else 3
    require_memory(config.model.num_parameters, 4 * copies, "to train")


@contextlib.contextmanager
def _directory_in_use(model_dir: ModelDir, workers: Workers) -> Iterator[None]:
    """Creates the directory if it does not exist, and locks it against other training runs."""
    model_dir.path.mkdir(parents=True, exist_ok=True)
    lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if workers.is_chief:
        lock = model_dir.lock_for_training()
    try:
        with lock:
            yield
    finally:
        # If the run did not start, the directory is empty and can be removed.
        with contextlib.suppress(OSError):
            model_dir.path.rmdir()


def _resumable_config(
    model_dir: ModelDir, config: Config, workers: Workers, init_from: ModelDir | None
) -> Config:
    """Returns the configuration of a new or resumed run with its precision and normal form.

    If the configuration does not set them, a resumed run uses the values that it started with.
    """
    given = repr(config)
    precision = config.training.precision
    normalize = config.data.normalize or "nfc"
    if workers.is_chief:
        earlier = require_possible(model_dir, config, init_from)
        if earlier is not None:
            config = completed(config, earlier)
            normalize = config.data.normalization
        if precision == "auto" and earlier is not None:
            precision = earlier.training.precision
            reason = "this training run started with it"
        if precision == "auto":
            precision, reason = choose_precision(training=True)
        if precision != config.training.precision:
            _log.info(f"precision: {precision}, because {reason}")
    workers.require_same("the options", given)
    precision = cast(TrainingPrecision, workers.from_chief(precision.encode()).decode())
    training = dataclasses.replace(config.training, precision=precision)
    normalize = workers.from_chief(normalize.encode()).decode()
    data = dataclasses.replace(config.data, normalize=normalize)
    return dataclasses.replace(config, training=training, data=data)


def _warn_of_another_rate(earlier: Config, config: Config, step: int) -> None:
    """Warns if a change of the configuration changes the learning rate of the next step.

    The schedule always spans all steps. After the end of a cosine schedule, where the rate is 0,
    additional steps make the rate jump up.
    """
    before, now = earlier.training, config.training
    rates = [float(learning_rate(config.model.d_model, each)(step)) for each in (before, now)]
    if rates[0] == rates[1]:
        return
    changes = [
        f"training.{name}={shown(getattr(before, name))}"
        for name in ("steps", "warmup_steps", "peak_learning_rate", "decay")
        if getattr(before, name) != getattr(now, name)
    ]
    _log.warning(
        f"the learning rate of step {step + 1:,} is {rates[1]:.2e}; with "
        f"{', '.join(changes)}, as before, it would be {rates[0]:.2e}"
    )


def _move_foreign_files(model_dir: ModelDir, tokenizers: TokenizerPair) -> None:
    """Renames files of other programs whose names training needs for its own files."""
    paths = [
        model_dir.log_path,
        model_dir.best_path,
        model_dir.average_path,
        model_dir.shortlist_path,
    ]
    for name, tokenizer in tokenizers.files().items():
        path = model_dir.path / name
        # Tokenizers with the same content are from a run that was killed before it wrote the
        # configuration.
        if path.is_file() and path.read_bytes() != tokenizer.file_content:
            paths.append(path)
    for path in [*paths, *map(checksum_path, paths)]:
        if path.exists():
            names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
            free = next(name for name in names if not name.exists())
            path.rename(free)
            _log.info(f"{path} does not belong to this training; renamed to {free.name}")


def _require_same_text(
    model_dir: ModelDir, before: Mapping[str, TextFingerprint], now: Mapping[str, TextFingerprint]
) -> None:
    """Checks that the texts of a resumed run are the same as when it started."""
    differences = [
        f"the {what} text {_difference(before[name], now[name])}"
        for name, what in (("train", "training"), ("valid", "validation"))
        if name in before and before[name] != now[name]
    ]
    if differences:
        raise ConfigError(
            f"{model_dir}: this training run started with another text: {'; '.join(differences)}. "
            "Use the same text, train in another --model-dir, "
            "or continue with this text: --allow-changed-text"
        )


def _difference(before: TextFingerprint, now: TextFingerprint) -> str:
    if (before["source"], before["target"]) == (now["target"], now["source"]):
        return "has source and target swapped"
    sides = []
    if before["source"] != now["source"]:
        sides.append("source")
    if before["target"] != now["target"]:
        sides.append("target")
    lines = "as many lines"
    if before["lines"] != now["lines"]:
        lines = f"{now['lines']:,} lines, {before['lines']:,} before"
    return f"has another {' and '.join(sides)} ({lines})"
