"""The tests of layers, model and search on JAX, in a process that cannot import TensorFlow."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
# One process for each part, at once. `make test-jax` runs others.
FEW_TESTS = (
    (
        "layers/test_multi_head_attention.py::test_an_attention_mask_may_differ_between_heads",
        "decoding/test_protocol.py::test_greedy_search_needs_nothing_of_a_model_but_the_protocol",
    ),
)
# JAX compiles every operation anew for every shape, of which these have many.
TESTS_OF_MANY_SHAPES = (
    ("layers/test_restricted_attention.py",),
    (
        "layers/test_multi_head_attention.py",
        "layers/test_tied_projection.py",
        "models/test_transformer_model.py::test_a_state_may_grow_with_each_step",
        "decoding/test_continuations.py::test_top_k_is_that_of_a_stable_sort",
    ),
)
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "parts",
    [FEW_TESTS, pytest.param(TESTS_OF_MANY_SHAPES, marks=pytest.mark.slow)],
    ids=["few", "many shapes"],
)
def test_they_pass_on_jax_without_tensorflow(parts):
    options = ["--noconftest", "-p", "no:cacheprovider", "-v"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_TENSORFLOW, *options, *files],
            cwd=TESTS,
            env={
                **os.environ,
                "KERAS_BACKEND": "jax",
                "PYTHONPATH": str(TESTS),
                "XLA_FLAGS": "--xla_backend_optimization_level=0",  # Compiles faster.
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for files in parts
    ]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert " passed" in output and " skipped" not in output
