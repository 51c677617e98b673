"""What a training run leaves behind, so that nothing is lost when it stops."""

import dataclasses
import math

import keras
import numpy as np

from keras_transformer.config import ConfigError
from keras_transformer.files import replacing


@dataclasses.dataclass
class Progress:
    """How far a training run is.

    Attributes:
        step: updates done.
        best_perplexity: the lowest on the validation text so far.
    """

    step: int = 0
    best_perplexity: float = math.inf


class SaveCheckpoints(keras.callbacks.Callback):
    """After each validation: the weights, the best weights if these are, and the state for going on.

    Args:
        model_dir: a `ModelDir`.
        keep: how many checkpoints stay.
        progress: a `Progress`, kept up to date.
    """

    def __init__(self, model_dir, keep, progress):
        super().__init__()
        self.model_dir = model_dir
        self.keep = keep
        self.progress = progress

    def on_epoch_end(self, epoch, logs=None):
        progress, transformer = self.progress, self.model.transformer
        progress.step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        # An average of checkpoints before this one is out of date.
        self.model_dir.average_path.unlink(missing_ok=True)
        with replacing(self.model_dir.checkpoint_path(progress.step)) as path:
            transformer.save_weights(path)
        if logs["val_perplexity"] < progress.best_perplexity or not self.model_dir.best_path.exists():
            progress.best_perplexity = float(logs["val_perplexity"])
            with replacing(self.model_dir.best_path) as path:
                transformer.save_weights(path)
        # The state is last: a run that ends before this line repeats the steps since the state before.
        with replacing(self.model_dir.training_state_path) as path, open(path, "wb") as file:
            np.savez(file, **_state(self.model), **dataclasses.asdict(progress))
        for path in self.model_dir.checkpoints()[: -self.keep]:
            path.unlink()


def restore_training_state(model_dir, model):
    """Sets a compiled model and its optimizer to the last saved state, if there is one.

    Returns:
        Its `Progress`.

    Raises:
        ConfigError: the state does not fit the model.
    """
    path = model_dir.training_state_path
    if not path.is_file():
        return Progress()
    with np.load(path, allow_pickle=False) as state:
        for name, variable in _named_variables(model):
            if name not in state or state[name].shape != tuple(variable.shape):
                raise ConfigError(
                    f"{path}: the state does not fit the model ({variable.path} is missing or of other shape)"
                )
            variable.assign(state[name])
        return Progress(int(state["step"]), float(state["best_perplexity"]))


def _named_variables(model):
    # Weights, the seeds of dropout, and the optimizer's moments and step. By number, since Keras numbers names anew in
    # every process.
    for owner, variables in (
        ("model", model.transformer.variables),
        ("optimizer", model.optimizer.variables),
    ):
        for number, variable in enumerate(variables):
            yield f"{owner}.{number}", variable


def _state(model):
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in _named_variables(model)}
