"""The layers without TensorFlow: their own tests once more on JAX, where an import of TensorFlow fails."""

import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent
LAYER_TESTS = (
    "test_masks.py",
    "test_multi_head_attention.py",
    "test_positional_embedding.py",
    "test_encoder_decoder_layers.py",
    "test_loss_metrics_schedule.py",
)
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_layers_loss_metrics_and_schedule_pass_their_tests_on_jax_without_tensorflow():
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, "--noconftest", "-p", "no:cacheprovider", "-v"]
    finished = subprocess.run(
        [*command, *LAYER_TESTS],
        cwd=TESTS,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",  # Compiles faster.
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "skipped" not in finished.stdout
