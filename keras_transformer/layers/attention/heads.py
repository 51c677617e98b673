"""Projections of sequences to the heads of attention, and of the heads back to rows."""

from typing import Annotated

import keras
from keras import ops

from ...shapes import reshape_inferring
from ...tensors import Dimension, Tensor


def project_rows(
    inputs: Annotated[Tensor, "(batch, length, width)"], projection: keras.layers.Dense
) -> Annotated[Tensor, "(batch, length, units)"]:
    """Applies a projection in two dimensions: TensorFlow adds a dozen small operations to a product of more.

    Args:
        inputs: what is projected.
        projection: keras.layers.Dense.
    """
    if projection.activity_regularizer is not None:
        # Keras divides its loss by the size of the first axis.
        return projection(inputs)
    batch, length, width = ops.shape(inputs)
    return reshape_inferring(projection(ops.reshape(inputs, (-1, width))), (batch, length, projection.units))


def project_to_heads(
    inputs: Annotated[Tensor, "(batch, length, width)"], projections: list[keras.layers.Dense], num_heads: int
) -> list[Tensor]:
    """Applies each of several projections to the same inputs.

    Args:
        inputs: what is projected.
        projections: list of keras.layers.Dense.
        num_heads: int. The number of heads of each projection.

    Returns:
        (batch, num_heads, length, units / num_heads) of each projection.
    """
    batch, length, width = ops.shape(inputs)
    first = projections[0]
    if first.activity_regularizer is not None:
        # Keras divides its loss by the size of the first axis.
        return [split_heads(projection(inputs), batch, length, num_heads)[0] for projection in projections]
    rows = ops.reshape(inputs, (-1, width))
    quantized = any(projection.quantization_mode for projection in projections)
    if quantized or len({projection.units for projection in projections}) > 1:
        return [split_heads(projection(rows), batch, length, num_heads)[0] for projection in projections]
    if keras.backend.backend() == "torch":
        # PyTorch would copy the kernels to join them, and the gradients of the heads.
        return [split_heads(_product(rows, [projection]), batch, length, num_heads)[0] for projection in projections]
    return split_heads(_product(rows, projections), batch, length, num_heads, len(projections))


def _product(
    rows: Annotated[Tensor, "(batch * length, width)"], projections: list[keras.layers.Dense]
) -> Annotated[Tensor, "(batch * length, count * units)"]:
    """Applies several projections as one. Keras casts for a layer's call only, and a decoding step is none."""
    kernels = _joined([dense.kernel for dense in projections])
    projected = ops.matmul(rows, ops.cast(kernels, rows.dtype))
    if projections[0].use_bias:
        biases = _joined([dense.bias for dense in projections])
        projected = ops.add(projected, ops.cast(biases, rows.dtype))
    return projected


def _joined(weights: list[Tensor]) -> Tensor:
    return weights[0] if len(weights) == 1 else ops.concatenate(weights, axis=-1)


def split_heads(
    projected: Annotated[Tensor, "(..., count * num_heads * width)"],
    batch: Dimension,
    length: Dimension,
    num_heads: int,
    count: int = 1,
) -> list[Tensor]:
    """Splits the rows of one or several projections into heads.

    Args:
        projected: of batch * length rows.
        batch: int or int scalar.
        length: int or int scalar.
        num_heads: int.
        count: int. The number of projections side by side. Defaults to 1.

    Returns:
        (batch, num_heads, length, width) of each projection.
    """
    width = projected.shape[-1] // (count * num_heads)
    if count == 1:
        heads = reshape_inferring(projected, (batch, length, num_heads, width))
        return [swap_heads(heads)]
    heads = reshape_inferring(projected, (batch, length, count, num_heads, width))
    return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)))


def swap_heads(heads: Annotated[Tensor, "(batch, a, b, width)"]) -> Annotated[Tensor, "(batch, b, a, width)"]:
    """Swaps the axes of heads and positions, the second and the third."""
    batch, second, third, width = ops.shape(heads)
    if isinstance(second, int) and isinstance(third, int) and 1 in (second, third):
        # The same data, as in a step of greedy search: nothing is copied.
        return reshape_inferring(heads, (batch, third, second, width))
    return ops.transpose(heads, (0, 2, 1, 3))
