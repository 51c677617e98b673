"""Shapes of which a graph computes no more than it must."""

from keras import ops


def reshape(tensor, shape):
    """`ops.reshape`, where one size that is known only when the graph runs is left to be inferred.

    To compute it would take a graph up to four small operations more.

    Args:
        shape: ints, and scalar tensors as `ops.shape` gives them.
    """
    unknown = [i for i, size in enumerate(shape) if not isinstance(size, int)]
    if len(unknown) == 1:
        shape = (*shape[: unknown[0]], -1, *shape[unknown[0] + 1 :])
    return ops.reshape(tensor, shape)
