"""The hooks of MkDocs, and an extension that reads docstrings."""

import pathlib
import re
from typing import Any

import griffe
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

_NOTEBOOKS = pathlib.Path("examples/notebooks")
_NOTEBOOK_LINK = re.compile(r"\]\(\.\./examples/notebooks/(\w+)\.ipynb\)")
# Links to code, not those between pages of different folders.
_CODE_LINK = re.compile(r"\[([^\]]+)\]\(\.\./((?![^)#]*\.md[)#])[^)]+)\)")
# Former pages, and where their text is now.
_MOVED = {
    "backtranslation": "more-text",
    "corpus-translation": "more-text",
    "ctranslate2": "engines",
    "decisions": "architecture",
    "distillation": "more-text",
    "experiments": "notes/2026-11-26-experiments",
    "placeholders": "terms",
    "robustness": "data",
    "shortlist": "latency",
    "table1": "paper",
    "tags": "terms",
}
_SECTIONS = {"Call arguments:": "Other Parameters: Call arguments", "Example:": "Examples:"}


def on_files(files: Files, config: Any) -> Files:
    """Called with the files of the site: the notebooks become pages."""
    for path in sorted(_NOTEBOOKS.glob("*.ipynb")):
        markdown, _ = MarkdownExporter().from_filename(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown))
    return files


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Called with the text of each page: adapts links.

    Links to notebooks lead to their pages, and links to code become paths of files.
    """
    markdown = _NOTEBOOK_LINK.sub(r"](notebooks/\1.md)", markdown)
    return _CODE_LINK.sub(lambda link: _as_path(*link.groups()), markdown)


def on_page_content(html: str, **context: Any) -> str:
    """Called with the HTML of each page: lets the keyboard scroll tables wider than the screen."""
    return html.replace("<table>", '<table tabindex="0">')


def on_post_page(output: str, **context: Any) -> str:
    """Called with each page in its theme: screen readers get a name for the search."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_post_build(config: Any) -> None:
    """Called when the site is complete: the addresses of former pages lead to their text."""
    for old, new in _MOVED.items():
        page = (
            f'<!doctype html><meta http-equiv="refresh" content="0; url={new}.html">'
            f'<a href="{new}.html">{new}</a>'
        )
        pathlib.Path(config.site_dir, f"{old}.html").write_text(page, encoding="utf-8")


def _as_path(text: str, path: str) -> str:
    return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"


class Sections(griffe.Extension):
    """Names sections of docstrings so that arguments are listed, and examples shown as code."""

    def on_instance(self, *, obj: griffe.Object, **context: Any) -> None:
        """Called with each module, class and function."""
        if obj.docstring:
            lines = obj.docstring.value.splitlines()
            obj.docstring.value = "\n".join(_SECTIONS.get(line, line) for line in lines)
