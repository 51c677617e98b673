"""Scaled dot-product attention in one operation of the backend, which keeps no weights."""

from typing import Annotated

import keras
from keras import ops

from ...tensors import Tensor

# A bias that leaves nothing of a weight, and is finite in float16.
_MASKED = -6e4


def is_fused_attention_faster(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_key_value_heads, source length, key_dim)"],
    values: Annotated[Tensor, "(batch, num_key_value_heads, source length, value_dim)"],
) -> bool:
    """Returns whether the backend's operation is faster on its device than products and a softmax, and takes these.

    Args:
        queries: as for `fused_attention`.
        keys: as for `fused_attention`.
        values: as for `fused_attention`.
    """
    if keras.backend.backend() == "jax":
        half = keras.backend.standardize_dtype(queries.dtype) in ("float16", "bfloat16")
        alike = keys.shape[-1] == values.shape[-1]
        return (
            half and alike and any(device.startswith(("gpu", "cuda")) for device in keras.distribution.list_devices())
        )
    if keras.backend.backend() == "torch":
        # It copies the keys of grouped queries, which pays where it saves memory for the weights.
        return queries.shape[1] == keys.shape[1] or ops.convert_to_tensor(queries).device.type != "cpu"
    return False


def fused_attention(
    queries: Annotated[Tensor, "(batch, num_heads, target length, key_dim)"],
    keys: Annotated[Tensor, "(batch, num_key_value_heads, source length, key_dim)"],
    values: Annotated[Tensor, "(batch, num_key_value_heads, source length, value_dim)"],
    mask: Annotated[Tensor, "bool, broadcasts to (batch, num_heads, target length, source length)"] | None = None,
    bias: Annotated[Tensor, "broadcasts to (batch, num_heads, target length, source length)"] | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
) -> Annotated[Tensor, "(batch, num_heads, target length, value_dim)"]:
    """Computes `softmax(Q Kᵀ / sqrt(key_dim) + bias) V`.

    Args:
        queries: Q.
        keys: K.
        values: V.
        mask: True = attend. Defaults to None: attend to everything.
        bias: what is added to the scores. Defaults to None.
        is_causal: bool. Whether positions attend only to themselves and earlier ones; without mask and bias. Defaults
            to False.
        flash_attention: bool or None. Whether it must be flash attention; None: wherever the backend can.
            Defaults to None.

    Returns:
        The heads' outputs. A row whose mask is all False is all zeros.
    """
    any_attended = None
    if mask is not None:
        any_attended = ops.any(mask, axis=-1, keepdims=True)
        # A softmax over nothing would not be a number.
        mask = ops.logical_or(mask, ops.logical_not(any_attended))
    if mask is not None and bias is not None:
        # The operation takes one of the two.
        mask, bias = None, ops.where(mask, bias, _MASKED)
    if keras.backend.backend() == "torch":
        if keys.shape[1] == 1:
            shape = (ops.shape(keys)[0], queries.shape[1], *ops.shape(keys)[2:3])
            keys, values = (ops.broadcast_to(tensor, (*shape, tensor.shape[-1])) for tensor in (keys, values))
        # PyTorch chooses flash attention by itself; Keras' question whether it can is one that no compiler follows.
        flash_attention = bool(flash_attention)
    heads = ops.dot_product_attention(
        *(ops.transpose(tensor, (0, 2, 1, 3)) for tensor in (queries, keys, values)),
        mask=mask,
        bias=bias,
        is_causal=is_causal,
        scale=queries.shape[-1] ** -0.5,
        flash_attention=flash_attention,
    )
    heads = ops.transpose(heads, (0, 2, 1, 3))
    return heads if any_attended is None else ops.where(any_attended, heads, 0)
