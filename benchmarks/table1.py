"""The paper's Table 1, measured: how the cost of a layer grows with the sequence and its width.

    python -m benchmarks.table1 --json table1.json --picture docs/table1.png

One layer of each kind runs forward over one sequence of n positions and d features. One size is varied, the others are
held, and a power law is fitted to the cost: a straight line through the logarithms, whose slope is the exponent that
Table 1 gives.

What counts as cost: Table 1 counts operations, so what is measured is the processor time of a single thread, the least
of several runs. Other programs on the machine lengthen it much less than they lengthen the time on the clock.

What counts as the layer: Table 1 counts what goes on between positions. The projections of an attention, n * d * d in
every kind of it, are not in the table. Here they are made negligible: the attention's queries, keys and values have
width d, in one head, but its inputs and outputs have 16 features. The recurrent layer is an LSTM and the convolution
keeps the width; both have d features on either side.

A power law shows where its term outweighs the rest. So the weights of the recurrent layer are large, that the start of
each step does not count, and the neighborhoods are long, that copying the blocks does not count.

The table's other columns are not times. A layer takes n operations in sequence if its graph has a loop, and one
otherwise. The maximum path length, the layers or steps between the two ends of a sequence, follows from the layer: 1 for
self-attention, n steps for recurrence, log n to base k for convolutions dilated 1, k, k * k …, and n / (r / 2) for
neighborhoods, which reach r / 2 to either side.
"""

import argparse
import dataclasses
import json
import math
import platform
import time
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

import keras_transformer
from keras_transformer import MultiHeadAttention
from keras_transformer.files import replacing

ATTENTION_INPUT_WIDTH = 16


@dataclasses.dataclass(frozen=True)
class Kind:
    """A row of Table 1.

    Args:
        layer: from the sizes `d` and, where the kind has one, `k` or `r` to a Keras layer.
        path_length: from `n` and the sizes to the layers or steps between the ends of a sequence.
        exponents: what Table 1 says of each size.
    """

    layer: callable
    path_length: callable
    exponents: Mapping[str, int]


KINDS = {
    "self-attention": Kind(
        lambda d: MultiHeadAttention(num_heads=1, key_dim=d), lambda n, d: 1, {"n": 2, "d": 1}
    ),
    "recurrent": Kind(
        lambda d: keras.layers.LSTM(d, return_sequences=True), lambda n, d: n, {"n": 1, "d": 2}
    ),
    "convolutional": Kind(
        lambda d, k: keras.layers.Conv1D(d, k, padding="same"),
        lambda n, d, k: math.ceil(round(math.log(n, k), 9)),
        {"n": 1, "d": 2, "k": 1},
    ),
    "restricted self-attention": Kind(
        lambda d, r: MultiHeadAttention(num_heads=1, key_dim=d, neighborhood=r),
        lambda n, d, r: math.ceil((n - 1) / (r // 2)),
        {"n": 1, "d": 1, "r": 1},
    ),
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """One size of one kind of layer, varied.

    Args:
        kind: a key of `KINDS`.
        over: the size that is varied: n, d, k or r.
        values: its values.
        held: the other sizes.
    """

    kind: str
    over: str
    values: Sequence[int]
    held: Mapping[str, int]

    def sizes(self):
        return [{**self.held, self.over: value} for value in self.values]

    def quick(self):
        """The same with small sizes."""
        small = {"n": lambda n: n // 16, "d": lambda d: d // 16, "k": lambda k: k, "r": lambda r: r // 16 | 1}
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


def forward(kind, n, **sizes):
    """One layer's forward pass over random numbers: a `tf.function` without arguments."""
    layer = KINDS[kind].layer(**sizes)
    if isinstance(layer, MultiHeadAttention):
        inputs = tf.random.normal((1, n, ATTENTION_INPUT_WIDTH))
        return tf.function(lambda: layer(inputs, inputs), autograph=False)
    inputs = tf.random.normal((1, n, sizes["d"]))
    return tf.function(lambda: layer(inputs), autograph=False)


def has_loop(call):
    """Whether the graph of a `tf.function` repeats operations in sequence."""
    definition = call.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    return any(node.op in ("While", "StatelessWhile") for node in nodes)


def least_seconds(calls, repeats):
    """The least processor time of each call. They take turns, so that a busy minute is not one call's alone."""
    for call in calls:
        call()
    least = [math.inf] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            begin = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - begin)
    return least


def fit_power_law(sizes, costs):
    """The least-squares fit of `cost = factor * size ** exponent` in logarithms.

    Returns:
        exponent, factor.
    """
    exponent, intercept = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(exponent), float(np.exp(intercept))


def measure(sweep, repeats):
    """A sweep's costs and their power law, as one entry of the JSON file."""
    calls = [forward(sweep.kind, **sizes) for sizes in sweep.sizes()]
    seconds = least_seconds(calls, repeats)
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
        "sequential_operations": longest["n"] if has_loop(calls[-1]) else 1,
        "maximum_path_length": KINDS[sweep.kind].path_length(**longest),
    }


def versions():
    return {
        "keras_transformer": keras_transformer.__version__,
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "python": platform.python_version(),
    }


def held_text(result):
    return ", ".join(f"{name}={size:,}" for name, size in result["held"].items())


def print_table(results):
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print("\nprocessor time ~ size ** exponent\n")
    line = "{:26} {:>4}  {:>15}  {:>9} {:>6}  {}"
    print(line.format("layer", "over", "from, to", "exponent", "paper", "held"))
    for result in results:
        values = f"{result['values'][0]:,} to {result['values'][-1]:,}"
        exponent = f"{result['exponent']:.2f}"
        print(line.format(result["layer"], result["over"], values, exponent, result["paper"], held_text(result)))
    print()
    line = "{:26} {:>7}  {:>21}  {:>19}  {}"
    print(line.format("layer", "n", "sequential operations", "maximum path length", "held"))
    for result in results:
        if result["over"] == "n":
            counts = (result["values"][-1], result["sequential_operations"], result["maximum_path_length"])
            print(line.format(result["layer"], *(f"{count:,}" for count in counts), held_text(result)))


def draw(results, path):
    """The measured times and the fitted lines on logarithmic axes, a panel for each size that is varied."""
    from matplotlib.figure import Figure

    panels = (("n", "positions n"), ("d", "width d"), ("kr", "kernel k or neighborhood r"))
    styles = dict(zip(KINDS, zip(("C0", "C3", "C2", "C1"), "osD^")))
    figure = Figure(figsize=(12.5, 5.8), layout="constrained")
    for axes, (over, label) in zip(figure.subplots(1, len(panels), sharey=True), panels):
        for result in results:
            if result["over"] not in over:
                continue
            color, marker = styles[result["layer"]]
            sizes = np.array(result["values"])
            axes.plot(sizes, result["factor"] * sizes ** result["exponent"], color=color)
            name = f"{result['layer']} ({held_text(result)})"
            law = f"${result['over']}^{{{result['exponent']:.2f}}}$; Table 1: ${result['over']}^{result['paper']}$"
            axes.plot(sizes, result["seconds"], marker, color=color, label=f"{name}\n{law}")
        ticks = sorted({size for result in results if result["over"] in over for size in result["values"]})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
        axes.set_xlabel(label)
        axes.tick_params(axis="x", which="minor", bottom=False)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=9, frameon=False)
    figure.axes[0].set_ylabel("processor time, seconds")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table1", description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", required=True, help="where the measurements are written")
    parser.add_argument("--picture", metavar="FILE", help="where they are drawn: a .png, .svg or .pdf file")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs, of which the least counts (5)")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see it run, not for the exponents")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    results = [measure(sweep.quick() if options.quick else sweep, options.repeats) for sweep in SWEEPS]
    print_table(results)
    with replacing(options.json) as path:
        path.write_text(json.dumps({"versions": versions(), "sweeps": results}, indent=1) + "\n")
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
