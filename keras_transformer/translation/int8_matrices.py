"""Weights in 8 bits: matrices of integers, with a scale for each output channel.

Only storage is in 8 bits. A request begins with making the matrices float32 again, in which everything is computed.
"""

from collections.abc import Iterable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..tensors import Tensor

_LARGEST = 127


class Int8Matrix(NamedTuple):
    """A matrix of a model in 8 bits.

    Attributes:
        variable: whose values they are.
        integers: int8, of the variable's shape, from -127 to 127.
        scales: float32, what the integers are multiplied with: one for each column of a kernel, or for each row of a
            table of embeddings, which are the columns of the logits' kernel if it is tied.
    """

    variable: keras.Variable
    integers: tf.Variable
    scales: tf.Variable

    def to_float(self) -> Tensor:
        return tf.cast(self.integers, tf.float32) * self.scales


def int8_matrices(variables: Iterable[keras.Variable]) -> list[Int8Matrix]:
    """Rounds the matrices among a model's variables to 8 bits; vectors are left out."""
    matrices = [variable for variable in variables if len(variable.shape) == 2]
    return [Int8Matrix(variable, *_rounded(variable)) for variable in matrices]


def _rounded(variable: keras.Variable) -> tuple[tf.Variable, tf.Variable]:
    values = keras.ops.convert_to_numpy(variable).astype("float32")
    largest = np.abs(values).max(axis=0 if variable.name == "kernel" else 1, keepdims=True)
    # A channel of zeros has any scale.
    scales = np.where(largest > 0, largest / _LARGEST, 1).astype("float32")
    integers = np.rint(values / scales).astype("int8")
    return tf.Variable(integers, trainable=False), tf.Variable(scales, trainable=False)
