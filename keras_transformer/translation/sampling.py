"""How translations are drawn at random."""

from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from ..config.decoding import TopP
from ..config.rules import Positive, Size, check
from ..tensors import Tensor


class Sampling(NamedTuple):
    """How translations are drawn at random, see `keras_transformer.decoding.sample`. Tensors are inputs of a graph.

    Attributes:
        seed: int, of which 32 bits count, or int32 scalar. The same seed gives the same translations.
        temperature: float. Below 1 for more probable tokens, above 1 for more variety. Defaults to 1.
        top_k: int or None. How many of the most probable tokens are drawn from. Defaults to None: all.
        top_p: float or None. The probability that the tokens that are drawn from have together. Defaults to None: 1.
        first_row: int. The number of the first text: a text is drawn by the seed and its number, whatever is translated
            with it. Defaults to 0.
    """

    seed: int | Tensor
    temperature: float | Tensor = 1.0
    top_k: int | None = None
    top_p: float | Tensor | None = None
    first_row: int | Tensor = 0

    def check(self) -> None:
        """Raises a ConfigError if a value breaks its rule."""
        check("temperature", self.temperature, Positive)
        check("top_k", self.top_k, Size | None)
        check("top_p", self.top_p, TopP | None)


def sampling_inputs(sampling: Sampling) -> dict[str, Tensor]:
    """Returns what a graph needs to draw, as tensors by name."""
    inputs = {
        "seed": tf.constant(np.array(int(cast(int, sampling.seed)) % 2**32, "uint32").astype("int32")),
        "temperature": tf.constant(sampling.temperature, tf.float32),
        "first_row": tf.constant(sampling.first_row, tf.int32),
    }
    return inputs if sampling.top_p is None else inputs | {"top_p": tf.constant(sampling.top_p, tf.float32)}
