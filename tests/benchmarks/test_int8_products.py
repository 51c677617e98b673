"""Tests of the benchmark of int8 products: all kernels compute the same product. No times."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.int8_products import products

ERRORS = {
    "float32": 1e-5,
    "bfloat16": 0.02,
    "QuantizedMatMul": 0.06,
    "UniformQuantizedDotHybrid": 0.03,
    "_QuantizedMatMul": 0.06,
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_kernel_computes_the_product(name, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    random = np.random.default_rng(2)
    weights, inputs = (random.normal(size=shape).astype("float32") for shape in ((48, 32), (5, 48)))
    product = tf.function(products(weights)[name], autograph=False)
    expected = inputs @ weights
    # A second call uses the weights that the kernel has packed.
    for rows in (inputs, inputs[:3]):
        found = product(tf.constant(rows)).numpy()
        assert np.abs(found - expected[: len(rows)]).max() < ERRORS[name] * np.abs(expected).max()
