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


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("source", SOURCES)
def test_all_pass_on_other_backends(backend, source):
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", f"test_{source}.py"],
        cwd=FOLDER,
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout and " skipped" not in finished.stdout
