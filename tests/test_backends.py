"""The layers' own tests once more: on JAX, in a process that cannot import TensorFlow."""

import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent
# One process each, at once.
LAYER_TESTS = (
    (
        "test_masks.py",
        "test_multi_head_attention.py",
        "test_restricted_attention.py",
        "test_positional_embedding.py",
    ),
    (
        "test_encoder_decoder_layers.py",
        "test_layer_normalization.py",
        "test_loss_metrics_schedule.py",
        "test_transformer_model.py::test_a_state_may_grow_with_each_step",
    ),
)
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_layers_loss_metrics_and_schedule_pass_their_tests_on_jax_without_tensorflow():
    options = ["--noconftest", "-p", "no:cacheprovider", "-v"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_TENSORFLOW, *options, *files],
            cwd=TESTS,
            env={
                **os.environ,
                "KERAS_BACKEND": "jax",
                "XLA_FLAGS": "--xla_backend_optimization_level=0",  # Compiles faster.
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for files in LAYER_TESTS
    ]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert " passed" in output and " skipped" not in output
