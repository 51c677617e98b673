"""Layer normalization with a faster gradient than Keras' layer, and RMS normalization."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..checks import positive_float
from ..config.layer_options import Normalization
from ..tensors import Shape, Tensor


def make_normalization(
    normalization: Normalization, epsilon: float, dtype: keras.DTypePolicy, name: str
) -> keras.layers.Layer:
    """Creates a layer that normalizes the last axis in float32, regardless of the dtype policy.

    "rms" is Keras' root mean square normalization (Zhang and Sennrich 2019, arXiv 1910.07467). It
    neither subtracts the mean nor adds a bias.
    """
    if normalization == "rms":
        rms_normalization = keras.layers.RMSNormalization(epsilon=epsilon, dtype=dtype, name=name)
        # Normalization is position-wise, so masks stay valid, but Keras' layer does not declare it.
        rms_normalization.supports_masking = True
        return rms_normalization
    return LayerNormalization(epsilon, dtype=dtype, name=name)


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.Layer):
    """Layer normalization (Ba et al. 2016) of the last axis.

    Computes `gamma * (x - mean) / sqrt(variance + epsilon) + beta` in float32 or higher precision,
    regardless of the dtype policy. On TensorFlow, the gradient is computed in fewer passes over the
    data than in Keras' layer.

    Args:
        epsilon: float. Small constant added to the variance. Defaults to 1e-6.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = positive_float("epsilon", epsilon)
        self.supports_masking = True
        # Keep Keras from casting the inputs: the layer computes in float32, regardless of the
        # policy.
        self.autocast = False

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", autocast=False, name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", autocast=False, name="beta")

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        inputs = ops.cast(inputs, dtype)
        gamma, beta = ops.cast(self.gamma, dtype), ops.cast(self.beta, dtype)
        backend = keras.backend.backend()
        if backend == "torch":
            # PyTorch has fused kernels for the forward and backward passes.
            outputs = ops.layer_normalization(inputs, gamma, beta, axis=-1, epsilon=self.epsilon)
        elif backend == "tensorflow" and training:
            outputs = _normalize_in_training(inputs, gamma, beta, self.epsilon)
        else:
            # On JAX, XLA fuses both the formula and its gradient.
            outputs = _normalize(inputs, self.epsilon)[0] * gamma + beta
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize(inputs: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Returns normalized inputs (..., features) and the inverse standard deviations (..., 1)."""
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
            # Remove the component along the normalized vector, whose length is fixed.
            along = ops.mean(grad_normalized * normalized, axis=-1, keepdims=True)
            grad_inputs = (grad_normalized - mean - normalized * along) * scale
            leading = tuple(range(len(inputs.shape) - 1))
            return grad_inputs, ops.sum(upstream * normalized, leading), ops.sum(upstream, leading)

        return normalized * gamma + beta, gradient

    return normalize(inputs, gamma, beta)
