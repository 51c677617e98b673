"""Sequences divided into blocks, for restricted self-attention (section 4 of the paper).

A block is half a neighborhood long: what its positions may attend to lies in the block itself and in the blocks
beside it.
"""

from typing import Annotated

from keras import ops

from ..tensors import Dimension, Tensor


def block_sizes(length: Dimension, neighborhood: int) -> tuple[Dimension, Dimension]:
    """Returns into how many blocks a sequence is divided, and their length; a short sequence is one block.

    Args:
        length: int, or int scalar if the shape is dynamic.
        neighborhood: int. r, the number of positions that one position may attend to.
    """
    longest = max(neighborhood // 2, 1)
    block_length = max(min(length, longest), 1) if isinstance(length, int) else ops.clip(length, 1, longest)
    return -(-length // block_length), block_length


def blocks_with_neighbors(
    sequence: Annotated[Tensor, "(batch, length, width)"],
    num_blocks: Dimension,
    block_length: Dimension,
    before: int = 0,
    after: int = 0,
) -> Annotated[Tensor, "(batch * num_blocks, (before + 1 + after) * block_length, width)"]:
    """Returns every block of a sequence together with its neighbors; there are zeros beyond the ends.

    Args:
        sequence: what is divided.
        num_blocks: from `block_sizes`.
        block_length: from `block_sizes`.
        before: int. How many blocks before each block come with it. Defaults to 0.
        after: int. How many blocks after each block come with it. Defaults to 0.
    """
    batch, length, width = ops.shape(sequence)
    padding = (before * block_length, (num_blocks + after) * block_length - length)
    padded = ops.pad(sequence, ((0, 0), padding, (0, 0)))
    blocks = ops.reshape(padded, (batch, before + num_blocks + after, block_length, width))
    neighbors = [blocks[:, i : i + num_blocks] for i in range(before + 1 + after)]
    windows = ops.concatenate(neighbors, axis=2)  # (batch, num_blocks, window length, width)
    return ops.reshape(windows, (batch * num_blocks, len(neighbors) * block_length, width))
