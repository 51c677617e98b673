"""Suggests our argument names to users of other libraries."""

import inspect
from typing import TYPE_CHECKING, Any


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
