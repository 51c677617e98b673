"""Whether a model can be trained in the memory of the machine."""

import tensorflow as tf

from keras_transformer.config import Config
from keras_transformer.runtime.memory import require_memory


def require_memory_to_train(config: Config) -> None:
    """Checks that the machine has the memory that training takes at least, before anything is allocated.

    All variables are in float32: weights, their moving average, and of weights that are trained the two moments of
    Adam and the gradients. With a GPU the gradients are in its memory; all variables are copied out of it to be saved.
    What is computed from a batch comes on top.

    Args:
        config: Config.

    Raises:
        MemoryLimitError: The machine has less memory.
    """
    copies = 1 + (config.training.ema > 0)
    # How many of the weights are frozen does not follow from the number of parameters.
    if config.training.freeze == "none":
        copies += 2 if tf.config.list_physical_devices("GPU") else 3
    require_memory(config.model.num_parameters, 4 * copies, "to train")
