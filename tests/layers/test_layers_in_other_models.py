"""Models of stock Keras layers and our layers: trained, saved, and loaded without custom objects."""

import importlib.util
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


def run_on_backends(backends, arguments_of):
    """All in parallel, each in a fresh process; JAX and PyTorch in one that cannot import TensorFlow."""
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
        for backend in backends
    ]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


# `make test-jax` and `make test-torch` train on these backends too.
@pytest.fixture(
    scope="module",
    params=["float32", "mixed_bfloat16"],
)
def trained(request, tmp_path_factory):
    """For each backend that trained the directory of its models, their losses and predictions; and their policy."""
    directories = {backend: tmp_path_factory.mktemp(backend) for backend in BACKENDS}
    run_on_backends(BACKENDS, lambda backend: ["train", directories[backend], request.param])
    return directories, request.param


@pytest.fixture(scope="module")
def loaded(trained, tmp_path_factory):
    """The predictions of each backend with the files of all, in a process that has not trained."""
    directories, _ = trained
    outputs = {
        backend: directories.get(backend, tmp_path_factory.mktemp(backend)) / "loaded.npz" for backend in BACKENDS
    }
    run_on_backends(BACKENDS, lambda backend: ["load", outputs[backend], *directories.values()])
    return {backend: np.load(path) for backend, path in outputs.items()}


@pytest.mark.slow
def test_fit_learns(trained):
    for directory in trained[0].values():
        losses = json.loads((directory / "losses.json").read_text())
        assert set(losses) == set(MODELS)
        for model, of_epochs in losses.items():
            assert of_epochs[-1] < 0.8 * of_epochs[0], model


@pytest.mark.slow
def test_a_fresh_process_of_any_backend_loads_the_same_model(trained, loaded):
    directories, policy = trained
    for backend, directory in directories.items():
        expected = np.load(directory / "predictions.npz")
        for model in MODELS:
            predictions = {other: loaded[other][f"{directory}/{model}"] for other in BACKENDS}
            np.testing.assert_array_equal(predictions[backend], expected[model], err_msg=model)
            for other in BACKENDS if policy == "float32" else []:
                np.testing.assert_allclose(predictions[other], expected[model], atol=1e-5, err_msg=f"{model} {other}")
