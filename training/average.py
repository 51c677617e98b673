"""The mean of the last checkpoints (section 6.1 of the paper)."""

import numpy as np

from keras_transformer.config import ConfigError
from keras_transformer.files import replacing
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer


def average_checkpoints(model_dir, last):
    """Writes the mean of a model directory's last checkpoints, which it then translates with.

    Args:
        model_dir: a `ModelDir`, or its path.
        last: how many checkpoints; fewer, if fewer stand.

    Returns:
        The paths of the averaged checkpoints.

    Raises:
        ConfigError: `last` is not positive, or there are no checkpoints.
    """
    if last < 1:
        raise ConfigError(f"last must be positive; received {last}")
    model_dir = model_dir if isinstance(model_dir, ModelDir) else ModelDir(model_dir)
    model = build_transformer(model_dir.read_config()[0], dtype="float32")
    paths = model_dir.checkpoints()[-last:]
    if not paths:
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    total = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for path in paths:
        model.load_weights(path)
        for sum_, weight in zip(total, model.get_weights()):
            sum_ += weight
    model.set_weights([sum_ / len(paths) for sum_ in total])
    with replacing(model_dir.average_path) as path:
        model.save_weights(path)
    return paths
