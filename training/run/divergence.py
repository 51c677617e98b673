"""Training stops where its numbers are no longer finite, and nothing of them is saved."""

import math
from typing import Any

import keras

from keras_transformer.model_dir import ModelDir


def diverged(what: str, model: keras.Model, model_dir: ModelDir, saved_step: int) -> FloatingPointError:
    """Returns the error that ends a training, with what is kept and how to go on.

    Args:
        what: str. What is not finite.
        model: keras.Model, compiled.
        model_dir: ModelDir.
        saved_step: int. The step of the last saved state; 0 if there is none.
    """
    step = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    rate = float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
    kept = f"The state after step {saved_step:,} is kept in {model_dir}" if saved_step else "Nothing was saved before"
    checkpoint = model_dir.checkpoint_path(saved_step)
    if checkpoint.is_file():
        kept += f", with its checkpoint {checkpoint.name}"
    return FloatingPointError(
        f"training diverged in step {step:,}, at the learning rate {rate:.2e}: {what}. {kept}; go on from there with "
        "a lower rate, by --set training.peak_learning_rate=..."
    )


class StopIfDiverged(keras.callbacks.Callback):
    """Raises an error as soon as a loss is NaN or infinite, or a gradient in float16 is at every scale.

    It goes before the callbacks that save.

    Args:
        model_dir: ModelDir.
        progress: Progress.
    """

    def __init__(self, model_dir: ModelDir, progress: Any) -> None:
        super().__init__()
        self.model_dir = model_dir
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        # Keras has read the loss already, for all callbacks. No scale of float16's gradients changes it.
        self._require_finite("loss", logs["loss"])
        if self.model.loss_scale is not None and self.model.loss_scale.is_exhausted():
            what = "the gradient is NaN or infinite, even at the lowest scale of the loss"
            raise diverged(what, self.model, self.model_dir, self.progress.step)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        self._require_finite("validation loss", logs["val_loss"])

    def _require_finite(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise diverged(f"the {name} is {float(value)}", self.model, self.model_dir, self.progress.step)
