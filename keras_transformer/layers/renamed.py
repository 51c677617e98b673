"""Names that changed: of other libraries' arguments, and of our own in earlier releases."""

import inspect
import warnings
from typing import TYPE_CHECKING, Any

from ..checks import with_sliding_window


class ArgumentHints:
    """Base of layers: tells users of other libraries what their arguments are called here.

    A constructor that receives one of these names says ours. A subclass may use such a name itself.
    """

    # Our names of arguments, by their names in other libraries.
    other_names: dict[str, str] = {}

    # Editors and type checkers read the constructor's arguments, and this method would hide them.
    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            # Not in the constructor, where Python complains first that a required argument is
            # missing.
            own = inspect.signature(cls.__init__).parameters
            for name, our_name in cls.other_names.items():
                if name in kwargs and name not in own:
                    raise TypeError(
                        f"{cls.__name__} has no argument {name!r}; it is called {our_name!r}"
                    )
            return super().__new__(cls, *args, **kwargs)


def sliding_window_of(arguments: dict[str, Any], sliding_window: int | None) -> int | None:
    """Returns the sliding window, which earlier releases called `neighborhood`, and removes that.

    Args:
        arguments: further keyword arguments of a constructor.
        sliding_window: the argument of that name.
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
