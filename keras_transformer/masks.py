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


def neighborhood_mask(query_positions, key_positions, neighborhood, use_causal_mask=False):
    """True where a key is in the neighborhood of a query: (1, number of queries, number of keys).

    Args:
        query_positions, key_positions: int (number,).
        neighborhood: r, of which `r // 2` positions lie on either side of a query's own.
        use_causal_mask: whether the half ahead is cut off.
    """
    reach = neighborhood // 2
    distance = key_positions[None, :] - query_positions[:, None]
    mask = ops.logical_and(distance >= -reach, distance <= (0 if use_causal_mask else reach))
    return ops.expand_dims(mask, 0)


def ancestor_mask(ancestors, position, beam_size, neighborhood=None):
    """Which cache entries each live hypothesis may look at during beam search.

    The cache holds, for every position, one entry of each of the `beam_size` hypotheses that lived then. A
    hypothesis looks at its own ancestors alone.

    Args:
        ancestors: int (batch, beam_size, max_length): at each position, the index of the ancestor.
        position: int scalar, the newest position.
        beam_size: int.
        neighborhood: r of restricted self-attention, whose half ahead is not yet written; None restricts nothing.

    Returns:
        bool (batch, beam_size, max_length * beam_size).
    """
    batch, beam, max_length = ops.shape(ancestors)
    is_ancestor = ops.equal(ancestors[..., None], ops.arange(beam_size))
    positions = ops.arange(max_length)
    is_seen = positions <= position
    if neighborhood is not None:
        is_seen = ops.logical_and(is_seen, positions >= position - neighborhood // 2)
    mask = ops.logical_and(is_ancestor, is_seen[None, None, :, None])
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
