"""Tests of the Table 1 benchmark: its arithmetic, and the command."""

import json
import pathlib

import keras
import numpy as np
import pytest
from fresh_process import run_python

from benchmarks.table1 import KINDS, SWEEPS, fit_power_law, forward, has_loop
from keras_transformer import MultiHeadAttention

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("exponent", [1, 1.5, 2])
def test_fit_recovers_a_power_law(exponent):
    sizes = np.array([100, 200, 400, 800])
    fitted, factor = fit_power_law(sizes, 3e-9 * sizes**exponent)
    assert fitted == pytest.approx(exponent) and factor == pytest.approx(3e-9)
    # Errors with the logarithms e, -e, -e, e change neither the slope nor the intercept.
    noisy = 3e-9 * sizes**exponent * np.array([1.25, 0.8, 0.8, 1.25])
    assert fit_power_law(sizes, noisy) == pytest.approx((exponent, 3e-9))


@pytest.mark.slow
def test_only_the_recurrent_layer_has_a_loop():
    held = {
        "self-attention": {},
        "recurrent": {},
        "convolutional": {"k": 3},
        "restricted self-attention": {"r": 5},
    }
    loops = [kind for kind in KINDS if has_loop(forward(kind, n=16, d=4, **held[kind]))]
    assert loops == ["recurrent"]


def connects_ends(layers, length):
    """Returns whether the output of a stack of layers at the last position depends on the input at
    the first."""

    def last_output(first):
        hidden = np.full((1, length, 4), 0.5, "float32")
        hidden[0, 0, :] = first
        for layer in layers:
            hidden = (
                layer(hidden, hidden) if isinstance(layer, MultiHeadAttention) else layer(hidden)
            )
        return keras.ops.convert_to_numpy(hidden)[0, -1]

    return not np.array_equal(
        last_output(np.zeros(4)), last_output(np.array([1e3, -1e3, 2e3, 5e2]))
    )


@pytest.mark.slow
def test_path_length_is_the_number_of_layers_that_connect_the_ends():
    stacks = {
        "convolutional": (
            dict(n=27, d=4, k=3),
            [keras.layers.Conv1D(4, 3, padding="causal", dilation_rate=3**i) for i in range(3)],
        ),
        "restricted self-attention": (
            dict(n=9, d=4, r=5),
            [MultiHeadAttention(num_heads=1, key_dim=4, sliding_window=3) for _ in range(4)],
        ),
        "self-attention": (dict(n=9, d=4), [MultiHeadAttention(num_heads=1, key_dim=4)]),
    }
    for kind, (sizes, layers) in stacks.items():
        assert KINDS[kind].path_length(**sizes) == len(layers)
        assert connects_ends(layers, sizes["n"])
        assert not connects_ends(layers[:-1], sizes["n"])
    # Lengths that are one too long for as many layers.
    assert KINDS["convolutional"].path_length(n=28, d=4, k=3) == 4
    assert KINDS["restricted self-attention"].path_length(n=10, d=4, r=5) == 5


@pytest.mark.long
def test_command_writes_measurements_and_picture(tmp_path):
    files = ("--json", tmp_path / "table1.json", "--picture", tmp_path / "table1.png")
    printed = run_python("-m", "benchmarks.table1", "--quick", "--repeats", "1", *files, cwd=ROOT)
    assert "restricted self-attention" in printed and "tensorflow" in printed
    sweeps = json.loads((tmp_path / "table1.json").read_text())["sweeps"]
    assert [(sweep["layer"], sweep["over"]) for sweep in sweeps] == [
        (sweep.kind, sweep.over) for sweep in SWEEPS
    ]
    for sweep in sweeps:
        assert len(sweep["seconds"]) == len(sweep["values"]) == 4 and min(sweep["seconds"]) > 0
        assert sweep["exponent"] == fit_power_law(sweep["values"], sweep["seconds"])[0]
    assert (tmp_path / "table1.png").read_bytes().startswith(b"\x89PNG")
