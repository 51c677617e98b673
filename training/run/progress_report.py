"""What people see of a training that runs."""

import collections
import logging
import time
from typing import Any

import keras

from keras_transformer.runtime.progress import ProgressBar, counted

_log = logging.getLogger(__name__)

# The bar's speed is that of so many steps.
_LAST_STEPS = 50
_SECONDS_PER_DESCRIPTION = 0.5


class ReportProgress(keras.callbacks.Callback):
    """Moves a bar on with every step, and says a line after every validation.

    It goes after the callbacks that add to the log.

    Args:
        bar: ProgressBar that counts steps.
        target_tokens_per_step: float. The mean number of target tokens in a batch, without padding.
    """

    def __init__(self, bar: ProgressBar, target_tokens_per_step: float) -> None:
        super().__init__()
        self.bar = bar
        self.target_tokens_per_step = target_tokens_per_step

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begin = self._described = time.monotonic()
        self._last_ends = collections.deque([self._begin], maxlen=_LAST_STEPS + 1)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        now = time.monotonic()
        self._last_ends.append(now)
        self._num_steps = batch + 1
        self.bar.advance()
        # Not at every step: to read the loss takes a moment, and waits for a GPU.
        if now - self._described >= _SECONDS_PER_DESCRIPTION:
            self._described = now
            speed = self._speed(len(self._last_ends) - 1, now - self._last_ends[0])
            loss = float(keras.ops.convert_to_numpy(logs["loss"]))
            learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            self.bar.details = f"loss {loss:.3f}, {speed}, learning rate {learning_rate:.1e}"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        items = [
            f"loss {logs['loss']:.3f}",
            f"validation loss {logs['val_loss']:.3f}",
            f"perplexity {logs['val_perplexity']:.2f}",
            f"accuracy {logs['val_accuracy']:.1%}",
            *([f"BLEU {logs['val_bleu']:.2f}"] if "val_bleu" in logs else []),
            *([f"{counted(logs['skipped_steps'], 'step')} skipped"] if "skipped_steps" in logs else []),
            self._speed(self._num_steps, self._last_ends[-1] - self._begin),
        ]
        _log.info(f"step {logs['step']:,}: {', '.join(items)}")

    def _speed(self, num_steps: int, seconds: float) -> str:
        return f"{num_steps * self.target_tokens_per_step / seconds:,.0f} target tokens/s"
