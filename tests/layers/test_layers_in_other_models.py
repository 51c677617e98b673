"""Models of stock Keras layers and our layers: trained, saved, and loaded without custom objects."""

import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

BACKENDS = [backend for backend in ("tensorflow", "jax", "torch") if importlib.util.find_spec(backend)]
MODELS = ("tied_language_model", "translator", "subclassed_language_model")
SCRIPT = pathlib.Path(__file__).with_name("other_models.py")


def run_on_every_backend(arguments_of):
    """All backends in parallel, each in a fresh process; JAX and PyTorch in one that cannot import TensorFlow."""
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


@pytest.fixture(scope="module", params=["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)])
def policy(request):
    return request.param


@pytest.fixture(scope="module")
def trained(policy, tmp_path_factory):
    """For each backend the directory of its models, their losses and predictions."""
    directories = {backend: tmp_path_factory.mktemp(backend) for backend in BACKENDS}
    run_on_every_backend(lambda backend: ["train", directories[backend], policy])
    return directories


@pytest.fixture(scope="module")
def loaded(trained):
    """The predictions of each backend with the files of all, in a process that has not trained."""
    run_on_every_backend(lambda backend: ["load", trained[backend] / "loaded.npz", *trained.values()])
    return {backend: np.load(trained[backend] / "loaded.npz") for backend in BACKENDS}


every_backend = pytest.mark.parametrize("backend", BACKENDS)


@every_backend
def test_fit_learns(backend, trained):
    losses = json.loads((trained[backend] / "losses.json").read_text())
    assert set(losses) == set(MODELS)
    for model, of_epochs in losses.items():
        assert of_epochs[-1] < 0.8 * of_epochs[0], model


@every_backend
def test_a_fresh_process_loads_the_same_model(backend, trained, loaded):
    expected = np.load(trained[backend] / "predictions.npz")
    for model in MODELS:
        np.testing.assert_array_equal(loaded[backend][f"{trained[backend]}/{model}"], expected[model], err_msg=model)


@pytest.mark.parametrize("policy", ["float32"], indirect=True)
@pytest.mark.parametrize(("backend", "other"), list(itertools.permutations(BACKENDS, 2)))
def test_a_file_of_one_backend_loads_on_another(backend, other, trained, loaded):
    expected = np.load(trained[backend] / "predictions.npz")
    for model in MODELS:
        predictions = loaded[other][f"{trained[backend]}/{model}"]
        np.testing.assert_allclose(predictions, expected[model], atol=1e-5, err_msg=model)
