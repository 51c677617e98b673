"""What people see of a training run."""

import collections
import logging
import time
from collections.abc import Mapping

from keras_transformer.runtime.progress import ProgressBar, counted

from ..step.model import TrainingModel

_log = logging.getLogger(__name__)


# The bar's speed is that of so many steps.
_LAST_STEPS = 50
_SECONDS_PER_DESCRIPTION = 0.5


class ProgressReport:
    """Moves a bar on with every step, and says a line after every validation.

    Args:
        bar: ProgressBar that counts steps.
        target_tokens_per_step: float. The mean number of target tokens in a batch, without padding.
    """

    def __init__(self, bar: ProgressBar, target_tokens_per_step: float) -> None:
        self.bar = bar
        self.target_tokens_per_step = target_tokens_per_step

    def before_first_step(self) -> None:
        """Starts to measure the speed of the steps until the next validation."""
        self._num_steps = 0
        self._begin = self._described = time.monotonic()
        self._last_ends = collections.deque([self._begin], maxlen=_LAST_STEPS + 1)

    def after_step(self, loss: float, model: TrainingModel) -> None:
        """Moves the bar on."""
        now = time.monotonic()
        self._last_ends.append(now)
        self._num_steps += 1
        self.bar.advance()
        # Not at every step: to read the learning rate takes a moment.
        if now - self._described >= _SECONDS_PER_DESCRIPTION:
            self._described = now
            speed = self._speed(len(self._last_ends) - 1, now - self._last_ends[0])
            self.bar.details = f"loss {loss:.3f}, {speed}, learning rate {model.learning_rate:.1e}"

    def after_validation(self, logs: Mapping[str, float]) -> None:
        """Says what was measured."""
        items = [
            f"loss {logs['loss']:.3f}",
            f"validation loss {logs['val_loss']:.3f}",
            f"perplexity {logs['val_perplexity']:.2f}",
            f"accuracy {logs['val_accuracy']:.1%}",
            *([f"BLEU {logs['val_bleu']:.2f}"] if "val_bleu" in logs else []),
            *([f"{counted(int(logs['skipped_steps']), 'step')} skipped"] if "skipped_steps" in logs else []),
            self._speed(self._num_steps, self._last_ends[-1] - self._begin),
        ]
        _log.info(f"step {logs['step']:,}: {', '.join(items)}")

    def _speed(self, num_steps: int, seconds: float) -> str:
        return f"{num_steps * self.target_tokens_per_step / seconds:,.0f} target tokens/s"
