"""Models of stock Keras layers and our layers: trained, saved, and loaded without custom
objects."""

import concurrent.futures
import importlib.util
import pathlib

import numpy as np
import pytest
from fresh_process import run_python

BACKENDS = [
    backend for backend in ("tensorflow", "jax", "torch") if importlib.util.find_spec(backend)
]
MODELS = ("tied_language_model", "translator", "subclassed_language_model")
SCRIPT = pathlib.Path(__file__).with_name("other_models.py")


def run_on_backends(arguments_of):
    """All in parallel, each in a fresh process; JAX and PyTorch in one that cannot import
    TensorFlow."""

    def run(backend):
        run_python(SCRIPT, *arguments_of(backend), env={"KERAS_BACKEND": backend})

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(run, BACKENDS))


# `make test-jax` and `make test-torch` train on these backends too.
@pytest.mark.slow
def test_each_backend_learns_and_a_fresh_process_of_any_loads_the_same_model(tmp_path_factory):
    trained = {backend: tmp_path_factory.mktemp(backend) for backend in BACKENDS}
    run_on_backends(lambda backend: ["train", trained[backend]])
    outputs = {backend: directory / "loaded.npz" for backend, directory in trained.items()}
    run_on_backends(lambda backend: ["load", outputs[backend], *trained.values()])
    loaded = {backend: np.load(path) for backend, path in outputs.items()}
    for backend, directory in trained.items():
        expected = np.load(directory / "predictions.npz")
        for model in MODELS:
            predictions = {other: loaded[other][f"{directory}/{model}"] for other in BACKENDS}
            np.testing.assert_array_equal(predictions[backend], expected[model], err_msg=model)
            for other in BACKENDS:
                np.testing.assert_allclose(
                    predictions[other], expected[model], atol=1e-5, err_msg=f"{model} {other}"
                )
