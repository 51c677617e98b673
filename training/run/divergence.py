"""Training stops where its numbers are no longer finite, and nothing of them is saved."""

import math

from keras_transformer.errors import DivergedError
from keras_transformer.model_dir import ModelDir

from ..step.model import TrainingModel


def diverged(what: str, model: TrainingModel, model_dir: ModelDir, saved_step: int) -> DivergedError:
    """Returns the error that ends a training run, with what is kept and how to go on.

    Args:
        what: str. What is not finite.
        model: TrainingModel, compiled.
        model_dir: ModelDir.
        saved_step: int. The step of the last saved state; 0 if there is none.
    """
    kept = f"The state after step {saved_step:,} is kept in {model_dir}" if saved_step else "Nothing was saved before"
    checkpoint = model_dir.checkpoint_path(saved_step)
    if checkpoint.is_file():
        kept += f", with its checkpoint {checkpoint.name}"
    return DivergedError(
        f"training diverged in step {model.num_updates:,}, at the learning rate {model.learning_rate:.2e}: {what}. "
        f"{kept}; resume from there with a lower rate: --set training.peak_learning_rate=..."
    )


def require_finite_step(loss: float, model: TrainingModel, model_dir: ModelDir, saved_step: int) -> None:
    """Checks the loss of a step, and that float16 still finds a scale at which the gradient is finite.

    Raises:
        DivergedError: One of them is not finite.
    """
    # No scale of float16's gradients changes the loss.
    _require_finite("loss", loss, model, model_dir, saved_step)
    if model.loss_scale is not None and model.loss_scale.is_exhausted():
        what = "the gradient is NaN or infinite, even at the lowest scale of the loss"
        raise diverged(what, model, model_dir, saved_step)


def require_finite_validation(loss: float, model: TrainingModel, model_dir: ModelDir, saved_step: int) -> None:
    """Checks the loss on the validation text.

    Raises:
        DivergedError: It is not finite.
    """
    _require_finite("validation loss", loss, model, model_dir, saved_step)


def _require_finite(name: str, value: float, model: TrainingModel, model_dir: ModelDir, saved_step: int) -> None:
    if not math.isfinite(value):
        raise diverged(f"the {name} is {value}", model, model_dir, saved_step)
