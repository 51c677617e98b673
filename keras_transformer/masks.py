"""Where masks are made: boolean, True = attend, (batch, target length, source length)."""

from keras import ops

PADDING_ID = 0


def padding_mask(token_ids):
    """True where a token is not padding: (batch, length), the shape of Keras' implicit masks."""
    return ops.not_equal(token_ids, PADDING_ID)


def implicit_mask(tensor):
    """The mask that Keras attached to a tensor, or None.

    Keras itself hands it to a layer's `mask` argument only where the layer is called with one tensor alone.
    """
    return getattr(tensor, "_keras_mask", None)


def causal_mask(length):
    """True where a position may look, itself and what is before it: (1, length, length)."""
    positions = ops.arange(length)
    return ops.expand_dims(positions[:, None] >= positions[None, :], 0)


def ancestor_mask(ancestors, position, beam_size):
    """Which cache entries each live hypothesis may look at during beam search.

    The cache holds, for every position, one entry of each of the `beam_size` hypotheses that lived then. A
    hypothesis looks at its own ancestors alone.

    Args:
        ancestors: int (batch, beam_size, max_length): at each position, the index of the ancestor.
        position: int scalar, the newest position.
        beam_size: int.

    Returns:
        bool (batch, beam_size, max_length * beam_size).
    """
    batch, beam, max_length = ops.shape(ancestors)
    is_ancestor = ops.equal(ancestors[..., None], ops.arange(beam_size))
    is_past = ops.arange(max_length) <= position
    mask = ops.logical_and(is_ancestor, is_past[None, None, :, None])
    return ops.reshape(mask, (batch, beam, max_length * beam_size))


def combine(*masks):
    """The conjunction of masks that broadcast against each other; None masks nothing."""
    masks = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    if not masks:
        return None
    combined = masks[0]
    for mask in masks[1:]:
        combined = ops.logical_and(combined, mask)
    return combined
