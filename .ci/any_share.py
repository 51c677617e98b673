"""Prints which share of all parameters is annotated with `Any`, and fails if it is above a limit.

python .ci/any_share.py 8 keras_transformer training export
"""

import ast
import pathlib
import sys


def parameters(path: pathlib.Path) -> list[ast.arg]:
    """Returns the parameters of all functions in a file, other than `self` and `cls`."""
    arguments = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            arguments += [
                *given.posonlyargs,
                *given.args,
                *given.kwonlyargs,
                given.vararg,
                given.kwarg,
            ]
    return [
        parameter for parameter in arguments if parameter and parameter.arg not in ("self", "cls")
    ]


def is_any(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and any(
        isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(parameter.annotation)
    )


if __name__ == "__main__":
    limit = float(sys.argv[1])
    paths = [path for folder in sys.argv[2:] for path in sorted(pathlib.Path(folder).rglob("*.py"))]
    by_path = {path: parameters(path) for path in paths}
    number = sum(map(len, by_path.values()))
    untyped = {path: sum(map(is_any, arguments)) for path, arguments in by_path.items()}
    share = 100 * sum(untyped.values()) / number
    print(
        f"{sum(untyped.values())} of {number:,} parameters are Any: {share:.1f}%, at most "
        f"{limit:.0f}% allowed"
    )
    if share > limit:
        for path in sorted(untyped, key=untyped.__getitem__, reverse=True)[:10]:
            print(f"{path}: {untyped[path]}")
        sys.exit(1)
