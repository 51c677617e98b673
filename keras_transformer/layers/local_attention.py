"""Divides sequences into blocks for restricted self-attention (section 4 of the paper).

With a sliding window w, each block has w - 1 positions, which attend only to their own block and to
the neighboring blocks.
"""

from typing import Annotated, NamedTuple

from keras import ops

from ..masks import combine, sliding_window_mask
from ..tensors import Dimension, Tensor


class Blocks(NamedTuple):
    """Queries, keys and values, divided into blocks that are folded into the batch axis."""

    queries: Annotated[Tensor, "(batch * num_blocks, block length, any width)"]
    keys: Annotated[Tensor, "(batch * num_blocks, window length, any width)"]
    values: Annotated[Tensor, "(batch * num_blocks, window length, any width)"]
    mask: Annotated[Tensor, "bool (batch * num_blocks, block length, window length)"]
    # Positions are counted from the start of each block.
    positions: Annotated[Tensor, "int (block length,)"]
    key_positions: Annotated[Tensor, "int (window length,)"]
    # These sizes are also part of the shapes above, but tf2onnx would read the shapes that the
    # tensors had before the last reshape.
    num_blocks: Dimension
    block_length: Dimension
    window_length: Dimension


def divide(
    queries: Annotated[Tensor, "(batch, target length, any width)"],
    keys: Annotated[Tensor, "(batch, source length, any width)"],
    values: Annotated[Tensor, "(batch, source length, any width)"],
    mask: Annotated[Tensor, "bool (batch, source length)"] | None,
    sliding_window: int,
    use_causal_mask: bool,
    is_self_attention: bool,
) -> Blocks:
    """Divides queries into blocks, and keys and values into windows around the blocks.

    The inputs are not split into heads yet. With `is_self_attention`, source and target have the
    same length.
    """
    length = ops.shape(queries)[1]
    source_length = length if is_self_attention else ops.shape(keys)[1]
    num_blocks, block_length = _block_sizes(length, source_length, sliding_window)
    after = 0 if use_causal_mask else 1

    def windows(sequence: Tensor) -> Tensor:
        """Divides (batch, length, width) into (batch * num_blocks, window length, width)."""
        if not is_self_attention:
            # No query attends beyond the last window.
            sequence = sequence[:, : (num_blocks + after) * block_length]
        return _blocks_with_neighbors(sequence, num_blocks, block_length, before=1, after=after)

    window_length = (2 + after) * block_length
    # Mask the padding at both ends. Do not use `swapaxes`, which tf2onnx merges incorrectly with
    # the preceding reshape.
    mask_shape = (ops.shape(queries)[0] * num_blocks, 1, window_length)
    mask = combine(ops.ones(ops.shape(keys)[:2], dtype="bool"), mask)
    mask = ops.reshape(windows(ops.expand_dims(mask, -1)), mask_shape)
    positions, key_positions = ops.arange(block_length), ops.arange(window_length) - block_length
    near = sliding_window_mask(positions, key_positions, sliding_window, use_causal_mask)
    return Blocks(
        _blocks_with_neighbors(queries, num_blocks, block_length),
        windows(keys),
        windows(values),
        ops.logical_and(mask, near),
        positions,
        key_positions,
        num_blocks,
        block_length,
        window_length,
    )


def _block_sizes(
    length: Dimension, source_length: Dimension, sliding_window: int
) -> tuple[Dimension, Dimension]:
    """Returns the number of blocks and their length; a short sequence forms a single block."""
    longest = max(sliding_window - 1, 1)
    if isinstance(length, int) and isinstance(source_length, int):
        block_length = max(min(max(length, source_length), longest), 1)
    else:
        # A block that is shorter than `longest` must contain the whole source.
        both = length if source_length is length else ops.maximum(length, source_length)
        block_length = ops.clip(both, 1, longest)
    return -(-length // block_length), block_length


def _blocks_with_neighbors(
    sequence: Annotated[Tensor, "(batch, length, width)"],
    num_blocks: Dimension,
    block_length: Dimension,
    before: int = 0,
    after: int = 0,
) -> Annotated[Tensor, "(batch * num_blocks, (before + 1 + after) * block_length, width)"]:
    """Concatenates every block with the `before` blocks before it and the `after` blocks after it.

    The sequence is padded with zeros at both ends.
    """
    batch, length, width = ops.shape(sequence)
    padding = (before * block_length, (num_blocks + after) * block_length - length)
    padded = ops.pad(sequence, ((0, 0), padding, (0, 0)))
    blocks = ops.reshape(padded, (batch, before + num_blocks + after, block_length, width))
    neighbors = [blocks[:, i : i + num_blocks] for i in range(before + 1 + after)]
    windows = ops.concatenate(neighbors, axis=2)  # (batch, num_blocks, window length, width)
    return ops.reshape(windows, (batch * num_blocks, len(neighbors) * block_length, width))
