"""Dropout that takes less time than that of Keras."""

from typing import Any

import keras
from keras import ops

from ..checks import integer, probability
from ..tensors import Shape, Tensor

# The numbers that 16 random bits can be.
LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 at random, with 16 random bits for each.

    Keras' layer draws a random float for each element, which takes twice the time. The rate is
    rounded to a multiple of 2^-16, and the other elements are scaled by the rounded rate, so that
    the mean of the output is exactly the input. On PyTorch, Keras' dropout computes it, in one
    operation if there is no seed.

    Args:
        rate: float from 0 to 1. The share of elements that become 0 in training.
        seed: int or None. Calls with a seed draw the same numbers in every run. Defaults to None.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = probability("rate", rate)
        self.seed = integer("seed", seed, optional=True)
        if self.rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        num_dropped = round(self.rate * LEVELS)
        if not training or not num_dropped:
            return inputs
        if num_dropped == LEVELS:
            return ops.zeros_like(inputs)
        if keras.backend.backend() == "torch":
            # With random bits, Keras would wait for the GPU to know their seed.
            return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)
        size = ops.size(inputs)
        words = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator
        )
        # Two 16-bit numbers of each word; one more than needed if the size is odd.
        numbers = ops.reshape(ops.view(words, "int16"), (-1,))
        numbers = ops.reshape(numbers[:size], ops.shape(inputs))
        kept = ops.cast(numbers >= num_dropped - LEVELS // 2, inputs.dtype)
        # Two products rather than a choice: their gradient is one more product.
        return inputs * (kept * (LEVELS / (LEVELS - num_dropped)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
