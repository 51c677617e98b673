"""`drafter.npz`: the weights of the network that drafts tokens for greedy search."""

import logging
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from .files import reading_archive, replacing_with_checksum

if TYPE_CHECKING:
    from ..models import Drafter

_log = logging.getLogger(__name__)
_NAMES = ("inner_kernel", "inner_bias", "outer_kernel", "outer_bias")


def write_drafter(path: pathlib.Path, drafter: "Drafter", model_sha256: str) -> None:
    """Writes the weights of a drafter, the checksum of the weights of its model, and the file's checksum."""
    weights = dict(zip(_NAMES, drafter.get_weights(), strict=True))
    with replacing_with_checksum(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, model=np.array(model_sha256), **weights)


def read_drafter(path: pathlib.Path, d_model: int, dtype: str, model_sha256: str) -> "Drafter":
    """Reads the drafter of a model; logs a warning if it was trained for other weights, which costs only time.

    Raises:
        DamagedFileError: The file is damaged, or does not fit the model.
    """
    from ..models import Drafter

    with reading_archive(path, "the drafter") as arrays:
        model, weights = str(arrays["model"]), [arrays[name] for name in _NAMES]
        d_ff = weights[1].shape[0]
        shapes = [weight.shape for weight in weights]
        if shapes != [(2 * d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)]:
            raise ValueError(f"its weights do not fit d_model={d_model}")
        if not all(weight.dtype.kind == "f" and np.isfinite(weight).all() for weight in weights):
            raise ValueError("its weights are not finite numbers")
    if model != model_sha256:
        _log.warning(
            f"{path}: the drafter was trained for other weights of the model; translations stay right, but take more "
            "steps: train it again with keras-transformer draft, or remove it"
        )
    drafter = Drafter(d_ff, dtype=dtype)
    drafter.build((None, None, d_model), (None, None, d_model))
    drafter.set_weights(weights)
    return drafter
