"""The memory of the machine, against which sizes are checked before anything of that size is made."""

import contextlib
import os
import pathlib

from ..errors import MemoryLimitError

_CONTAINER_LIMITS = (
    pathlib.Path("/sys/fs/cgroup/memory.max"),
    pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_size() -> int:
    """Returns the bytes of memory of this machine or container."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER_LIMITS:
        # Not in a container, or "max".
        with contextlib.suppress(OSError, ValueError):
            size = min(size, int(path.read_text()))
    return size


def require_memory(num_parameters: int, bytes_per_parameter: int, purpose: str) -> None:
    """Raises a MemoryLimitError if the machine has less memory than a model's parameters take at least."""
    needed, available = num_parameters * bytes_per_parameter, memory_size()
    if needed > available:
        raise MemoryLimitError(
            f"the sizes in the section model make {num_parameters:,} parameters, which take at least "
            f"{_gigabytes(needed)} of memory {purpose}; this machine has {_gigabytes(available)}"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
