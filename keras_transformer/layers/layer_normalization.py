"""Layer normalization (Ba et al. 2016, as in section 3.1 of the paper) with a gradient of its own."""

from typing import Any

import keras
from keras import ops

from ..config.rules import Positive, checked


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras' `LayerNormalization` of the last axis, with a gradient that takes fewer passes over the data.

    Computes `gamma * (x - mean) / sqrt(variance + epsilon) + beta` in float32, or better, under every dtype policy.

    Args:
        epsilon: float. Added to the variance. Defaults to 1e-6.

    Call arguments:
        inputs: (..., features).
        training: bool. Whether a gradient will be computed. Defaults to False.

    Returns:
        (..., features).

    Example:
        >>> np.array(LayerNormalization()(np.array([[1.0, 3.0]]))).round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    @checked
    def __init__(self, epsilon: Positive = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=epsilon, **kwargs)

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        inputs, gamma, beta = (ops.cast(tensor, dtype) for tensor in (inputs, self.gamma, self.beta))
        if training:
            outputs = _normalize_in_training(inputs, gamma, beta, self.epsilon)
        else:
            outputs = _normalize(inputs, self.epsilon)[0] * gamma + beta
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**keras.layers.Layer.get_config(self), "epsilon": self.epsilon}


def _normalize(inputs: Any, epsilon: float) -> tuple[Any, Any]:
    """Returns the normalized inputs (..., features), and what they were multiplied by (..., 1)."""
    centered = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
    return centered * scale, scale


def _normalize_in_training(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    @ops.custom_gradient
    def normalize(inputs: Any, gamma: Any, beta: Any) -> Any:
        normalized, scale = _normalize(inputs, epsilon)

        def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any, Any]:
            # Backends pass it in one of two ways.
            upstream = args[0] if upstream is None else upstream
            grad_normalized = upstream * gamma  # (..., features)
            mean = ops.mean(grad_normalized, axis=-1, keepdims=True)
            # The part along the normalized vector could only change its length, which is fixed.
            along = ops.mean(grad_normalized * normalized, axis=-1, keepdims=True)
            grad_inputs = (grad_normalized - mean - normalized * along) * scale
            leading = tuple(range(len(inputs.shape) - 1))
            return grad_inputs, ops.sum(upstream * normalized, leading), ops.sum(upstream, leading)

        return normalized * gamma + beta, gradient

    return normalize(inputs, gamma, beta)
