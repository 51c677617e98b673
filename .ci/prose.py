"""Finds wording that has to be read twice, in documentation, comments and docstrings.

The rules are those of CONTRIBUTING.md that a pattern can check without being wrong.
"""

import ast
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

PACKAGES = ("keras_transformer", "training", "export")
RULES = {
    re.compile(r"(^|[.:] |# |\"\"\"|- )Of [a-z]"): "begin with the subject, not with 'Of'",
    re.compile(r"\bas many[:;,.]"): "say what is as many, or 'one for each'",
    re.compile(r"\bin the place of\b"): "write 'instead of'",
    re.compile(r"\b(each|all|one) of which\b"): "begin a new sentence",
    re.compile(r"\bnobody\b", re.IGNORECASE): "say what does not happen",
}


def prose_of(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a page, or of a module's comments and docstrings, with numbers."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".md":
        yield from enumerate(lines, start=1)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstring = node.body[0]
            for number in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                yield number, lines[number - 1].strip()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def main() -> None:
    paths = [*pathlib.Path("docs").glob("*.md"), pathlib.Path("README.md")]
    paths += [path for package in PACKAGES for path in pathlib.Path(package).rglob("*.py")]
    findings = [
        f"{path}:{number}: {advice}: {line}"
        for path in sorted(paths)
        for number, line in prose_of(path)
        for pattern, advice in RULES.items()
        if pattern.search(line)
    ]
    print("\n".join(findings))
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
