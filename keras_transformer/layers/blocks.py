"""Sequences cut into blocks, for restricted self-attention (section 4 of the paper).

A block is as long as half a neighborhood: what its positions may attend to lies in itself and in the blocks beside it.
"""

from keras import ops


def block_sizes(length, neighborhood):
    """How many blocks a sequence is cut into, and how long each is; a short sequence is one block.

    Args:
        length: int, or int scalar where the shape is dynamic.
        neighborhood: r, positions that one position may attend to.
    """
    longest = max(neighborhood // 2, 1)
    block_length = max(min(length, longest), 1) if isinstance(length, int) else ops.clip(length, 1, longest)
    return -(-length // block_length), block_length


def cut(sequence, num_blocks, block_length, before=0, after=0):
    """Every block of a sequence, with so many blocks before and after it; zeros stand beyond the ends.

    Args:
        sequence: (batch, length, width).
        num_blocks, block_length: from `block_sizes`.
        before, after: int, how many neighbors come with each block.

    Returns:
        (batch * num_blocks, (before + 1 + after) * block_length, width).
    """
    batch, length, width = ops.shape(sequence)
    padding = (before * block_length, (num_blocks + after) * block_length - length)
    padded = ops.pad(sequence, ((0, 0), padding, (0, 0)))
    blocks = ops.reshape(padded, (batch, before + num_blocks + after, block_length, width))
    window = [blocks[:, i : i + num_blocks] for i in range(before + 1 + after)]
    return ops.reshape(
        ops.concatenate(window, axis=2), (batch * num_blocks, len(window) * block_length, width)
    )
