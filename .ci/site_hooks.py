"""The hooks of MkDocs, and an extension that reads docstrings.

Each problem is a warning, and MkDocs fails after a warning: `strict` in mkdocs.yml.
"""

import ast
import html as html_entities
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import griffe
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from docs import pictures

_LOG = get_plugin_logger("site")

_NOTEBOOKS = pathlib.Path("examples/notebooks")
_NOTEBOOK_LINK = re.compile(r"\]\(\.\./examples/notebooks/(\w+)\.ipynb\)")
# Links to code, not those between pages of different folders.
_CODE_LINK = re.compile(r"\[([^\]]+)\]\(\.\./((?![^)#]*\.md[)#])[^)]+)\)")
# Pages outside the site whose links lead into it.
_OUTSIDE = ("README.md", "CONTRIBUTING.md")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_PRE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def on_pre_build(config: Any) -> None:
    """Called before the site is built: finds pictures of other data than today's."""
    for path in pictures.stale(pathlib.Path(config.docs_dir, "assets")):
        _LOG.warning(f"{path}: its data has changed since it was made; run `make pictures`")


def on_files(files: Files, config: Any) -> Files:
    """Called with the files of the site: each notebook becomes a page and a file to download."""
    for path in sorted(_NOTEBOOKS.glob("*.ipynb")):
        name = path.stem
        resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
        markdown, resources = MarkdownExporter().from_filename(path, resources)
        markdown = markdown.replace("![png]", "![The picture that the code above draws]")
        title, rest = markdown.split("\n", 1)
        markdown = f"{title}\n\n[Download this notebook]({name}.ipynb)\n{rest}"
        contents = {f"{name}.md": markdown, f"{name}.ipynb": _read(path), **resources["outputs"]}
        for file, content in contents.items():
            files.append(File.generated(config, f"notebooks/{file}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **context: Any) -> str:
    """Called with the text of each page: adapts links.

    Links to notebooks lead to their pages, and links to code become paths of files.
    """
    markdown = _NOTEBOOK_LINK.sub(r"](notebooks/\1.md)", markdown)
    folder = "examples" if page.file.src_uri.startswith("notebooks/") else ""
    return _CODE_LINK.sub(lambda link: _as_path(page, folder, *link.groups()), markdown)


def on_page_content(html: str, page: Any, **context: Any) -> str:
    """Called with the HTML of each page: finds code that is not shown as code.

    It also lets the keyboard scroll tables wider than the screen.
    """
    shown = {_code_of(block) for block in _PRE.findall(html)}
    for number, code in _fences(page.markdown):
        if "".join(code.split()) not in shown:
            _LOG.warning(f"{page.file.src_uri}: the fence in line {number} is not rendered as code")
    return html.replace("<table>", '<table tabindex="0">')


def on_post_page(output: str, **context: Any) -> str:
    """Called with each page in its theme: screen readers get a name for the search."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def on_post_build(config: Any) -> None:
    """Called when the site is complete: checks the links from pages outside into the site."""
    for name in _OUTSIDE:
        for path, anchor in re.findall(r"\]\(docs/([^)#]+)\.md(?:#([^)]+))?\)", _read(name)):
            page = pathlib.Path(config.site_dir, f"{path}.html")
            if not page.exists() or (anchor and f'id="{anchor}"' not in _read(page)):
                _LOG.warning(f"{name}: docs/{path}.md#{anchor} leads nowhere")


def _read(path: str | pathlib.Path) -> str:
    return pathlib.Path(path).read_text(encoding="utf-8")


def _as_path(page: Any, folder: str, text: str, link: str) -> str:
    path = pathlib.PurePosixPath(folder, link.partition("#")[0])
    if not pathlib.Path(path).exists():
        _LOG.warning(f"{page.file.src_uri}: a link leads to {path}, which does not exist")
    return f"`{path}`" if text.strip("`") in str(path) else f"{text} (`{path}`)"


def _fences(markdown: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and the code of each fence."""
    fence, first, code = "", 0, []
    for number, line in enumerate(markdown.splitlines(), start=1):
        found = _FENCE.match(line)
        if not fence and found:
            fence, first, code = found[1], number, []
        elif fence and line.strip() == fence:
            yield first, "\n".join(code)
            fence = ""
        elif fence:
            code.append(line)
    if fence:
        yield first, "\n".join(code)


def _code_of(block: str) -> str:
    """Returns the text of a block of HTML, without white space."""
    return "".join(html_entities.unescape(_TAG.sub("", block)).split())


# Sections of docstrings whose entries may begin with a type, such as "int or None."
_ENTRIES = ("Args:", "Attributes:", "Call arguments:")
_SECTIONS = {"Call arguments:": "Other Parameters: Call arguments", "Example:": "Examples:"}
_ENTRY = re.compile(r" {4}(\*{0,2}\w+): (.*)")
_TYPE = re.compile(
    r"((?:int|float|bool|str|string|list|tuple|sequence|collection|iterable|callable|mapping|dict"
    r"|path|tensor|array|None|[A-Z]\w+|`[\w.]+`|, | or | of )(?:s\b)?)+(?=\.(?: |$))"
)


_NAMES = {"Dimension": "int or scalar tensor", "ndarray": "NumPy array"}
# Names of choices among strings, which the descriptions list.
_NAMES |= dict.fromkeys(
    "Format Metric Normalization PositionKind Precision Side SignatureName Test TokenizerKind "
    "TrainingPrecision".split(),
    "str",
)


class ReadableReference(griffe.Extension):
    """Shows types in words, and signatures as you write them."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **context: Any) -> None:
        """Called with each attribute: `checked(6, positive_int)` has the default 6."""
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) == "checked":
            default = value.arguments[0]
            attr.value = None if str(default) == "REQUIRED" else default

    def on_package(self, *, pkg: griffe.Module, **context: Any) -> None:
        """Called with the package when all of it is loaded."""
        self._rewrite(pkg)

    def _rewrite(self, parent: griffe.Object) -> None:
        if parent.docstring:
            parent.docstring.value = _with_types(parent)
        if isinstance(parent, griffe.Function) and parent.returns:
            parent.returns = _words(ast.parse(str(parent.returns), mode="eval").body)
        for member in parent.members.values():
            if not member.is_alias:
                self._rewrite(member)


def _with_types(documented: griffe.Object) -> str:
    """Returns a docstring with the type of each entry in parentheses, and Griffe's sections."""
    section, lines = "", []
    for line in documented.docstring.value.splitlines():
        if line and not line.startswith(" "):
            section = line
        entry = _ENTRY.fullmatch(line) if section in _ENTRIES else None
        if entry:
            name, description = entry.groups()
            if given := _TYPE.match(description):
                rest = description[given.end() + 1 :].strip()
                line = f"    {name} ({_listed(given[0].replace('`', ''))}): {rest}"
            elif annotation := _annotation(documented, name):
                line = f"    {name} ({_listed(annotation)}): {description}"
        lines.append(_SECTIONS.get(line, line))
    return "\n".join(lines)


def _listed(alternatives: str) -> str:
    """Returns "int, str, or None" for "int, str or None" and for "int or str or None"."""
    *others, last = re.split(" or |, ", alternatives) if "(" not in alternatives else [alternatives]
    if len(others) < 2:
        return alternatives
    # Without the last comma, Griffe would read a tuple of Python.
    return f"{', '.join(others)}, or {last}"


def _annotation(documented: griffe.Object, name: str) -> str:
    """Returns the type of a parameter or an attribute in words, or nothing."""
    parameters = getattr(documented, "parameters", ())
    if name in parameters:
        annotation = parameters[name].annotation
    else:
        annotation = getattr(documented.members.get(name), "annotation", None)
    if not annotation or str(annotation) == "Any":
        return ""
    return _words(ast.parse(str(annotation), mode="eval").body)


def _words(annotation: ast.expr) -> str:
    """Returns an annotation in words: `int | None` is "int or None"."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return f"{_words(left)} or {_words(right)}"
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return ast.unparse(choices).strip("()").replace(", ", " or ").replace("'", '"')
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[_, shape])):
            # Griffe reads "int (batch)" as a call. It leaves "int (batch, prefix length)" a string.
            text = shape.value if isinstance(shape, ast.Constant) else ast.unparse(shape)
            return re.sub(r"^(\w*) ?(\(.*)?$", r"\1 tensor \2", text).strip()
        case ast.Subscript(value=ast.Name(id="Callable")):
            return "callable"
        case ast.Subscript(value=ast.Name(id="PathLike")):
            return "path"
        case ast.Subscript(value=ast.Name(id=kind), slice=ast.expr() as item) if kind in (
            "list",
            "set",
            "Collection",
            "Iterable",
            "Sequence",
        ):
            return f"{kind.lower()} of {_words(item)}"
        case ast.Subscript(value=ast.Name(id=kind)):
            return "mapping" if kind == "Mapping" else kind
        case ast.Subscript(value=ast.Attribute()):
            return _words(annotation.value)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Attribute(attr=name):
            return name
        case _:
            return ast.unparse(annotation)
