"""Handles argument names from other libraries and from earlier releases."""

import inspect
import warnings
from typing import TYPE_CHECKING, Any

from ..checks import with_sliding_window


class ArgumentHints:
    """Base class for layers that recognizes other libraries' argument names and suggests ours.

    If a constructor receives such a name, the error message suggests the name that is used here. A
    subclass may still define an argument with such a name.
    """

    # Maps argument names in other libraries to our names.
    other_names: dict[str, str] = {}

    # This method would hide the constructor's arguments from editors and type checkers.
    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            # Check before the constructor runs, because Python would first report a missing
            # required argument there.
            own = inspect.signature(cls.__init__).parameters
            for name, our_name in cls.other_names.items():
                if name in kwargs and name not in own:
                    raise TypeError(
                        f"{cls.__name__} has no argument {name!r}; use {our_name} instead"
                    )
            return super().__new__(cls, *args, **kwargs)


def sliding_window_of(arguments: dict[str, Any], sliding_window: int | None) -> int | None:
    """Returns the sliding window, converting the argument `neighborhood` of earlier releases.

    Args:
        arguments: the constructor's other keyword arguments. `neighborhood` is removed from them.
        sliding_window: the constructor's argument `sliding_window`.
    """
    if "neighborhood" not in arguments:
        return sliding_window
    if arguments["neighborhood"] is not None:
        warnings.warn(
            "neighborhood=2 * w - 1 is now called sliding_window=w; the next release will not "
            "accept the earlier name",
            DeprecationWarning,
            stacklevel=3,
        )
    names = {"sliding_window": sliding_window, "neighborhood": arguments.pop("neighborhood")}
    return with_sliding_window(names)["sliding_window"]
