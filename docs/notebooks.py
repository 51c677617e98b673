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
from collections.abc import Sequence
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
    after: Sequence[str] = ()  # cells after the script, such as pictures


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

CURVES = """%matplotlib inline
from keras_transformer.training.curves import training_figure

training_figure([model_dir])"""

ATTENTION = """from keras_transformer.translation.attention import attention_figure, translate_with_attention

translation = translate_with_attention(translator, "The woman bought the lamp because it was cheap.")
# The four heads of the decoder's last layer, which attend to the source.
attention_figure(translation.by_kind["cross"], layers=[1], heads=[0, 1, 2, 3])"""

FORECAST = """import matplotlib.pyplot as plt

forecast = model.predict(past[:1], verbose=0)[0]
figure, axes = plt.subplots(figsize=(7, 2.5))
axes.plot(range(-PAST, 0), past[0, :, 0], label="past")
axes.plot(range(FUTURE), future[0, :, 0], label="future")
axes.plot(range(FUTURE), forecast[:, 0], "--", label="forecast")
axes.set(xlabel="hour")
axes.legend()
plt.show()"""

DIGITS = """import matplotlib.pyplot as plt

figure, all_axes = plt.subplots(1, 10, figsize=(8, 1.2))
for axes, image, guess in zip(all_axes, new_images, guesses):
    axes.imshow(image[..., 0], cmap="gray_r")
    axes.set_title(guess)
    axes.axis("off")
plt.show()"""

ANSWERS = """import matplotlib.pyplot as plt

figure, all_axes = plt.subplots(1, 3, figsize=(8, 2.4))
for axes, picture, words, guess in zip(all_axes, new_inputs["picture"], new_inputs["question"], guesses):
    axes.imshow(picture.clip(0, 1))
    question = " ".join(WORDS[word - 1] for word in words if word)
    axes.set_title(f"{question}? {ANSWERS[guess]}", fontsize="small")
    axes.axis("off")
plt.show()"""

WEIGHTS = """import matplotlib.pyplot as plt

words = "although the plot was dull , the music was never boring".split()
_, embedding, first, *_ = model.layers
_, weights = first(embedding(token_ids([" ".join(words)])), return_attention_scores=True)
figure, axes = plt.subplots(figsize=(4.5, 4.5))
axes.imshow(keras.ops.convert_to_numpy(weights)[0].mean(axis=0), cmap="Blues")
axes.set_xticks(range(len(words)), words, rotation=90)
axes.set_yticks(range(len(words)), words)
axes.set(xlabel="is read", ylabel="reads", title="First layer, mean of its heads")
plt.show()"""

# In an order in which they can run: whole_path trains the model that others use.
STARTS = {
    "whole_path": Start("demo", after=(CURVES, ATTENTION)),
    "fine_tuning": Start("demo/model demo/swiss"),
    "batch_translation": Start(
        "demo/model texts.jsonl translated.jsonl",
        TEXTS,
        ['print(pathlib.Path("translated.jsonl").read_text())'],
    ),
    "constrained_search": Start("demo/model --surely ihn"),
    "rest_client": Start(before=SERVER, after=["server.terminate()"]),
    **{f"layers/{path.stem}": Start() for path in sorted((EXAMPLES / "layers").glob("*.py"))},
    "layers/long_sequences": Start("--steps 20"),
    "layers/training_loops": Start("--steps 400"),
    "layers/text_classification": Start(after=[WEIGHTS]),
    "layers/time_series": Start(after=[FORECAST]),
    "layers/two_modalities": Start(after=[ANSWERS]),
    "layers/vision_transformer": Start("--epochs 20", after=[DIGITS]),
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
    for cell in [first, start.before, *code, *start.after]:
        if cell:
            cells.append(new.new_code_cell(cell))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new.new_notebook(cells=cells, metadata=METADATA)


def run(notebook: nbformat.NotebookNode, directory: pathlib.Path) -> None:
    """Runs a notebook, and keeps its pictures and its standard output, without logs."""
    NotebookClient(
        notebook, timeout=None, record_timing=False, resources={"metadata": {"path": directory}}
    ).execute()
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
            text = VARIABLE.sub("", text)
            pictures = [
                nbformat.v4.new_output("display_data", {"image/png": output.data["image/png"]})
                for output in cell.outputs
                if "image/png" in output.get("data", {})
            ]
            cell.outputs = pictures
            if text:
                stream = nbformat.v4.new_output("stream", name="stdout", text=text)
                cell.outputs = [stream, *pictures]


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
