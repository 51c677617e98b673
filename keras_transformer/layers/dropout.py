"""Dropout (section 5.4 of the paper) that draws 16 random bits for each element."""

from typing import Annotated, Any

import keras
from keras import ops

from ..rules import Rule, check_attributes
from ..tensors import Shape, Tensor

_LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Dropout with 16 random bits per element; Keras' layer draws a random float, which takes twice the time.

    The rate is rounded to a multiple of 2^-16. What is kept is scaled by the rounded rate, so that the mean of the
    output is exactly the input.

    Args:
        rate: float from 0 to 1. The share of elements that become 0 in training.
        seed: int or None. Calls with a seed draw the same numbers in every run. Defaults to None.

    Call arguments:
        inputs: Tensor of any shape.
        training: bool. Whether to drop anything. Defaults to False.

    Returns:
        Tensor of the shape of the inputs.

    Raises:
        ValueError: An argument breaks its rule.

    Example:
        >>> Dropout(0.5)(np.ones(1000), training=True).shape
        (1000,)
    """

    def __init__(
        self,
        rate: Annotated[float, Rule("from 0 to 1", lambda value: 0 <= value <= 1)],
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        check_attributes(self, Dropout)
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Annotated[Tensor, "(...)"], training: bool | None = False) -> Annotated[Tensor, "(...)"]:
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

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
