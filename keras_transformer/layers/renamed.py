"""Names that changed: of other libraries' arguments, and of our own in earlier releases."""

import inspect
import warnings
from typing import Any

from ..checks import integer, require


def refuse_other_names(cls: type, arguments: dict[str, Any], **ours: str) -> None:
    """Raises a TypeError that gives our name of an argument that other libraries call otherwise.

    A subclass may have an argument of such a name.

    Args:
        cls: the class that is constructed.
        arguments: its keyword arguments.
        **ours: our names, by the names in other libraries.
    """
    own = inspect.signature(cls.__init__).parameters
    for name in arguments.keys() & ours.keys():
        if name not in own:
            raise TypeError(f"{cls.__name__} has no argument {name!r}; it is called {ours[name]!r}")


def sliding_window_of(arguments: dict[str, Any], sliding_window: int | None) -> int | None:
    """Returns the sliding window, which earlier releases called `neighborhood`, and removes that.

    Args:
        arguments: further keyword arguments of a constructor.
        sliding_window: the argument of that name.
    """
    if "neighborhood" not in arguments:
        return sliding_window
    neighborhood = arguments.pop("neighborhood")
    if neighborhood is None:
        return sliding_window
    warnings.warn(
        "neighborhood=2 * w - 1 is now called sliding_window=w; the next release will not accept "
        "the earlier name",
        DeprecationWarning,
        stacklevel=3,
    )
    rule = f"None with neighborhood={neighborhood}"
    require(sliding_window is None, "sliding_window", rule, sliding_window)
    return _window(neighborhood)


def with_sliding_window(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration in which `neighborhood`, of an earlier release, is `sliding_window`."""
    if "neighborhood" not in config:
        return config
    config = dict(config)
    neighborhood = config.pop("neighborhood")
    if neighborhood is not None:
        config["sliding_window"] = _window(neighborhood)
    return config


def _window(neighborhood: int) -> int:
    neighborhood = integer("neighborhood", neighborhood)
    require(
        neighborhood > 0 and neighborhood % 2 == 1, "neighborhood", "positive and odd", neighborhood
    )
    return (neighborhood + 1) // 2
