"""Dropout (section 5.4 of the paper) that draws half a random word for each element."""

import keras
from keras import ops

_LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keras' `Dropout`, with 16 random bits for each element instead of a random float, which takes half the time.

    Thus the rate is rounded to a multiple of 2^-16; what is kept is scaled by the rounded rate, so that the mean of the
    output is exactly the input.

    Args:
        rate: share of the elements that become 0 in training.
        seed: of the random numbers.

    Call arguments:
        inputs: of any shape.
        training: whether anything is dropped.

    Returns:
        The shape of the inputs.

    Raises:
        ValueError: `rate` is not in [0, 1].

    Example:
        >>> Dropout(0.5)(np.ones(1000), training=True).shape
        (1000,)
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        num_dropped = round(self.rate * _LEVELS)
        if not training or not num_dropped:
            return inputs
        if num_dropped == _LEVELS:
            return ops.zeros_like(inputs)
        size = ops.size(inputs)
        words = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator
        )
        numbers = ops.reshape(ops.view(words, "int16"), (-1,))
        numbers = ops.reshape(numbers[:size], ops.shape(inputs))
        kept = ops.cast(numbers >= num_dropped - _LEVELS // 2, inputs.dtype)
        # Two products rather than a choice: their gradient is one more product.
        return inputs * (kept * (_LEVELS / (_LEVELS - num_dropped)))

    def get_config(self):
        config = super().get_config()
        del config["noise_shape"]
        return config
