"""What Keras users do with any layer works with ours, on every backend that is installed.

`make test` tries what is quick on one backend, `make test-all` on all, `make test-long` the rest; what takes long is
tried with one layer.
"""

import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from idiom_subjects import OURS
from keras_idioms import BACKENDS, IDIOMS

SCRIPT = pathlib.Path(__file__).with_name("keras_idioms.py")
INSTALLED = [backend for backend in BACKENDS if importlib.util.find_spec(backend)]

# Between them they hold most of the others' parts.
FEW = ("DecoderLayer", "TiedProjection")
QUICK = (
    *("config_round_trip", "deepcopy", "pickled", "keras_file", "weights_file", "state_dict"),
    *("sequential", "time_distributed", "keras_tensor_operations", "arguments_by_name", "count_params"),
)
WITH_EVERY_LAYER = ("config_round_trip", "keras_file", "arguments_by_name", "count_params", "policy_float64")
ONE = ("DecoderLayer",)
EXPENSIVE = (
    *("quantize_int8", "quantize_int4", "quantize_float8"),
    *("quantized_file_int8", "quantized_file_int4", "quantized_file_float8"),
    *("compiled_call", "saved_model", "onnx", "litert", "torch_export"),
)
OTHERS = tuple(idiom for idiom in IDIOMS if idiom not in (*QUICK, *EXPENSIVE))
REMAINING_LAYERS = tuple(layer for layer in OURS if layer not in FEW)

WITH_ATTENTION = {layer for layer in OURS if layer.startswith(("MultiHeadAttention", "Encoder", "Decoder"))}
WITH_NORMALIZATION = {layer for layer in OURS if layer.startswith(("Encoder", "Decoder"))}
# What does not work, with which of our layers, and the layer of Keras that it does not work with either.
FAILS = {
    # A `.keras` file holds no policies of the layers inside a layer, so those are not quantized when it is loaded. A
    # quantized Dense layer of Keras reloads, and so does TiedProjection; Keras' MultiHeadAttention does not.
    **{
        (f"quantized_file_{mode}", backend): (WITH_ATTENTION | {"FeedForward"}, "MultiHeadAttention")
        for mode in ("int8", "int4", "float8")
        for backend in BACKENDS
    },
    # PyTorch's fused attention has no forward mode and no second derivatives.
    ("forward_mode", "torch"): (WITH_ATTENTION, "MultiHeadAttention"),
    ("second_derivatives", "torch"): (WITH_ATTENTION, "MultiHeadAttention"),
    # `keras.ops.layer_normalization` gives PyTorch's operation a size that ONNX does not take for a constant.
    ("onnx", "torch"): (WITH_NORMALIZATION, "LayerNormalization"),
    # Keys are the paths of layers, which count instances.
    ("state_dict", "torch"): (set(OURS), "Dense"),
    # Keras describes one input as a list, PyTorch expects a tuple.
    ("saved_model", "torch"): (set(OURS), "Dense"),
}
STOCK_LAYERS = ("MultiHeadAttention", "LayerNormalization", "Dense")


@functools.cache
def results_of(family, idioms, layers, backends):
    """For each idiom and backend each layer's result; the backends run side by side."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", SCRIPT, family, *idioms, "--layers", *layers],
            env={**os.environ, "KERAS_BACKEND": backend},
            stdout=subprocess.PIPE,
            text=True,
        )
        for backend in backends
    ]
    results = {}
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        for line in map(json.loads, output.splitlines()):
            results.setdefault((line["idiom"], line["backend"]), {})[line["layer"]] = line["result"]
    return results


def check(idiom, backend, idioms, layers):
    # Quick tests need no other backend.
    backends = (backend,) if backend == INSTALLED[0] else tuple(INSTALLED[1:])
    results = results_of("ours", idioms, layers, backends)[idiom, backend]
    assert set(results) == set(layers)
    known, _ = FAILS.get((idiom, backend), (set(), None))
    wrong = {layer: result for layer, result in results.items() if result.startswith("yes" if layer in known else "no")}
    assert not wrong


@pytest.mark.parametrize(
    "backend", [INSTALLED[0], *(pytest.param(backend, marks=pytest.mark.slow) for backend in INSTALLED[1:])]
)
@pytest.mark.parametrize("idiom", QUICK)
def test_quick_idioms(idiom, backend):
    check(idiom, backend, QUICK, FEW)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize("idiom", WITH_EVERY_LAYER)
def test_idioms_with_the_remaining_layers(idiom, backend):
    check(idiom, backend, WITH_EVERY_LAYER, REMAINING_LAYERS)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize("idiom", OTHERS)
def test_other_idioms(idiom, backend):
    check(idiom, backend, OTHERS, FEW)


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize("idiom", EXPENSIVE)
def test_expensive_idioms(idiom, backend):
    check(idiom, backend, EXPENSIVE, ONE)


@pytest.mark.long
@pytest.mark.parametrize("idiom, backend", [key for key in FAILS if key[1] in INSTALLED])
def test_what_fails_here_fails_in_keras_layers_too(idiom, backend):
    idioms = tuple(dict.fromkeys(idiom for idiom, _ in FAILS))
    results = results_of("stock", idioms, STOCK_LAYERS, tuple(INSTALLED))[idiom, backend]
    _, layer = FAILS[idiom, backend]
    assert not results[layer].startswith("yes")
    if layer != "Dense":
        assert not results["Dense"].startswith("no")
