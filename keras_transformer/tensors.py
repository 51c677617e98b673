"""The types of tensors and their shapes in annotations, and shapes whose sizes are only known at
run time.

An annotation says what a tensor holds: `Annotated[Tensor, "int (batch, length)"]`. Without a type
in front of the shape it is floating point.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from keras import ops


class Tensor(Protocol):
    """A tensor of any backend: of TensorFlow, JAX, PyTorch or NumPy, or symbolic in a functional
    model."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


# A size known when a graph is built is an int; one known only at run time is an int scalar tensor.
Dimension = int | Tensor
# None is a size that is not known yet, as in Keras.
Shape = tuple[int | None, ...]


def last_size(tensor: Tensor) -> Dimension:
    """Returns the last size of a tensor: an int unless it is only known at run time."""
    return ops.shape(tensor)[-1] if tensor.shape[-1] is None else tensor.shape[-1]


def reshape_inferring(tensor: Tensor, shape: Sequence[Dimension]) -> Tensor:
    """Reshapes like `keras.ops.reshape`, but lets the backend infer one size if it is only known at
    run time.

    Computing that size would add up to four small operations to a graph.
    """
    known = [size for size in shape if isinstance(size, int)]
    # No size can be inferred from a tensor without elements.
    if len(known) == len(shape) - 1 and 0 not in known:
        shape = [size if isinstance(size, int) else -1 for size in shape]
    return ops.reshape(tensor, shape)
