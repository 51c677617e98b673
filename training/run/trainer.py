"""Training on one device or several, from the first step or where an earlier run stopped."""

import functools
import logging
import os
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import require_memory
from keras_transformer.runtime.progress import ProgressBar, counted, quiet

from ..alignment.shortlist import build_shortlist
from ..step.model import build_training_model
from ..text.corpus import SentencePairs
from ..text.fingerprint import require_same_text
from .checkpoints import average_checkpoints
from .data import TrainingText
from .devices import Workers
from .directory import directory_for_token_ids, directory_in_use, resumable_config, write_description
from .interruption import Interruption
from .loop import TrainingRun, run_loop
from .report import ProgressReport, restore_log
from .state import restore_training_state
from .validation import greedy_translators, measure_bleu

_log = logging.getLogger(__name__)


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
) -> None:
    """Trains a translator, or resumes a training run that was stopped.

    Initial weights and dropout follow from Keras' global seed: call `keras.utils.set_random_seed` before, and before
    any tokenizer is loaded, because TensorFlow then loses the SentencePiece models that it holds.

    Args:
        config: from `load_recipe`.
        train_pairs: pairs to train on.
        valid_pairs: pairs to validate on.
        model_dir: the directory is made if it does not exist.
        strategy: from `make_strategy`.
        parallel_parts: into how many parts all devices together divide a batch, to compute them side by side: what
            `divide_cores` returns. Defaults to 1.
        allow_changed_text: whether a run may be resumed with another text. Defaults to False.
        interruption: what signals do to the run. Defaults to None: what they do to any Python program.
        init_from: the model whose tokenizers and weights the training starts with; the configuration must be made from
            it (`load_recipe`). Defaults to None: a new vocabulary and random weights.
        callbacks: such as those of Weights & Biases or MLflow, or your own. For them, each validation is the end of an
            epoch. Defaults to none.

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
    model_dir, workers = ModelDir(model_dir), Workers(strategy)
    if not workers.is_chief:
        _log.info(f"{workers.name}: the chief shows the progress")
    with workers.naming_the_lost(), directory_in_use(model_dir, workers), quiet(not workers.is_chief):
        _require_memory(config)
        parts_per_device = max(parallel_parts // len(workers.replicas), 1)
        num_parts = strategy.num_replicas_in_sync * parts_per_device
        config = resumable_config(model_dir, config, workers, num_parts)
        training = config.training
        text = TrainingText(config, train_pairs, valid_pairs)
        with directory_for_token_ids(model_dir) as directory:
            tokenizers = text.tokenizers(model_dir, init_from, workers, directory)
            config = config.with_vocab_sizes(*(tokenizer.vocab_size for tokenizer in tokenizers))
            # Before the whole text is tokenized: a model that does not fit into memory is noticed early.
            model = build_training_model(config.model, training, strategy, parts_per_device)
            data = text.plan(tokenizers, num_parts, directory)
            with strategy.scope():
                state = restore_training_state(model_dir, model, workers, init_from)
            if not allow_changed_text:
                require_same_text(model_dir, state.text, data.fingerprint)
            state.text = data.fingerprint
            workers.require_same("the texts", repr(state.text))
            measure = None
            if workers.is_chief:
                # Nothing is written before everything that was given has been read.
                write_description(model_dir, config, tokenizers)
                restore_log(model_dir, state.rows, state.step)
                if training.validate_by == "bleu":
                    translators = greedy_translators(model.validated, tokenizers, config.decoding)
                    measure = functools.partial(measure_bleu, translators, valid_pairs)
            devices = counted(strategy.num_replicas_in_sync, "device")
            if workers.number > 1:
                devices += f" of {workers.number} workers"
            _log.info(
                f"{model.transformer.count_params():,} parameters, {devices}; "
                f"one pass over the text takes {counted(data.train.num_steps, 'step')}, with batches of "
                f"{counted(len(data.train.buckets), 'shape')} and {data.train.padding_share:.0%} padding"
            )
            run = TrainingRun(model, training, model_dir, state, workers, interruption or Interruption(), measure)
            if workers.any(state.step >= training.steps or run.is_out_of_patience()):
                _log.info(f"training has already ended, after step {state.step:,}")
            else:
                if state.step:
                    _log.info(f"resuming after step {state.step:,}")
                start_id = tokenizers.target.start_id
                batches = data.batches(training.seed, start_id, state.step, strategy, workers.replicas)
                with ProgressBar("training", "steps", training.steps, done=state.step) as bar:
                    report = ProgressReport(bar, data.train.pairs.num_target_tokens / data.train.num_steps)
                    run_loop(run, batches, report, callbacks)
        if workers.is_chief:
            for name, number in (("last", training.average_last), ("best", training.average_best)):
                if number:
                    paths = average_checkpoints(model_dir, **{name: number})
                    _log.info(f"averaged the {name} {counted(len(paths), 'checkpoint')} into {model_dir.average_path}")
            if config.decoding.shortlist and not model_dir.shortlist_path.is_file():
                build_shortlist(model_dir, text.seen_pairs)


def _require_memory(config: Config) -> None:
    """Checks that the machine has the memory that training takes at least, before anything is allocated.

    All variables are in float32: weights, their moving average, and of weights that are trained the two moments of
    Adam and the gradients. With a GPU the gradients are in its memory; all variables are copied out of it to be saved.
    What is computed from a batch comes on top.
    """
    copies = 1 + (config.training.ema > 0)
    # How many of the weights are frozen does not follow from the number of parameters.
    if config.training.freeze == "none":
        copies += 2 if tf.config.list_physical_devices("GPU") else 3
    require_memory(config.model.num_parameters, 4 * copies, "to train")
