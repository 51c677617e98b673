"""The notebooks of examples/notebooks: each is its script, and runs."""

import json
import pathlib
import re
import shutil
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from test_examples import NAMES
from test_layer_examples import EXAMPLES

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = {name: ROOT / "examples" / f"{name}.py" for name in NAMES}
SCRIPTS |= {name: ROOT / "examples" / "layers" / f"{name}.py" for name in EXAMPLES}
each_notebook = pytest.mark.parametrize("name", SCRIPTS)
# For short runs, with a model that has memorized a few sentences.
ARGUMENTS = {name: example.short for name, example in EXAMPLES.items()} | {
    "whole_path": "path --steps 2",
    "fine_tuning": "demo/model demo/swiss --steps 20 --bleu 0",
    "batch_translation": "demo/model texts.jsonl translated.jsonl",
    "constrained_search": "demo/model --never Baum",
    "rest_client": "",
}


def read(name):
    return nbformat.read(ROOT / "examples" / "notebooks" / f"{name}.ipynb", as_version=4)


def draws(cell):
    """Whether the code of a cell draws a picture."""
    source = "".join(cell["source"])
    return source.endswith("plt.show()") or "_figure(" in source.splitlines()[-1]


def test_every_script_has_a_notebook():
    assert {path.stem for path in (ROOT / "examples" / "notebooks").iterdir()} == {*SCRIPTS}


@each_notebook
def test_what_a_notebook_keeps_is_small_and_of_no_machine(name):
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 150_000
    assert {*content["metadata"]} == {"kernelspec", "language_info"}
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    streams = [output for output in outputs if output["output_type"] == "stream"]
    pictures = [output for output in outputs if output["output_type"] == "display_data"]
    assert streams and len(streams) + len(pictures) == len(outputs)
    assert {output["name"] for output in streams} == {"stdout"}
    assert all({*output["data"]} == {"image/png"} for output in pictures)
    # Code that draws has drawn.
    assert len(pictures) == sum(draws(cell) for cell in cells)
    printed = "".join(line for output in streams for line in output["text"])
    assert not re.search(r"(^|[\s\"'=(])/\w|0x[0-9a-f]{6}", printed), printed


@pytest.mark.slow
@each_notebook
def test_a_notebook_runs(name, tiny_model_dir, tmp_path, monkeypatch):
    directory = tmp_path / "examples" / "notebooks"
    shutil.copytree(ROOT / "examples", directory.parent)
    shutil.copytree(tiny_model_dir, directory / "demo" / "model")
    monkeypatch.setenv("PATH", str(pathlib.Path(sys.executable).parent), prepend=":")
    notebook = read(name)
    first = notebook.cells[1]
    argv = json.dumps([f"{name}.py", *ARGUMENTS[name].split()])
    first.source, replaced = re.subn(
        r"(?<=^sys.argv = )\[.*", argv, first.source, flags=re.MULTILINE
    )
    assert replaced == 1
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": directory}}).execute()
    outputs = [output for cell in notebook.cells[1:] for output in cell.get("outputs", [])]
    assert any(output.get("name") == "stdout" for output in outputs)
    drawn = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == sum(draws(cell) for cell in notebook.cells if cell.cell_type == "code")


@each_notebook
def test_a_notebook_is_what_the_tool_makes(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import notebooks

    made = notebooks.make_notebook(name if name in NAMES else f"layers/{name}")
    assert [(cell.id, cell.source) for cell in made.cells] == [
        (cell.id, cell.source) for cell in read(name).cells
    ]
    assert made.metadata == read(name).metadata
