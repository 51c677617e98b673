"""Dropout that is faster than Keras' layer."""

from typing import Any

import keras
from keras import ops

from ..checks import integer, probability
from ..tensors import Shape, Tensor

# The number of values that 16 random bits can represent.
LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Dropout that draws 16 random bits for each element.

    Keras' layer draws a random float for each element, which takes twice as long. The rate is
    rounded to a multiple of 2^-16. The remaining elements are scaled by `1 / (1 - rate)`, with the
    rounded rate, so the expected output equals the input. On PyTorch, the layer uses Keras'
    dropout, with the exact rate, because it is a single operation if there is no seed.

    Args:
        rate: float from 0 to 1. Fraction of the elements to set to 0 during training.
        seed: int or None. Seed that makes dropout reproducible. Defaults to None.
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
            # To draw random bits, Keras would have to wait for the GPU to return a seed.
            return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)
        size = ops.size(inputs)
        words = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator
        )
        # Each word contains two 16-bit numbers. If the size is odd, the last number is not used.
        numbers = ops.reshape(ops.view(words, "int16"), (-1,))
        numbers = ops.reshape(numbers[:size], ops.shape(inputs))
        kept = ops.cast(numbers >= num_dropped - LEVELS // 2, inputs.dtype)
        # Multiply instead of using `ops.where`, so that the gradient is a single product.
        return inputs * (kept * (LEVELS / (LEVELS - num_dropped)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
