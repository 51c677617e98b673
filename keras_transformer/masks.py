"""Where masks are made: boolean, True = attend, of shape (batch, target length, source length)."""

from typing import Any

from keras import ops

PADDING_ID = 0


def padding_mask(token_ids: Any) -> Any:
    """Returns True where a token is not padding: (batch, length), the shape of Keras' implicit masks."""
    return ops.not_equal(token_ids, PADDING_ID)


def label_mask(labels: Any) -> Any:
    """Returns True where a label counts: not at padding, nor where it is negative, such as -100 in PyTorch."""
    return ops.greater(labels, PADDING_ID)


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


def combine(*masks: Any) -> Any:
    """Returns the conjunction of masks that broadcast against each other; None stands for no restriction."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = ops.logical_and(combined, mask)
    return combined
