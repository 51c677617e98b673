"""Rotary positions (Su et al. 2021), and their scaling to longer sequences."""

import math
from typing import Any, Literal, get_args

import keras
import numpy as np
from keras import ops

from ..checks import one_of, positive_float, positive_int, require
from ..tensors import Tensor
from .position_scheme import PositionScheme

Scaling = Literal["linear", "ntk", "yarn"]


@keras.saving.register_keras_serializable("keras_transformer")
class RotaryPositions(PositionScheme):
    """Rotary positions, which rotate queries and keys by position (Su et al. 2021).

    Features i and i + width / 2 form a pair, which is rotated by the angle
    `position * base ** (-2i / width)` (arXiv 2104.09864, section 3.2.2). The dot product of a query
    and a key then depends only on the difference of their positions.

    In a layer, `relative_positions="rotary"` is short for `RotaryPositions()`. Pass an instance to
    use another base, or to run a model on sequences `factor` times as long as in training.

    Args:
        base: float. Base of the wavelengths. Defaults to 10000.
        scaling: "linear" divides positions by `factor` (Chen et al. 2023, arXiv 2306.15595). "ntk"
            multiplies the base by `factor ** (width / (width - 2))`, so that short wavelengths
            hardly change and the longest is multiplied by `factor`. "yarn" multiplies only long
            wavelengths by `factor`, and multiplies queries and keys by `0.1 * log(factor) + 1`
            (Peng et al. 2023, arXiv 2309.00071). Defaults to None: no scaling.
        factor: float. Scaling factor, at least 1. Defaults to 1.
        original_max_length: int. For "yarn": sequence length in training. Defaults to 4096.
        beta_fast: float. For "yarn": wavelengths that fit into `original_max_length` at least this
            many times are not scaled. Defaults to 32.
        beta_slow: float. For "yarn": wavelengths that fit into `original_max_length` at most this
            many times are multiplied by the full `factor`. Defaults to 1.

    Raises:
        ConfigError: An argument is invalid.

    Example:
        >>> long_context = RotaryPositions(scaling="yarn", factor=4.0, original_max_length=512)
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048, relative_positions=long_context)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        base: float = 10000.0,
        scaling: Scaling | None = None,
        factor: float = 1.0,
        original_max_length: int = 4096,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.base = positive_float("base", base)
        self.scaling = one_of("scaling", scaling, get_args(Scaling), optional=True)
        self.factor = positive_float("factor", factor)
        self.original_max_length = positive_int("original_max_length", original_max_length)
        self.beta_fast = positive_float("beta_fast", beta_fast)
        self.beta_slow = positive_float("beta_slow", beta_slow)
        require(self.base > 1, "base", "above 1", base)
        require(self.factor >= 1, "factor", "at least 1", factor)
        rule = "1 without scaling"
        require(self.factor == 1 or self.scaling is not None, "factor", rule, factor)
        rule = f"above beta_slow={beta_slow}"
        require(self.beta_fast > self.beta_slow, "beta_fast", rule, beta_fast)

    def rotate(self, heads: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Rotates features (batch, ..., length, width), whose width is even, by their positions."""
        frequencies = self.frequencies(heads.shape[-1])
        dtype = keras.backend.result_type(heads.dtype, "float32")
        positions = ops.arange(ops.shape(heads)[-2]) if position_ids is None else position_ids
        # The angles of both halves have the same cosines, and sines of opposite signs.
        both_halves = np.concatenate([-frequencies, frequencies]).astype(dtype)
        angles = ops.multiply(ops.expand_dims(ops.cast(positions, dtype), -1), both_halves)
        if len(angles.shape) == 3 and len(heads.shape) > 3:
            # All axes between batch and length, such as heads, share the positions.
            angles = ops.expand_dims(angles, tuple(range(1, len(heads.shape) - 2)))
        cosines, sines = ops.cos(angles), ops.sin(angles)
        if self.magnitude != 1:
            cosines, sines = cosines * self.magnitude, sines * self.magnitude
        # Split instead of slicing: TensorFlow would pad and add the gradients of slices.
        swapped = ops.concatenate(ops.split(heads, 2, axis=-1)[::-1], axis=-1)
        rotated = ops.cast(heads, dtype) * cosines + ops.cast(swapped, dtype) * sines
        return ops.cast(rotated, heads.dtype)

    def frequencies(self, width: int) -> np.ndarray:
        """Returns the angle per position of each pair of features, float64 (width / 2,)."""
        half = width // 2
        exponents = np.arange(half) / half
        if self.scaling == "ntk":
            base = self.base * self.factor ** (width / max(width - 2, 1))
            return base**-exponents
        frequencies = self.base**-exponents
        if self.scaling == "linear":
            return frequencies / self.factor
        if self.scaling == "yarn":
            scaled = self._share_scaled(width)
            return frequencies / self.factor * scaled + frequencies * (1 - scaled)
        return frequencies

    @property
    def magnitude(self) -> float:
        """The factor by which queries and keys are multiplied: 1 except for "yarn"."""
        return 0.1 * math.log(self.factor) + 1.0 if self.scaling == "yarn" else 1.0

    def _share_scaled(self, width: int) -> np.ndarray:
        """Returns how much each frequency is scaled, a ramp from 0 (not at all) to 1 (fully)."""

        def pair_with_turns(turns: float) -> float:
            # The pair of features that completes this number of turns within the original length.
            wavelengths = self.original_max_length / (turns * 2 * math.pi)
            return width * math.log(wavelengths) / (2 * math.log(self.base))

        first = max(math.floor(pair_with_turns(self.beta_fast)), 0)
        last = min(math.ceil(pair_with_turns(self.beta_slow)), width - 1)
        return np.clip((np.arange(width // 2) - first) / max(last - first, 0.001), 0, 1)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "base": self.base,
            "scaling": self.scaling,
            "factor": self.factor,
            "original_max_length": self.original_max_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
        }
