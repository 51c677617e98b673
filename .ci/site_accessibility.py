"""What the theme leaves out for people who use a keyboard or a screen reader."""

from typing import Any


def on_page_content(html: str, **context: Any) -> str:
    """Called by MkDocs with the HTML of each page: a table wider than the screen is scrolled where it has the focus."""
    return html.replace("<table>", '<table tabindex="0">')


def on_post_page(output: str, **context: Any) -> str:
    """Called by MkDocs with each page in its theme."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')
