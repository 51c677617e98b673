"""Imports run one way; docs/architecture.md draws the arrows."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What each part may import of the project.
MAY_IMPORT = {
    "config": set(),
    "masks": set(),
    "shapes": set(),
    "files": set(),
    "cores": set(),
    "schedules": set(),
    "losses": {"masks"},
    "metrics": {"losses", "masks"},
    "layers": {"masks", "shapes"},
    "models": {"config", "layers", "masks", "shapes"},
    "decoding": {"shapes"},
    "tokenizers": {"files"},
    "model_dir": {"config", "files", "models"},
    "translator": {"config", "decoding", "losses", "model_dir", "models", "tokenizers"},
    "attention_plot": {"files", "masks", "translator"},
    "training": {
        "config", "files", "losses", "masks", "metrics", "model_dir", "models", "schedules",
        "tokenizers", "translator",
    },
    "export": {"config", "files", "model_dir", "translator"},
}  # fmt: skip
ROOF = {"__init__", "__main__", "cli"}  # may import everything


def parts():
    for path in [*ROOT.glob("keras_transformer/**/*.py"), *ROOT.glob("training/**/*.py"), *ROOT.glob("export/**/*.py")]:
        relative = path.relative_to(ROOT).with_suffix("").parts
        yield (relative[1] if relative[0] == "keras_transformer" else relative[0]), path


def imported_parts(path):
    """The project's parts that a file imports, wherever in the file."""
    package = ("keras_transformer", *path.relative_to(ROOT).parts[:-1])
    if package[1] == "keras_transformer":
        package = package[1:]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = node.module.split(".") if node.module else []
            names = [[*base, *module, alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "keras_transformer" and len(name) > 1:
                yield name[1]


@pytest.mark.parametrize("part, path", sorted(parts()), ids=lambda value: getattr(value, "stem", value))
def test_no_arrow_runs_back(part, path):
    if part in ROOF:
        return
    forbidden = set(imported_parts(path)) - MAY_IMPORT[part] - {part}
    assert not forbidden, f"{path.relative_to(ROOT)} must not import {sorted(forbidden)}"


def test_absolute_and_relative_imports_are_both_read():
    assert "model_dir" in set(imported_parts(ROOT / "training" / "trainer.py"))
    assert "tokenizers" in set(imported_parts(ROOT / "keras_transformer" / "translator.py"))


@pytest.mark.parametrize("part, path", sorted(parts()), ids=lambda value: getattr(value, "stem", value))
def test_tensorflow_stays_with_text_and_training(part, path):
    if part in {"cores", "tokenizers", "translator", "attention_plot", "training", "export"}:
        return
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert not imported & {"tensorflow", "tensorflow_text", "jax", "torch"}
