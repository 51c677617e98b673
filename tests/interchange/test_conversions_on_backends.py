"""The tests of conversions on JAX and on PyTorch, each in a fresh process."""

import importlib.util
import pathlib

import pytest
from fresh_process import run_python

FOLDER = pathlib.Path(__file__).parent
BACKENDS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
PACKAGES = {"keras_attention": "keras", "keras_hub": "keras_hub", "pytorch": "torch"}
SOURCES = [source for source, package in PACKAGES.items() if importlib.util.find_spec(package)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("source", SOURCES)
def test_all_pass_on_other_backends(backend, source):
    arguments = ("-m", "pytest", "--noconftest", "-p", "no:cacheprovider", f"test_{source}.py")
    printed = run_python(*arguments, env={"KERAS_BACKEND": backend}, cwd=FOLDER)
    assert " passed" in printed and " skipped" not in printed
