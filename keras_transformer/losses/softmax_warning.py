"""Detects predictions that come from a softmax although a loss expects logits."""

import warnings
from typing import Any

# TensorFlow operations and PyTorch gradient functions that do not change values.
_SAME_VALUES = ("Cast", "Identity", "Reshape", "ToCopyBackward0", "ViewBackward0")


def warn_of_softmax(name: str, y_pred: Any) -> bool:
    """Warns if predictions come from a softmax, and returns whether they do.

    A model that ends in a softmax trains badly with a loss that expects logits. The softmax is
    detected on TensorFlow while it traces a function, and on PyTorch while it records gradients. It
    is not detected on JAX.

    Args:
        name: name of the loss or metric.
        y_pred: predictions of the model.
    """
    is_softmax = _is_softmax(y_pred)
    if is_softmax:
        warnings.warn(
            f"{name} expects logits, but the predictions come from a softmax: remove the softmax, "
            f"or pass from_logits=False",
            stacklevel=3,
        )
    return is_softmax


def _is_softmax(tensor: Any) -> bool:
    # Keras' activation "softmax" stores the logits as an attribute of the probabilities.
    if hasattr(tensor, "_keras_logits"):
        return True
    operation = getattr(tensor, "op", None)
    while operation is not None and operation.type in _SAME_VALUES:
        operation = operation.inputs[0].op
    if operation is not None:
        return operation.type == "Softmax"
    gradient: Any = getattr(tensor, "grad_fn", None)
    while type(gradient).__name__ in _SAME_VALUES:
        gradient = gradient.next_functions[0][0]
    return type(gradient).__name__ == "SoftmaxBackward0"
