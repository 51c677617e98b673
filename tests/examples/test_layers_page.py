"""All code on the pages about layers runs, in fresh processes for each installed backend."""

import importlib.util
import pathlib
import re

import pytest
from fresh_process import run_python

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = ("index.md", "layers.md", "blocks.md")
# The title of a block names the package that it needs, or its file. A block in a tab is indented.
BLOCK = re.compile(r'^( *)```python(?: title="([\w.]+)")?\n(.*?)^ *```$', re.DOTALL | re.MULTILINE)
PACKAGES = {"TensorFlow": "tensorflow", None: ""}
BACKENDS = ("tensorflow", "jax", "torch")
INSTALLED = [name for name in BACKENDS if importlib.util.find_spec(name)]


def is_left_out(package, backend):
    """Whether a block that needs a package is of another backend, or the package is not installed
    here."""
    return (
        package != backend
        if package in BACKENDS
        else bool(package) and not importlib.util.find_spec(package)
    )


def programs(page, backend):
    """The code of each file, and last of all other blocks, on the lines that it has on the page, as
    tracebacks show."""
    text = (DOCS / page).read_text(encoding="utf-8")
    files, rest = {}, [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        indentation, title, code = block.groups()
        first = text.count("\n", 0, block.start(3))
        code = [line.removeprefix(indentation) for line in code.splitlines()]
        if title and title.endswith(".py"):
            files[title] = "\n".join([""] * first + code)
        elif not is_left_out(PACKAGES[title], backend):
            rest[first : first + len(code)] = code
    if "my_blocks.py" in files:
        # The other blocks use its imports.
        rest[0] = "from my_blocks import *"
    return {**files, "page.py": "\n".join(rest)}


# Where TensorFlow is installed, these are slow: `make test-jax` and `make test-torch` run the code
# without it.
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "tensorflow" in INSTALLED else [])
        for name in INSTALLED
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs(page, backend, tmp_path):
    files = programs(page, backend)
    assert files["page.py"].count("\n") > 20
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    for name in files:
        run_python(name, cwd=tmp_path, env={"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"})
