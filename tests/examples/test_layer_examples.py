"""Every script of examples/layers in a fresh process, on every backend that is installed here and
that it runs on.

`make test-jax` and `make test-torch` run this file where nothing else is installed.
"""

import importlib.util
import pathlib
import re
from typing import NamedTuple

import pytest
from fresh_process import run_python

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "layers"
ALL_BACKENDS = ("tensorflow", "jax", "torch")
INSTALLED = [name for name in ALL_BACKENDS if importlib.util.find_spec(name)]


class Example(NamedTuple):
    """What the last number that a script prints must reach after a short run, and after a whole
    one."""

    short: str  # arguments
    short_range: tuple[float, float]
    range: tuple[float, float]
    backends: tuple[str, ...] = ALL_BACKENDS

    @property
    def backends_here(self):
        return [backend for backend in self.backends if backend in INSTALLED]


EXAMPLES = {
    "language_model": Example("--steps 30", (2, 40), (2, 5)),
    "long_sequences": Example("--steps 10", (0.2, 1), (0.9, 1)),
    "replace_attention": Example("--epochs 1", (0.6, 1), (0.95, 1)),
    "text_classification": Example("--epochs 1", (0.6, 1), (0.98, 1)),
    "time_series": Example("--epochs 1", (0, 0.6), (0, 0.1)),
    "training_loops": Example("--steps 200", (0.6, 1), (0.98, 1)),
    # Without training, which takes a minute: it is translated and exported. A slow test trains it.
    "translation": Example("--epochs 0", (0, 1), (0.8, 1), ("tensorflow",)),
    "two_modalities": Example("--epochs 1", (0.2, 1), (0.9, 1)),
    "vision_transformer": Example("--epochs 1", (0.15, 1), (0.9, 1)),
}
EXAMPLES_HERE = [name for name, example in EXAMPLES.items() if example.backends_here]


def result(name, arguments, directory, backend):
    """The last number that the script prints."""
    # Threads of PyTorch wait for each other in loops: beside other processes, two are slower than
    # one. `make test-jax` has no time for XLA's optimizations, but here they pay.
    environment = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "XLA_FLAGS": ""}
    printed = run_python(FOLDER / f"{name}.py", *arguments.split(), cwd=directory, env=environment)
    return float(re.search(r": ([\d.]+)\n$", printed)[1])


def test_every_script_is_listed():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize(
    "name",
    [
        # `make test-jax` and `make test-torch` run them, where TensorFlow is not installed.
        pytest.param(name, marks=[pytest.mark.slow] if "tensorflow" in INSTALLED else [])
        for name in EXAMPLES_HERE
    ],
)
def test_a_short_run_learns_something(name, tmp_path):
    example = EXAMPLES[name]
    lowest, highest = example.short_range
    assert lowest <= result(name, example.short, tmp_path, example.backends_here[0]) <= highest


AS_IN_TENSORFLOW_SERVING = """
import sys
sys.modules["keras_transformer"] = None
import tensorflow_text
from session_mode import run_session
((texts, scores),) = run_session("servable/numbers", [["forty-two", "nine hundred"]])
assert len(texts) == 2 and all(isinstance(text, bytes) for text in texts) and (scores[0] < 0 and scores[1] < 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXAMPLES_HERE if name == "translation"])
def test_what_the_translation_exports_runs_as_in_tensorflow_serving(name, tmp_path):
    result(name, "--epochs 1", tmp_path, "tensorflow")
    environment = {"PYTHONPATH": str(FOLDER.parents[1] / "tests")}
    run_python("-c", AS_IN_TENSORFLOW_SERVING, cwd=tmp_path, env=environment)


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES_HERE)
def test_a_whole_run_reaches_its_figure(name, tmp_path):
    example = EXAMPLES[name]
    lowest, highest = example.range
    # JAX is the fastest on a CPU.
    backend = "jax" if "jax" in example.backends_here else example.backends_here[0]
    assert lowest <= result(name, "", tmp_path, backend) <= highest
