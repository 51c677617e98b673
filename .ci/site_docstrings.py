"""Docstrings in the words of the documentation's generator."""

from typing import Any

import griffe

_SECTIONS = {"Call arguments:": "Other Parameters: Call arguments", "Example:": "Examples:"}


class Sections(griffe.Extension):
    """Names sections of docstrings as the generator does, so that it lists arguments and shows examples as code."""

    def on_instance(self, *, obj: griffe.Object, **context: Any) -> None:
        """Called with each module, class and function."""
        if obj.docstring:
            lines = obj.docstring.value.splitlines()
            obj.docstring.value = "\n".join(_SECTIONS.get(line, line) for line in lines)
