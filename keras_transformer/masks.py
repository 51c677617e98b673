"""Where masks are made: boolean, True = attend, of shape (batch, target length, source length)."""

from typing import Annotated

from keras import ops

from .tensors import Dimension, Tensor

PADDING_ID = 0


def padding_mask(token_ids: Annotated[Tensor, "int (batch, length)"]) -> Annotated[Tensor, "bool (batch, length)"]:
    """Returns True where a token is not padding, in the shape of Keras' implicit masks."""
    return ops.not_equal(token_ids, PADDING_ID)


def label_mask(labels: Annotated[Tensor, "int (...)"]) -> Annotated[Tensor, "bool (...)"]:
    """Returns True where a label counts: not at padding, nor where it is negative, such as -100 in PyTorch."""
    return ops.greater(labels, PADDING_ID)


def implicit_mask(tensor: Tensor) -> Tensor | None:
    """Returns the mask that Keras attached to a tensor, or None.

    Keras hands it to a layer's `mask` argument only if the layer is called with a single tensor.
    """
    # Keras has no public function for it; a layer of ours must find it by itself wherever it has several inputs.
    return getattr(tensor, "_keras_mask", None)


def causal_mask(
    target_length: Dimension, source_length: Dimension | None = None
) -> Annotated[Tensor, "bool (1, target length, source length)"]:
    """Returns True where a position may attend to itself and to earlier positions.

    Args:
        target_length: int or int scalar, the number of queries.
        source_length: int or int scalar, the number of keys. Defaults to `target_length`.
    """
    targets = ops.arange(target_length)
    sources = targets if source_length is None else ops.arange(source_length)
    return ops.expand_dims(targets[:, None] >= sources[None, :], 0)


def neighborhood_mask(
    query_positions: Annotated[Tensor, "int (number of queries,)"],
    key_positions: Annotated[Tensor, "int (number of keys,)"],
    neighborhood: int,
    use_causal_mask: bool = False,
) -> Annotated[Tensor, "bool (1, number of queries, number of keys)"]:
    """Returns True where a key is in the neighborhood of a query.

    Args:
        query_positions: int (number of queries,).
        key_positions: int (number of keys,).
        neighborhood: int. r, of which `r // 2` positions lie on either side of a query's own.
        use_causal_mask: bool. Whether to leave out the positions after a query's own. Defaults to False.
    """
    reach = neighborhood // 2
    distance = key_positions[None, :] - query_positions[:, None]
    mask = ops.logical_and(distance >= -reach, distance <= (0 if use_causal_mask else reach))
    return ops.expand_dims(mask, 0)


def combine(*masks: Tensor | None) -> Tensor | None:
    """Returns the conjunction of masks that broadcast against each other; None stands for no restriction."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = ops.logical_and(combined, mask)
    return combined
