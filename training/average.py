"""The mean of several checkpoints (section 6.1 of the paper)."""

import numpy as np

from keras_transformer.config import ConfigError, require
from keras_transformer.files import replacing
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer

from .checkpoints import best_checkpoints


def average_checkpoints(model_dir, *, last=None, best=None):
    """Writes the mean of a model directory's last or best checkpoints, which it then translates with.

    Args:
        model_dir: a `ModelDir`, or its path.
        last: how many of the last checkpoints; fewer, if fewer stand.
        best: instead of `last`, how many of those with the best validation.

    Returns:
        The paths of the averaged checkpoints.

    Raises:
        ConfigError: the number is not positive, or there are no checkpoints.
    """
    name, number = ("last", last) if best is None else ("best", best)
    require(number > 0, name, "positive", number)
    model_dir = model_dir if isinstance(model_dir, ModelDir) else ModelDir(model_dir)
    config, _, _, training = model_dir.read_config()
    if best is None:
        paths = model_dir.checkpoints()[-last:]
    else:
        paths = best_checkpoints(model_dir, training["validate_by"], best)
    if not paths:
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    model = build_transformer(config, dtype="float32")
    total = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for path in paths:
        model.load_weights(path)
        for sum_, weight in zip(total, model.get_weights()):
            sum_ += weight
    model.set_weights([sum_ / len(paths) for sum_ in total])
    with replacing(model_dir.average_path) as path:
        model.save_weights(path)
    return paths
