"""Finds predictions that come from a softmax although a loss expects logits."""

import warnings
from typing import Any

# Operations of TensorFlow, and gradients of PyTorch, that keep the values of a tensor.
_SAME_VALUES = ("Cast", "Identity", "Reshape", "ToCopyBackward0", "ViewBackward0")


def warn_of_softmax(name: str, y_pred: Any) -> bool:
    """Warns if predictions are the probabilities of a softmax, and returns whether they are.

    A model that ends in a softmax trains badly under a loss that expects logits. TensorFlow shows
    where a tensor comes from while it traces a function, and PyTorch while it records gradients.
    JAX does not.

    Args:
        name: of the loss or metric.
        y_pred: what the model predicts.
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
    # Keras' activation "softmax" keeps the logits as an attribute of the probabilities.
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
