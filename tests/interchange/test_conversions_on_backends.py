"""The tests of conversions on JAX and on PyTorch, each in a fresh process."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
BACKENDS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
PACKAGES = {"keras_attention": "keras", "keras_hub": "keras_hub", "pytorch": "torch"}
SOURCES = [source for source, package in PACKAGES.items() if importlib.util.find_spec(package)]
# JAX compiles every operation anew for every shape, of which all the tests have many.
SOME_TESTS = "grouped or post-norm"


def run_tests(backend, source, *options):
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", f"test_{source}.py", *options],
        cwd=FOLDER,
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout and " skipped" not in finished.stdout


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "source", [pytest.param(source, marks=[pytest.mark.slow] if source == "keras_hub" else []) for source in SOURCES]
)
def test_some_pass_on_other_backends(backend, source):
    run_tests(backend, source, "-k", SOME_TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("source", SOURCES)
def test_all_pass_on_other_backends(backend, source):
    run_tests(backend, source)
