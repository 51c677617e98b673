"""Reshaping without computing sizes that the backend can infer."""

from collections.abc import Sequence

from keras import ops

from .tensors import Dimension, Tensor


def last_size(tensor: Tensor) -> Dimension:
    """Returns the last size of a tensor: an int unless it is only known at run time."""
    return ops.shape(tensor)[-1] if tensor.shape[-1] is None else tensor.shape[-1]


def reshape_inferring(tensor: Tensor, shape: Sequence[Dimension]) -> Tensor:
    """Reshapes like `keras.ops.reshape`, but lets the backend infer one size if it is only known at run time.

    Computing that size would add up to four small operations to a graph.

    Args:
        tensor: Tensor.
        shape: Sequence of ints and of scalar tensors as `keras.ops.shape` returns them.

    Returns:
        Tensor of the shape.
    """
    unknown = [i for i, size in enumerate(shape) if not isinstance(size, int)]
    if len(unknown) == 1:
        shape = (*shape[: unknown[0]], -1, *shape[unknown[0] + 1 :])
    return ops.reshape(tensor, shape)
