"""Models of stock Keras layers and ours: trained, saved, and loaded without custom objects."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

BACKENDS = ("tensorflow", "jax")
POLICIES = ("float32", "mixed_bfloat16")
MODELS = ("classifier", "language_model", "tied_language_model", "translator", "subclassed_language_model")
SCRIPT = pathlib.Path(__file__).with_name("other_models.py")


def run_on_every_backend(arguments_of):
    """Both at once, each in a fresh process; JAX in one that cannot import TensorFlow."""
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, *arguments_of(backend)],
            env={
                **os.environ,
                "KERAS_BACKEND": backend,
                "XLA_FLAGS": "--xla_backend_optimization_level=0",  # Compiles faster.
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for backend in BACKENDS
    ]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """For each backend the directory of its models, their losses and predictions."""
    directories = {backend: tmp_path_factory.mktemp(backend) for backend in BACKENDS}
    run_on_every_backend(lambda backend: ["train", directories[backend]])
    return directories


@pytest.fixture(scope="module")
def loaded(trained):
    """What each backend predicts with the files of both, in a process that trained nothing."""

    def arguments_of(backend):
        (other,) = set(BACKENDS) - {backend}
        folders = [trained[backend] / policy for policy in POLICIES] + [trained[other] / "float32"]
        return ["load", trained[backend] / "loaded.npz", *folders]

    run_on_every_backend(arguments_of)
    return {backend: np.load(trained[backend] / "loaded.npz") for backend in BACKENDS}


every_model = pytest.mark.parametrize("model", MODELS)
every_policy = pytest.mark.parametrize("policy", POLICIES)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


@every_model
@every_policy
@every_backend
def test_fit_learns(model, policy, backend, trained):
    losses = json.loads((trained[backend] / "losses.json").read_text())[f"{policy}/{model}"]
    assert losses[-1] < 0.8 * losses[0]


@every_model
@every_policy
@every_backend
def test_a_fresh_process_loads_the_same_model(model, policy, backend, trained, loaded):
    expected = np.load(trained[backend] / "predictions.npz")[f"{policy}/{model}"]
    predictions = loaded[backend][f"{trained[backend] / policy}/{model}"]
    np.testing.assert_array_equal(predictions, expected)


@every_model
@every_backend
def test_a_file_of_one_backend_loads_on_the_other(model, backend, trained, loaded):
    (other,) = set(BACKENDS) - {backend}
    expected = np.load(trained[backend] / "predictions.npz")[f"float32/{model}"]
    predictions = loaded[other][f"{trained[backend] / 'float32'}/{model}"]
    np.testing.assert_allclose(predictions, expected, atol=1e-5)
