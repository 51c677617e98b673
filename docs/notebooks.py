"""Makes a notebook from each short script of examples/, runs it, and keeps what it prints.

PATH="$PWD/.venv/bin:$PATH" python docs/notebooks.py [NAME...]   # half an hour for all
"""

import ast
import json
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
from typing import NamedTuple

import jupytext
import nbformat
from nbclient import NotebookClient

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
FOLDER = EXAMPLES / "notebooks"
METADATA = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},
}
# What differs each time: Keras' times, and TensorFlow's log with its names of temporary files.
VARIABLE = re.compile(
    r" - \d+s - \d+m?s/step|^(?:INFO|WARNING):(?:tensorflow:)?.*\n(?:(?:Please report|Cause:|To "
    r"silence).*\n)*",
    re.MULTILINE,
)


class Start(NamedTuple):
    """How a notebook starts a script."""

    arguments: str = ""  # the command line
    before: str = ""  # a cell before the script
    after: str = ""  # a cell after the script


TEXTS = """import json, pathlib

texts = [
    "A dog sleeps in the garden.",
    "She lost it.",
    "The woman bought the lamp because it was cheap.",
]
lines = [json.dumps({"text": text}) + "\\n" for text in texts]
pathlib.Path("texts.jsonl").write_text("".join(lines));"""

SERVER = """import io, subprocess

command = ["keras-transformer", "serve", "--model-dir", "demo/model", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
address = server.stdout.readline().split()[0]  # printed when it can be asked

sys.argv += ["--url", f"{address}v1/models/model"]
sys.stdin = io.StringIO(
    "A dog sleeps in the garden.\\n"
    "The woman bought the lamp because it was cheap.\\n"
)"""

# In an order in which they can run: whole_path trains the model that others use.
STARTS = {
    "whole_path": Start("demo"),
    "fine_tuning": Start("demo/model demo/swiss"),
    "batch_translation": Start(
        "demo/model texts.jsonl translated.jsonl",
        TEXTS,
        'print(pathlib.Path("translated.jsonl").read_text())',
    ),
    "constrained_search": Start("demo/model --surely ihn"),
    "rest_client": Start(before=SERVER, after="server.terminate()"),
    **{f"layers/{path.stem}": Start() for path in sorted((EXAMPLES / "layers").glob("*.py"))},
    "layers/long_sequences": Start("--steps 20"),
    "layers/training_loops": Start("--steps 400"),
}


def cells_of(script: str) -> tuple[str, list[str]]:
    """Returns a script's docstring, and its code in cells.

    The body of its `main` comes after all definitions.
    """
    tree = ast.parse(script)
    lines = script.splitlines()
    *definitions, main, _ = tree.body
    assert isinstance(main, ast.FunctionDef) and main.name == "main"
    above = "\n".join(lines[definitions[0].end_lineno : main.lineno - 1])
    above = re.sub(r"\n\n(?=import |from )", "\n", above.strip())  # all imports in one cell
    body = textwrap.dedent("\n".join(lines[main.lineno : main.end_lineno]))
    cells = jupytext.reads(f"{above}\n\n\n{body}\n", fmt="py:light").cells
    return ast.get_docstring(tree), [cell.source for cell in cells]


def make_notebook(name: str) -> nbformat.NotebookNode:
    """Returns the notebook of a script, which has not run."""
    path = EXAMPLES / f"{name}.py"
    start = STARTS[name]
    docstring, code = cells_of(path.read_text(encoding="utf-8"))
    title = path.stem.replace("_", " ").capitalize()
    source = f"This notebook is made from [{path.name}](../{name}.py)."
    # Modules of the examples are found from the folder of the notebooks.
    argv = json.dumps([path.name, *shlex.split(start.arguments)])
    first = f'import sys\n\nsys.argv = {argv}\nsys.path += ["../..", "../layers"]'
    new = nbformat.v4
    cells = [new.new_markdown_cell(f"# {title}\n\n{docstring}\n\n{source}")]
    for cell in [first, start.before, *code, start.after]:
        if cell:
            cells.append(new.new_code_cell(cell))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new.new_notebook(cells=cells, metadata=METADATA)


def run(notebook: nbformat.NotebookNode, directory: pathlib.Path) -> None:
    """Runs a notebook, and keeps its standard output, without logs and addresses of objects."""
    NotebookClient(
        notebook, timeout=None, record_timing=False, resources={"metadata": {"path": directory}}
    ).execute()
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
            text = VARIABLE.sub("", text)
            cell.outputs = []
            if text:
                cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=text))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # They write beside themselves.
        directory = pathlib.Path(folder) / "examples" / "notebooks"
        shutil.copytree(EXAMPLES, directory.parent, ignore=shutil.ignore_patterns("notebooks"))
        directory.mkdir()
        for name in sys.argv[1:] or STARTS:
            notebook = make_notebook(name)
            run(notebook, directory)
            path = FOLDER / f"{pathlib.Path(name).name}.ipynb"
            nbformat.write(notebook, path)
            print(path)


if __name__ == "__main__":
    main()
