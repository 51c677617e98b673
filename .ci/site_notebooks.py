"""The notebooks of examples/notebooks become pages of the documentation."""

import pathlib
import re
from typing import Any

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

_FOLDER = pathlib.Path("examples/notebooks")
_LINK = re.compile(r"\]\(\.\./examples/notebooks/(\w+)\.ipynb\)")


def on_files(files: Files, config: Any) -> Files:
    """Called by MkDocs with the files of the site."""
    for path in sorted(_FOLDER.glob("*.ipynb")):
        markdown, _ = MarkdownExporter().from_filename(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown))
    return files


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Called by MkDocs with the text of each page: a link to a notebook leads to its page."""
    return _LINK.sub(r"](notebooks/\1.md)", markdown)
