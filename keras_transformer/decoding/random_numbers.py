"""Random numbers that depend only on a seed, a row and a position."""

from typing import Annotated

from keras import ops

from ..tensors import Dimension, Tensor

# The constants of Threefry.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def uniform_numbers(
    seed: Dimension, rows: Annotated[Tensor, "int (num_rows,)"], num_positions: Dimension
) -> Annotated[Tensor, "float32 (num_rows, num_positions)"]:
    """Returns uniform random numbers in [0, 1), which are multiples of 2 ** -23.

    Each number depends only on the seed, the row and the position. The same seed therefore produces
    the same text on every backend, in any batch, and inside a compiled loop, where the seed may be
    a tensor. A stateful generator would return different numbers on each backend, and whenever a
    row is added to the batch.
    """
    low, high = (
        (_signed(seed), _signed(seed >> 32))
        if isinstance(seed, int)
        else (ops.cast(seed, "int32"), 0)
    )
    positions = ops.arange(num_positions, dtype="int32")[None, :]
    rows = ops.cast(rows, "int32")[:, None] + ops.zeros_like(positions)
    bits, _ = threefry((low, high), (rows, ops.zeros_like(rows) + positions))
    return ops.cast(_shifted_right(bits, 9), "float32") * 2.0**-23


def threefry(
    key: tuple[Dimension, Dimension], counter: tuple[Tensor, Tensor]
) -> tuple[Annotated[Tensor, "int32 (...)"], Annotated[Tensor, "int32 (...)"]]:
    """Computes Threefry-2x32 with 20 rounds (Salmon et al. 2011).

    See "Parallel random numbers: as easy as 1, 2, 3". All numbers are 32 bits stored as int32,
    which every backend can add, multiply and combine bitwise. The key consists of two scalars, the
    counter of two tensors (...).
    """
    keys = [ops.convert_to_tensor(part, "int32") for part in key]
    keys.append(
        ops.bitwise_xor(ops.bitwise_xor(keys[0], keys[1]), ops.convert_to_tensor(_PARITY, "int32"))
    )
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            first = first + second
            rotated = ops.bitwise_or(
                ops.left_shift(second, rotation), _shifted_right(second, 32 - rotation)
            )
            second = ops.bitwise_xor(rotated, first)
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + (block + 1)
    return first, second


def _shifted_right(bits: Tensor, count: int) -> Tensor:
    # Clear the bits that are filled with the sign.
    return ops.bitwise_and(ops.right_shift(bits, count), 2 ** (32 - count) - 1)


def _signed(number: int) -> int:
    """Returns the lowest 32 bits of a number as an int32."""
    return (number + 2**31) % 2**32 - 2**31
