"""Weights of a model in a file, `NAME.weights.h5`."""

import io
import math
import pathlib
from typing import TYPE_CHECKING

from ..errors import DamagedFileError, InvalidFileError
from .files import replacing_with_checksum, require_undamaged

if TYPE_CHECKING:
    import h5py

    from ..models import Transformer


class _WeightsInMemory(io.BytesIO):
    """What Keras writes weights to. HDF5 itself would end the process when the disk is full."""

    def __str__(self) -> str:
        # Keras looks at the suffix.
        return "memory.weights.h5"


def save_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Writes the weights of a model, and their checksum; if that fails, the file before stays."""
    content = _weights_in_memory(model)
    with replacing_with_checksum(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def load_weights(model: "Transformer", path: pathlib.Path) -> None:
    """Loads weights into a model.

    Raises:
        DamagedFileError: The file is damaged, or holds numbers that are not finite.
        InvalidFileError: The file does not have exactly the weights of the model.
    """
    import h5py
    from keras import ops

    try:
        require_undamaged(path)
        with h5py.File(path) as file:
            received = _shapes(file)
    except OSError as error:
        raise DamagedFileError(f"{path}: the file cannot be read ({str(error).splitlines()[0]})") from None
    # Keras ignores weights that the model does not have.
    if sorted(received.values()) != sorted(tuple(weight.shape) for weight in model.weights):
        raise InvalidFileError(
            f"{path}: these weights do not fit the model in config.yaml: {_difference(received, model)}"
        )
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFileError(f"{path}: the file is damaged ({str(error).splitlines()[0]})") from None
    for variable in model.weights:
        if not ops.all(ops.isfinite(variable)):
            raise DamagedFileError(f"{path}: weights are NaN or infinite, such as {variable.path}")


def _weights_in_memory(model: "Transformer") -> _WeightsInMemory:
    content = _WeightsInMemory()
    model.save_weights(content)
    return content


def _difference(received: dict[str, tuple[int, ...]], model: "Transformer") -> str:
    import h5py

    with h5py.File(_weights_in_memory(model)) as file:
        expected = _shapes(file)
    name = min(received.items() ^ expected.items())[0]
    return f"{name} has the shape {received.get(name, 'none')} in the file, {expected.get(name, 'none')} in the model"


def _shapes(file: "h5py.File") -> dict[str, tuple[int, ...]]:
    import h5py

    shapes = {}

    def visit(name: str, item: "h5py.Dataset | h5py.Group") -> None:
        # A compiled model's file also has its optimizer.
        if isinstance(item, h5py.Dataset) and name.startswith("layers/"):
            # Refuse text and records, which Keras would read in full before it finds that they are not numbers.
            is_of_numbers = item.shape is not None and item.dtype.kind in "fiub" and item.dtype.itemsize <= 8
            if not is_of_numbers or math.prod(item.chunks or ()) > max(item.size, 1):
                raise DamagedFileError(f"{file.filename}: the file is damaged ({name} is not an array of numbers)")
            shapes[name] = item.shape

    file.visititems(visit)
    return shapes
