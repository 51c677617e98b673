"""Dropout (section 5.4 of the paper) that draws 16 random bits for each element."""

from typing import Any

import keras
from keras import ops

_LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keras' `Dropout` with 16 random bits per element instead of a random float, which takes half the time.

    The rate is rounded to a multiple of 2^-16. What is kept is scaled by the rounded rate, so that the mean of the
    output is exactly the input.

    Args:
        rate: float from 0 to 1. The share of elements that become 0 in training.
        seed: int or `keras.random.SeedGenerator`. Defaults to None.

    Call arguments:
        inputs: Tensor of any shape.
        training: bool. Whether to drop anything. Defaults to False.

    Returns:
        Tensor of the shape of the inputs.

    Raises:
        ValueError: `rate` is not in [0, 1].

    Example:
        >>> Dropout(0.5)(np.ones(1000), training=True).shape
        (1000,)
    """

    def __init__(self, rate: float, seed: Any = None, **kwargs: Any) -> None:
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        num_dropped = round(self.rate * _LEVELS)
        if not training or not num_dropped:
            return inputs
        if num_dropped == _LEVELS:
            return ops.zeros_like(inputs)
        size = ops.size(inputs)
        words = keras.random.randint(((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator)
        numbers = ops.reshape(ops.view(words, "int16"), (-1,))  # (size or size + 1,), two of each word
        numbers = ops.reshape(numbers[:size], ops.shape(inputs))
        kept = ops.cast(numbers >= num_dropped - _LEVELS // 2, inputs.dtype)
        # Two products rather than a choice: their gradient is one more product.
        return inputs * (kept * (_LEVELS / (_LEVELS - num_dropped)))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["noise_shape"]
        return config
