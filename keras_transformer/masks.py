"""Masks of attention: boolean, True = attend, of shape (batch, target length, source length)."""

import functools
from typing import Annotated

from keras import ops
from keras.src.backend.common.masking import get_keras_mask

from .tensors import Tensor

PADDING_ID = 0


def implicit_mask(tensor: Tensor) -> Tensor | None:
    """Returns the mask that Keras attached to a tensor, or None.

    Keras hands it to a layer's `mask` argument only if the layer is called with a single tensor. It
    is no attribute of JAX's tensors, and Keras has no public name for it.
    """
    return get_keras_mask(tensor)


def padding_mask(
    token_ids: Annotated[Tensor, "int (batch, length)"], padding_id: int | None = PADDING_ID
) -> Annotated[Tensor, "bool (batch, length)"]:
    """Returns True where a token is not padding, in the shape of Keras' implicit masks.

    Without a padding id, no token is padding.
    """
    if padding_id is None:
        return ops.ones_like(token_ids, dtype="bool")
    return ops.not_equal(token_ids, padding_id)


def causal_mask(
    query_positions: Annotated[Tensor, "int (number of queries,)"],
    key_positions: Annotated[Tensor, "int (number of keys,)"],
) -> Annotated[Tensor, "bool (1, number of queries, number of keys)"]:
    """Returns True where a key is at the position of a query, or before it."""
    return ops.expand_dims(query_positions[:, None] >= key_positions[None, :], 0)


def neighborhood_mask(
    query_positions: Annotated[Tensor, "int (number of queries,)"],
    key_positions: Annotated[Tensor, "int (number of keys,)"],
    neighborhood: int,
    use_causal_mask: bool = False,
) -> Annotated[Tensor, "bool (1, number of queries, number of keys)"]:
    """Returns True where a key is in the neighborhood of a query.

    A neighborhood has r positions: the query's position and `r // 2` on either side. A causal mask
    excludes those after the query.
    """
    reach = neighborhood // 2
    distance = key_positions[None, :] - query_positions[:, None]
    mask = ops.logical_and(distance >= -reach, distance <= (0 if use_causal_mask else reach))
    return ops.expand_dims(mask, 0)


def combine(*masks: Tensor | None) -> Tensor | None:
    """Returns the conjunction of masks that broadcast against each other; None stands for no
    restriction."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None
