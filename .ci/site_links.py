"""Links from the documentation to code, which is not part of the site, become paths of files."""

import re
from typing import Any

# But for those between pages of different folders.
_LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+?(?<!\.md))\)")


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Called by MkDocs with the text of each page."""
    return _LINK.sub(lambda link: _as_path(*link.groups()), markdown)


def _as_path(text: str, path: str) -> str:
    return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"
