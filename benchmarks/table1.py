"""Table 1 of the paper, measured: how the cost of a layer grows with length and width.

    python -m benchmarks.table1 --json table1.json --picture table1.png

The forward pass of one layer of each kind runs over a sequence of n positions with d features. One
size at a time is varied, the others are held constant, and a power law is fitted to the cost. Its
exponent, the slope of a straight line through the logarithms, is compared with Table 1.

Cost: Table 1 counts operations. This program measures the processor time of a single thread, the
minimum of several runs. Other programs on the machine affect it much less than wall-clock time.

Layers: Table 1 counts what relates positions to each other. It leaves out the projections of
attention, which take n * d * d operations in every kind of attention. To make them negligible,
attention has queries, keys and values of width d in a single head, but inputs and outputs of 16
features. The recurrent layer is an LSTM; it and the convolution have d features at both ends.

Sizes: A power law is visible only where its term dominates. The recurrent layer is therefore so
wide that the fixed cost of a step is negligible, and neighborhoods are so large that the cost of
copying blocks is.

The other columns of Table 1 are not times. A layer takes n sequential operations if its graph has a
loop, otherwise one. The maximum path length, the number of layers or steps between the two ends of
a sequence, follows from the definition of the layer: 1 for self-attention, n steps for recurrence,
log n to base k for convolutions with dilations 1, k, k * k, ..., and n / (r / 2) for neighborhoods,
which reach r / 2 positions to each side.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.machine import machine
from benchmarks.processes import versions
from keras_transformer import MultiHeadAttention
from keras_transformer.model_dir.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION_INPUT_WIDTH = 16


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of layer, a row of Table 1."""

    # Makes a Keras layer of the sizes `d` and, where the kind has it, `k` or `r`.
    layer: Callable[..., keras.layers.Layer]
    # Returns the number of layers or steps between the two ends of a sequence, given `n` and sizes.
    path_length: Callable[..., int]
    # The exponent of each size in Table 1.
    exponents: Mapping[str, int]


KINDS = {
    "self-attention": Kind(
        lambda d: MultiHeadAttention(num_heads=1, key_dim=d, use_bias=False),
        lambda n, d: 1,
        {"n": 2, "d": 1},
    ),
    "recurrent": Kind(
        lambda d: keras.layers.LSTM(d, return_sequences=True),
        lambda n, d: n,
        {"n": 1, "d": 2},
    ),
    "convolutional": Kind(
        lambda d, k: keras.layers.Conv1D(d, k, padding="same"),
        lambda n, d, k: math.ceil(round(math.log(n, k), 9)),
        {"n": 1, "d": 2, "k": 1},
    ),
    "restricted self-attention": Kind(
        lambda d, r: MultiHeadAttention(
            num_heads=1, key_dim=d, use_bias=False, sliding_window=(r + 1) // 2
        ),
        lambda n, d, r: math.ceil((n - 1) / (r // 2)),
        {"n": 1, "d": 1, "r": 1},
    ),
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A kind of layer of which one size varies, "n", "d", "k" or "r", and the others do not."""

    kind: str
    over: str
    values: Sequence[int]
    held: Mapping[str, int]

    def sizes(self) -> list[dict[str, int]]:
        """Returns all sizes for each value."""
        return [{**self.held, self.over: value} for value in self.values]

    def quick(self) -> "Sweep":
        """Returns the same with small sizes."""
        small: dict[str, Callable[[int], int]] = {
            "n": lambda n: n // 16,
            "d": lambda d: d // 16,
            "k": lambda k: k,
            "r": lambda r: r // 16 | 1,
        }
        return Sweep(
            self.kind,
            self.over,
            [small[self.over](value) for value in self.values],
            {name: small[name](value) for name, value in self.held.items()},
        )


LENGTHS = (1024, 2048, 4096, 8192)
WIDTHS = (256, 512, 1024, 2048)
SWEEPS = (
    Sweep("self-attention", "n", LENGTHS, {"d": 512}),
    Sweep("recurrent", "n", LENGTHS, {"d": 512}),
    Sweep("convolutional", "n", LENGTHS, {"d": 512, "k": 3}),
    Sweep("restricted self-attention", "n", LENGTHS, {"d": 512, "r": 129}),
    Sweep("self-attention", "d", WIDTHS, {"n": 2048}),
    Sweep("recurrent", "d", (512, 1024, 1536, 2048), {"n": 32}),
    Sweep("convolutional", "d", WIDTHS, {"n": 1024, "k": 3}),
    Sweep("restricted self-attention", "d", WIDTHS, {"n": 2048, "r": 129}),
    Sweep("convolutional", "k", (3, 7, 15, 31), {"n": 2048, "d": 512}),
    Sweep("restricted self-attention", "r", (257, 513, 1025, 2049), {"n": 8192, "d": 64}),
)


def forward(kind: str, n: int, **sizes: int) -> Any:
    """Returns the forward pass of a layer on `n` random positions as a `tf.function`."""
    layer = KINDS[kind].layer(**sizes)
    if isinstance(layer, MultiHeadAttention):
        inputs = tf.random.normal((1, n, ATTENTION_INPUT_WIDTH))
        return tf.function(lambda: layer(inputs, inputs), autograph=False)
    inputs = tf.random.normal((1, n, sizes["d"]))
    return tf.function(lambda: layer(inputs), autograph=False)


def has_loop(function: Any) -> bool:
    """Returns whether the graph of a `tf.function` has a loop."""
    definition = function.get_concrete_function().graph.as_graph_def()
    nodes = list(definition.node)
    for part in definition.library.function:
        nodes += part.node_def
    return any(node.op in ("While", "StatelessWhile") for node in nodes)


def min_seconds(functions: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Measures the processor time of functions, the minimum of several runs.

    The functions take turns, so that a busy minute of the machine does not affect all runs of one
    of them. A first run of each is not measured.
    """
    for function in functions:
        function()
    seconds = [math.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            begin = time.process_time()
            function()
            seconds[i] = min(seconds[i], time.process_time() - begin)
    return seconds


def fit_power_law(
    sizes: Sequence[int] | np.ndarray, costs: Sequence[float] | np.ndarray
) -> tuple[float, float]:
    """Fits `cost = factor * size ** exponent` to logarithms, and returns exponent and factor."""
    exponent, intercept = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(exponent), float(np.exp(intercept))


def measure(sweep: Sweep, repeats: int) -> dict[str, Any]:
    """Measures a sweep, fits a power law to it, and returns its entry in the JSON file."""
    functions = [forward(sweep.kind, **sizes) for sizes in sweep.sizes()]
    seconds = min_seconds(functions, repeats)
    exponent, factor = fit_power_law(sweep.values, seconds)
    longest = sweep.sizes()[-1]
    return {
        "layer": sweep.kind,
        "over": sweep.over,
        "values": list(sweep.values),
        "held": dict(sweep.held),
        "seconds": seconds,
        "exponent": exponent,
        "factor": factor,
        "paper": KINDS[sweep.kind].exponents[sweep.over],
        "sequential_operations": longest["n"] if has_loop(functions[-1]) else 1,
        "maximum_path_length": KINDS[sweep.kind].path_length(**longest),
    }


def held_text(result: Mapping[str, Any]) -> str:
    """Returns the sizes that a sweep holds constant, as text."""
    return ", ".join(f"{name}={size:,}" for name, size in result["held"].items())


def print_table(results: Sequence[Mapping[str, Any]]) -> None:
    """Prints the exponents, the sequential operations and the path lengths of results."""
    packages = versions("keras", "tensorflow")
    print(", ".join(f"{name} {version}" for name, version in packages.items()))
    print("\nprocessor time ~ size ** exponent\n")
    line = "{:26} {:>4}  {:>15}  {:>9} {:>6}  {}"
    print(line.format("layer", "over", "from, to", "exponent", "paper", "held"))
    for result in results:
        layer, over, paper = result["layer"], result["over"], result["paper"]
        values = f"{result['values'][0]:,} to {result['values'][-1]:,}"
        exponent = f"{result['exponent']:.2f}"
        print(line.format(layer, over, values, exponent, paper, held_text(result)))
    print()
    line = "{:26} {:>7,}  {:>21,}  {:>19,}  {}"
    header = line.replace(",", "")
    print(header.format("layer", "n", "sequential operations", "maximum path length", "held"))
    for result in results:
        if result["over"] == "n":
            n = result["values"][-1]
            operations = result["sequential_operations"]
            path_length = result["maximum_path_length"]
            print(line.format(result["layer"], n, operations, path_length, held_text(result)))


def draw(results: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draws times and fitted lines on logarithmic axes, with a panel for each varied size."""
    from matplotlib.figure import Figure

    panels = (("n", "positions n"), ("d", "width d"), ("kr", "kernel k or neighborhood r"))
    colors = dict(zip(KINDS, ("C0", "C3", "C2", "C1"), strict=True))
    markers = dict(zip(KINDS, "osD^", strict=True))
    figure = Figure(figsize=(12.5, 5.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True)
    for axes, (over, label) in zip(all_axes, panels, strict=True):
        ticks: set[int] = set()
        for result in results:
            if result["over"] not in over:
                continue
            ticks.update(result["values"])
            color = colors[result["layer"]]
            marker = markers[result["layer"]]
            sizes = np.array(result["values"])
            axes.plot(sizes, result["factor"] * sizes ** result["exponent"], color=color)
            name = f"{result['layer']} ({held_text(result)})"
            measured = f"${result['over']}^{{{result['exponent']:.2f}}}$"
            law = f"{measured}; Table 1: ${result['over']}^{result['paper']}$"
            axes.plot(sizes, result["seconds"], marker, color=color, label=f"{name}\n{law}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)], fontsize=8)
        axes.set_xlabel(label)
        axes.tick_params(axis="x", which="minor", bottom=False)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=9, frameon=False)
    figure.axes[0].set_ylabel("processor time, seconds")
    return figure


def main() -> None:
    """Runs the benchmark from the command line."""
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.table1", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--json", metavar="FILE", required=True, help="file to write the measurements to"
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="a .png, .svg or .pdf file to draw them in"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        metavar="N",
        help="number of runs, of which the minimum counts (%(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="use small sizes; the exponents then mean nothing"
    )
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sweeps = [sweep.quick() for sweep in SWEEPS] if options.quick else SWEEPS
    results = [measure(sweep, options.repeats) for sweep in sweeps]
    print_table(results)
    content = {
        "versions": versions("keras", "tensorflow"),
        "machine": machine(),
        "sweeps": results,
    }
    with replacing(options.json) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")
    if options.picture:
        with replacing(options.picture) as path:
            draw(results).savefig(path, dpi=130)


if __name__ == "__main__":
    main()
