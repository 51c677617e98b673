"""Dropout and layer normalization that take less time than those of Keras, and the choice of a
normalization."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import keras
from keras import ops

from ..rules import Positive, Probability, check_attributes
from ..tensors import Shape, Tensor

Normalization = Literal["layer", "rms"]
# The numbers that 16 random bits can be.
_LEVELS = 2**16


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Dropout with 16 random bits per element; Keras' layer draws a random float, which takes twice
    the time.

    The rate is rounded to a multiple of 2^-16. What is kept is scaled by the rounded rate, so that
    the mean of the output is exactly the input. On PyTorch, Keras' dropout computes it, in one
    operation if there is no seed.

    Args:
        rate: float from 0 to 1. The share of elements that become 0 in training.
        seed: int or None. Calls with a seed draw the same numbers in every run. Defaults to None.
    """

    def __init__(self, rate: Probability, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        check_attributes(self, Dropout)
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True

    def call(
        self, inputs: Annotated[Tensor, "(...)"], training: bool | None = False
    ) -> Annotated[Tensor, "(...)"]:
        num_dropped = round(self.rate * _LEVELS)
        if not training or not num_dropped:
            return inputs
        if num_dropped == _LEVELS:
            return ops.zeros_like(inputs)
        if keras.backend.backend() == "torch":
            # With random bits, Keras would wait for the GPU to know their seed.
            return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)
        size = ops.size(inputs)
        words = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator
        )
        numbers = ops.reshape(
            ops.view(words, "int16"), (-1,)
        )  # (size or size + 1,), two of each word
        numbers = ops.reshape(numbers[:size], ops.shape(inputs))
        kept = ops.cast(numbers >= num_dropped - _LEVELS // 2, inputs.dtype)
        # Two products rather than a choice: their gradient is one more product.
        return inputs * (kept * (_LEVELS / (_LEVELS - num_dropped)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


def make_normalization(
    normalization: Normalization, epsilon: float, dtype: keras.DTypePolicy, name: str
) -> keras.layers.Layer:
    """Makes a layer that normalizes the last axis, in float32 under every dtype policy.

    "rms" is Keras' root mean square normalization (Zhang and Sennrich 2019, arXiv 1910.07467),
    which neither subtracts a mean nor adds a bias.
    """
    if normalization == "rms":
        rms_normalization = keras.layers.RMSNormalization(epsilon=epsilon, dtype=dtype, name=name)
        # Keras' layer passes masks on, as it treats each position by itself, but does not declare
        # it.
        rms_normalization.supports_masking = True
        return rms_normalization
    return LayerNormalization(epsilon, dtype=dtype, name=name)


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.Layer):
    """Normalizes the last axis; on TensorFlow with a gradient that takes fewer passes over the data
    than Keras' layer.

    Computes `gamma * (x - mean) / sqrt(variance + epsilon) + beta` in float32, or better, under
    every dtype policy.
    """

    def __init__(self, epsilon: Positive = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        check_attributes(self, LayerNormalization)
        self.supports_masking = True
        # The layer computes in float32 under every policy.
        self.autocast = False

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", autocast=False, name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", autocast=False, name="beta")

    def call(
        self, inputs: Annotated[Tensor, "(..., features)"], training: bool | None = False
    ) -> Annotated[Tensor, "(..., features)"]:
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        inputs, gamma, beta = (
            ops.cast(tensor, dtype) for tensor in (inputs, self.gamma, self.beta)
        )
        backend = keras.backend.backend()
        if backend == "torch":
            # PyTorch has one kernel for the forward and one for the backward pass.
            outputs = ops.layer_normalization(inputs, gamma, beta, axis=-1, epsilon=self.epsilon)
        elif backend == "tensorflow" and training:
            outputs = _normalize_in_training(inputs, gamma, beta, self.epsilon)
        else:
            # XLA fuses the gradient of the formula as well.
            outputs = _normalize(inputs, self.epsilon)[0] * gamma + beta
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize(inputs: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Returns the normalized inputs (..., features), and what they were multiplied by (..., 1)."""
    centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
    return centered * scale, scale


def _normalize_in_training(inputs: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    @ops.custom_gradient
    def normalize(
        inputs: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Callable[..., tuple[Tensor, Tensor, Tensor]]]:
        normalized, scale = _normalize(inputs, epsilon)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            grad_normalized = upstream * gamma  # (..., features)
            mean = ops.mean(grad_normalized, axis=-1, keepdims=True)
            # The part along the normalized vector could only change its length, which is fixed.
            along = ops.mean(grad_normalized * normalized, axis=-1, keepdims=True)
            grad_inputs = (grad_normalized - mean - normalized * along) * scale
            leading = tuple(range(len(inputs.shape) - 1))
            return grad_inputs, ops.sum(upstream * normalized, leading), ops.sum(upstream, leading)

        return normalized * gamma + beta, gradient

    return normalize(inputs, gamma, beta)
