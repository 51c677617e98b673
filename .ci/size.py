"""Prints how much a reader has to hold, and fails if it is more than the limits.

The rows are: the files of keras_transformer that the module of `EncoderLayer` imports, directly or
not, and their lines; the source files in which one option of a block, `query_key_norm`, is written;
and the Python files of the three packages with their lines.
"""

import ast
import pathlib
import sys

PACKAGES = ("keras_transformer", "training", "export")
CLOSURE_FILES, CLOSURE_LINES = 12, 2_380
OPTION_FILES = 5
FILES, LINES = 122, 22_000


def imported_names(path: pathlib.Path) -> set[str]:
    """The dotted names that a file imports from its own package, other than for type checkers
    alone."""
    package = path.parent.parts
    names = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            nodes += node.orelse
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            # What is imported may be a module or a name in one.
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        else:
            nodes += ast.iter_child_nodes(node)
    return {name for name in names if name.partition(".")[0] == PACKAGES[0]}


def import_closure(start: pathlib.Path) -> set[pathlib.Path]:
    """The files that a file imports, directly or not, itself among them; an import inside a
    function counts too."""
    closure, waiting = set(), {start}
    while waiting:
        path = waiting.pop()
        closure.add(path)
        for name in imported_names(path):
            base = pathlib.Path(*name.split("."))
            waiting |= {
                file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()
            } - closure
    return closure


def num_lines(paths: set[pathlib.Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main() -> None:
    sources = {path for package in PACKAGES for path in pathlib.Path(package).rglob("*.py")}
    settings = {path for package in PACKAGES for path in pathlib.Path(package).rglob("*.yaml")}
    (start,) = (
        path for path in sources if "\nclass EncoderLayer(" in path.read_text(encoding="utf-8")
    )
    closure = import_closure(start)
    with_option = {
        path for path in sources | settings if "query_key_norm" in path.read_text(encoding="utf-8")
    }
    rows = [
        (f"files that {start} needs", len(closure), CLOSURE_FILES),
        (f"lines of the files that {start} needs", num_lines(closure), CLOSURE_LINES),
        ("source files in which `query_key_norm` is written", len(with_option), OPTION_FILES),
        (f"Python files of {', '.join(PACKAGES)}", len(sources), FILES),
        (f"lines of Python of {', '.join(PACKAGES)}", num_lines(sources), LINES),
    ]
    for name, number, limit in rows:
        print(f"{name}: {number:,}, at most {limit:,} allowed")
    if any(number > limit for _, number, limit in rows):
        for title, paths in (("needed", closure), ("`query_key_norm`", with_option)):
            print(f"{title}: {', '.join(map(str, sorted(paths)))}")
        sys.exit(1)


if __name__ == "__main__":
    main()
