"""Where masks are made: boolean, True = attend, of shape (batch, target length, source length)."""

from typing import Any

from keras import ops

PADDING_ID = 0


def padding_mask(token_ids: Any) -> Any:
    """Returns True where a token is not padding: (batch, length), the shape of Keras' implicit masks."""
    return ops.not_equal(token_ids, PADDING_ID)


def implicit_mask(tensor: Any) -> Any:
    """Returns the mask that Keras attached to a tensor, or None.

    Keras hands it to a layer's `mask` argument only if the layer is called with a single tensor.
    """
    return getattr(tensor, "_keras_mask", None)


def causal_mask(target_length: Any, source_length: Any = None) -> Any:
    """Returns True where a position may attend to itself and to earlier positions.

    Args:
        target_length: int or int scalar, the number of queries.
        source_length: int or int scalar, the number of keys. Defaults to `target_length`.

    Returns:
        bool (1, target length, source length).
    """
    targets = ops.arange(target_length)
    sources = targets if source_length is None else ops.arange(source_length)
    return ops.expand_dims(targets[:, None] >= sources[None, :], 0)


def neighborhood_mask(
    query_positions: Any, key_positions: Any, neighborhood: int, use_causal_mask: bool = False
) -> Any:
    """Returns True where a key is in the neighborhood of a query.

    Args:
        query_positions: int (number of queries,).
        key_positions: int (number of keys,).
        neighborhood: int. r, of which `r // 2` positions lie on either side of a query's own.
        use_causal_mask: bool. Whether to leave out the positions after a query's own. Defaults to False.

    Returns:
        bool (1, number of queries, number of keys).
    """
    reach = neighborhood // 2
    distance = key_positions[None, :] - query_positions[:, None]
    mask = ops.logical_and(distance >= -reach, distance <= (0 if use_causal_mask else reach))
    return ops.expand_dims(mask, 0)


def ancestor_mask(ancestors: Any, position: Any, beam_size: int, neighborhood: int | None = None) -> Any:
    """Returns which cache entries each hypothesis of a beam search may attend to: those of its own ancestors.

    The cache holds, for every position, one entry of each of the `beam_size` hypotheses that existed then.

    Args:
        ancestors: int (batch, beam_size, length). For each position, the index of the hypothesis' ancestor.
        position: int scalar. The newest position.
        beam_size: int.
        neighborhood: int or None. r of restricted self-attention; the positions after the newest do not exist yet.
            Defaults to None: no restriction.

    Returns:
        bool (batch, beam_size, length * beam_size).
    """
    batch, beam, length = ops.shape(ancestors)
    is_ancestor = ops.equal(ancestors[..., None], ops.arange(beam_size))  # (batch, beam, length, beam)
    positions = ops.arange(length)
    is_visible = positions <= position
    if neighborhood is not None:
        is_visible = ops.logical_and(is_visible, positions >= position - neighborhood // 2)
    mask = ops.logical_and(is_ancestor, is_visible[None, None, :, None])
    return ops.reshape(mask, (batch, beam, length * beam_size))


def combine(*masks: Any) -> Any:
    """Returns the conjunction of masks that broadcast against each other; None stands for no restriction."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = ops.logical_and(combined, mask)
    return combined
