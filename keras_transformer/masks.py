"""Attention masks: bool (batch, target length, source length), True = attend."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from .checks import require
from .errors import ConfigError
from .keras_versions import implicit_mask_of, is_compiling
from .tensors import Tensor

PADDING_ID = 0


def implicit_mask(tensor: Tensor) -> Tensor | None:
    """Returns the mask that Keras attached to a tensor, or None.

    Keras passes masks to a layer automatically in two cases: as `mask` if the layer is called with
    a single tensor, and as `NAME_mask` for each tensor argument `NAME` if it is called with several
    tensors. In other cases, such as `inputs` together with an `attention_mask`, a layer calls this
    function. An operation between two layers, such as `x * 2`, drops the mask.

    Keras cannot attach the mask to a JAX tensor as an attribute, and it has no public function that
    returns the mask.
    """
    return implicit_mask_of(tensor)


def as_mask(name: str, mask: Any) -> Tensor | None:
    """Converts a tensor, a NumPy array or a list to a boolean tensor; returns None for None.

    Raises:
        ConfigError: A floating-point mask contains values other than 0 and 1, such as the -1e9 that
            other libraries add to scores. This is only checked if the values are known.
    """
    if mask is None:
        return None
    rule = "boolean, True = attend, or hold only 0 and 1"
    mask = as_numbers(name, mask, rule)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype == "bool":
        return mask if keras.utils.is_keras_tensor(mask) else ops.convert_to_tensor(mask)
    if keras.backend.is_float_dtype(dtype):
        values = known_values(mask)
        if values is not None and values.size:
            wrong = values[(values != 0) & (values != 1)]
            require(wrong.size == 0, name, rule, wrong.ravel()[0].item() if wrong.size else None)
    return ops.cast(mask, "bool")


def as_numbers(name: str, values: Any, rule: str) -> Any:
    """Converts a list to an array; returns a tensor or an array unchanged.

    Raises:
        ConfigError: The values are not numbers, or the rows of a list have different lengths.
    """
    refuse_ragged(name, values)
    array = values
    if not hasattr(values, "dtype"):
        try:
            array = np.asarray(values)
        except ValueError:
            require(False, name, f"{rule}, in rows of equal length", values)
    kind = getattr(array.dtype, "kind", None)
    is_text = kind in ("U", "S", "O") or getattr(array.dtype, "name", None) == "string"
    require(not is_text, name, rule, values)
    return array


def known_values(tensor: Any) -> np.ndarray | None:
    """Returns the values of a tensor, or None if they are unknown, as in a graph being traced."""
    if keras.utils.is_keras_tensor(tensor) or is_compiling():
        return None
    try:
        return np.asarray(tensor, "float64")
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        return None


def refuse_ragged(name: str, inputs: object) -> None:
    """Raises a ConfigError if inputs are a `tf.RaggedTensor`."""
    if type(inputs).__name__ == "RaggedTensor":
        raise ConfigError(
            f"{name} must not be ragged: pad it first, with to_tensor(); received a RaggedTensor"
        )


def padding_mask(token_ids: Tensor, padding_id: int | None = PADDING_ID) -> Tensor:
    """Returns True where a token is not padding, in the shape of Keras' implicit masks.

    Without a padding id, no token is padding.

    Args:
        token_ids: int (batch, length).
        padding_id: int or None. Defaults to 0.

    Returns:
        bool (batch, length).
    """
    if padding_id is None:
        return ops.ones_like(token_ids, dtype="bool")
    return ops.not_equal(token_ids, padding_id)


def causal_mask(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Returns True where the position of a key is at or before the position of a query.

    Args:
        query_positions: int (..., number of queries), with or without a batch axis.
        key_positions: int (..., number of keys).

    Returns:
        bool (1 or batch, number of queries, number of keys).
    """
    # Do not index with an ellipsis: tf2onnx would create a graph that does not load.
    queries, keys = ops.expand_dims(query_positions, -1), ops.expand_dims(key_positions, -2)
    return _with_batch_axis(queries >= keys)


def sliding_window_mask(
    query_positions: Tensor,
    key_positions: Tensor,
    sliding_window: int,
    use_causal_mask: bool = False,
) -> Tensor:
    """Returns True where a key is less than `sliding_window` positions away from a query.

    With a causal mask, keys after the query are False, too.

    Args:
        query_positions: int (..., number of queries), with or without a batch axis.
        key_positions: int (..., number of keys).
        sliding_window: int. Window w. The neighborhood r in section 4 of the paper is 2w - 1.
        use_causal_mask: bool. Whether to also apply a causal mask. Defaults to False.

    Returns:
        bool (1 or batch, number of queries, number of keys).
    """
    distance = ops.expand_dims(key_positions, -2) - ops.expand_dims(query_positions, -1)
    farthest = 0 if use_causal_mask else sliding_window - 1
    mask = ops.logical_and(distance >= 1 - sliding_window, distance <= farthest)
    return _with_batch_axis(mask)


def _with_batch_axis(mask: Tensor) -> Tensor:
    return mask if len(mask.shape) == 3 else ops.expand_dims(mask, 0)


def combine(*masks: Tensor | None) -> Tensor | None:
    """Returns the logical AND of masks, which are broadcast, or None if all masks are None."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None
