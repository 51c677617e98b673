"""Matrix products of a decoding step by TensorFlow's own kernels: float32, bfloat16 and int8.

    python -m benchmarks.int8_products
    ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.int8_products    # as without VNNI

Weights are constants of the graph, as in a SavedModel. The int8 products include what a step needs around them: the
largest absolute value of the inputs, their quantization, and float32 results. One thread; products take turns, and the
medians count. The error is the largest one, divided by the largest result.

    bfloat16               tf.matmul
    QuantizedMatMul        public; for gemmlowp
    ...Hybrid              UniformQuantizedDotHybrid, public; float32 inputs, a scale for each column of the weights
    _QuantizedMatMul       not public: what TensorFlow's graph optimizer writes for oneDNN; stores packed weights
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

Product = Callable[[tf.Tensor], tf.Tensor]  # float32 (rows, depth) to float32 (rows, width)

ROWS = (4, 64)
# Weights of two models, and the output projections of vocabularies of 8,000 and 65,000 pieces.
WEIGHTS = ((128, 512), (512, 2048), (256, 8000), (512, 65000))
_TURNS, _SECONDS = 15, 0.02
_MAX_INT8 = 127


def products(weights: Annotated[np.ndarray, "float32 (depth, width)"]) -> dict[str, Product]:
    """Returns products with the weights by different kernels."""
    largest = float(np.abs(weights).max())
    exact, rounded = tf.constant(weights), tf.constant(weights, tf.bfloat16)
    whole, signed = (_quantized(weights, largest, kind) for kind in (tf.quint8, tf.qint8))
    scales = np.abs(weights).max(axis=0) / _MAX_INT8
    by_column = _quantized(weights / scales, _MAX_INT8, tf.qint8)
    width = weights.shape[1]

    def public(inputs: tf.Tensor) -> tf.Tensor:
        limit = tf.reduce_max(tf.abs(inputs))
        sums = tf.raw_ops.QuantizedMatMul(
            a=_quantized(inputs, limit, tf.quint8),
            b=whole,
            min_a=-limit,
            max_a=limit,
            min_b=-largest,
            max_b=largest,
            Toutput=tf.qint32,
        )
        return tf.raw_ops.Dequantize(input=sums.out, min_range=sums.min_out, max_range=sums.max_out)

    def hybrid(inputs: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.UniformQuantizedDotHybrid(
            lhs=inputs,
            rhs=by_column,
            rhs_scales=scales,
            rhs_zero_points=np.zeros(width, "int32"),
            Tout=tf.float32,
            rhs_quantization_min_val=-_MAX_INT8,
            rhs_quantization_max_val=_MAX_INT8,
            rhs_quantization_axis=1,
        )

    def internal(inputs: tf.Tensor) -> tf.Tensor:
        limit = tf.reduce_max(tf.abs(inputs))
        ranges = [-limit, limit, tf.constant(-largest), tf.constant(largest)]
        return _internal(_quantized(inputs, limit, tf.qint8), signed, tf.zeros([width]), ranges)

    found = {
        "float32": lambda inputs: tf.matmul(inputs, exact),
        "bfloat16": lambda inputs: tf.cast(tf.matmul(tf.cast(inputs, tf.bfloat16), rounded), tf.float32),
        "QuantizedMatMul": public,
        "UniformQuantizedDotHybrid": hybrid,
        "_QuantizedMatMul": internal,
    }
    if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
        del found["bfloat16"]  # It would end the process.
    return found


def _quantized(values: object, limit: object, kind: tf.DType) -> tf.Tensor:
    mode = "SCALED" if kind == tf.qint8 else "MIN_COMBINED"
    quantize = tf.raw_ops.QuantizeV2
    return quantize(
        input=tf.cast(values, tf.float32),
        min_range=-tf.cast(limit, tf.float32),
        max_range=tf.cast(limit, tf.float32),
        T=kind,
        mode=mode,
        round_mode="HALF_TO_EVEN" if kind == tf.qint8 else "HALF_AWAY_FROM_ZERO",
    ).output


def _internal(inputs: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor, ranges: Sequence[tf.Tensor]) -> tf.Tensor:
    """An operation that has no public function."""

    def types(*values: tf.DType) -> AttrValue:
        return AttrValue(list=AttrValue.ListValue(type=[value.as_datatype_enum for value in values]))

    int8, float32 = (AttrValue(type=kind.as_datatype_enum) for kind in (tf.qint8, tf.float32))
    no, yes, scaled = AttrValue(b=False), AttrValue(b=True), AttrValue(s=b"SCALED")
    attributes = {
        **dict(Tdevice_inputs=types(tf.qint8, tf.qint8, tf.float32), Thost_inputs=types(*[tf.float32] * 4)),
        **dict(Tdevice_outputs=types(tf.float32), Thost_outputs=types(), T1=int8, T2=int8),
        **dict(Tbias=float32, U=float32, Tout=float32, transpose_a=no, transpose_b=no, is_weight_const=yes),
        **dict(is_bias_const=yes, input_quant_mode=scaled, output_quant_mode=scaled),
        "fused_ops": AttrValue(list=AttrValue.ListValue(s=[b"BiasAdd", b"Dequantize"])),
    }
    graph = tf.compat.v1.get_default_graph()
    made = graph.create_op(
        "_QuantizedMatMul", [inputs, weights, bias, *ranges], [tf.float32], attrs=attributes, name="product"
    )
    return made.outputs[0]


def measure(rows: int, depth: int, width: int) -> dict[str, tuple[float, float]]:
    """Returns for each product the median of its seconds, and its error."""
    random = np.random.default_rng(1)
    weights = random.normal(size=(depth, width)).astype("float32")
    inputs = tf.constant(random.normal(size=(rows, depth)).astype("float32"))
    expected = inputs.numpy() @ weights
    graphs = {name: tf.function(product, autograph=False) for name, product in products(weights).items()}
    errors, numbers = {}, {}
    for name, graph in graphs.items():
        found = graph(inputs).numpy()
        errors[name] = float(np.abs(found - expected).max() / np.abs(expected).max())
        numbers[name] = 1 + int(_SECONDS / _seconds(graph, inputs, 2))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _, name in itertools.product(range(_TURNS), graphs):
        times[name].append(_seconds(graphs[name], inputs, numbers[name]))
    return {name: (statistics.median(times[name]), errors[name]) for name in graphs}


def _seconds(graph: Product, inputs: tf.Tensor, number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        graph(inputs)
    return (time.perf_counter() - begin) / number


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.int8_products",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for place, ((depth, width), rows) in enumerate(itertools.product(WEIGHTS, ROWS)):
        found = measure(rows, depth, width)
        if place == 0:
            print("| rows, weights | float32, µs |", *(f"{name} |" for name in [*found][1:]))
            print("| --- | --- |", *("--- |" for _ in [*found][1:]))
        exact, *others = (seconds for seconds, _ in found.values())
        ratios = (f"{exact / seconds:.2f}" for seconds in others)
        print(f"| {rows}, {depth} x {width:,} | {1e6 * exact:,.0f} |", *(f"{ratio} |" for ratio in ratios), flush=True)
    print("\nratio: float32's median divided by that of each. Largest errors:")
    print(*(f"{name}: {error:.2%}" for name, (_, error) in found.items()), sep="\n")


if __name__ == "__main__":
    main()
