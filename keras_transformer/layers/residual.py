"""The residual connection around each sublayer (sections 3.1 and 5.4 of the paper)."""

from typing import Any

import keras

from ..checks import boolean, integer, rate, require
from ..errors import ConfigError
from ..masks import refuse_ragged
from ..tensors import Shape, Tensor
from .dropout import Dropout
from .input_checks import fits


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """Residual connection, `LayerNorm(x + Dropout(sublayer(x)))` (sections 3.1 and 5.4).

    With `norm_first`, it is `x + Dropout(sublayer(LayerNorm(x)))`.

    Encoder and decoder layers use it around each sublayer:

        hidden = residual.sublayer_input(inputs)
        outputs = residual(inputs, sublayer(hidden))

    To change how outputs are added, override `call`, for example to drop whole sublayers at random
    or to learn a scale for each feature. Then return your subclass from `make_residual` of an
    encoder or decoder layer.

    Args:
        norm: `keras.layers.Layer` or None. Normalizes the last axis. None disables normalization.
        dropout: float. Dropout rate on the output of the sublayer. Defaults to 0.
        norm_first: bool. Whether to normalize the input of the sublayer instead of the sum.
            Defaults to False, as in the paper.
        seed: int or None. Seed for dropout. Defaults to None.

    Call arguments:
        inputs: (..., d_model).
        sublayer_output: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Example:
        >>> residual = Residual(keras.layers.LayerNormalization(), dropout=0.1)
        >>> inputs = keras.random.normal((2, 5, 8))
        >>> residual(inputs, keras.layers.Dense(8)(residual.sublayer_input(inputs))).shape
        (2, 5, 8)
    """

    def __init__(
        self,
        norm: keras.layers.Layer | None,
        dropout: float = 0.0,
        norm_first: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        is_layer = norm is None or isinstance(norm, keras.layers.Layer)
        require(is_layer, "norm", "a keras.layers.Layer or None", norm)
        self.norm = norm
        self.dropout = rate("dropout", dropout)
        self.norm_first = boolean("norm_first", norm_first)
        self.seed = integer("seed", seed, optional=True)
        self.supports_masking = True

    def build(self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None) -> None:
        if self.norm is not None and not self.norm.built:
            self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)

    def sublayer_input(self, inputs: Tensor) -> Tensor:
        """Returns the input of the sublayer: `inputs`, normalized if `norm_first`."""
        return self._normalize(inputs) if self.norm_first else inputs

    def call(self, inputs: Tensor, sublayer_output: Tensor, training: bool | None = None) -> Tensor:
        refuse_ragged("inputs", inputs)
        shape, expected = tuple(sublayer_output.shape), tuple(inputs.shape)
        if not fits((1,) * (len(expected) - len(shape)) + shape, expected):
            raise ConfigError(
                f"sublayer_output must have the same shape as inputs, {expected}; "
                f"received sublayer_output of shape {shape}"
            )
        total = inputs + self.output_dropout(sublayer_output, training=training)
        return total if self.norm_first else self._normalize(total)

    def _normalize(self, inputs: Tensor) -> Tensor:
        return inputs if self.norm is None else self.norm(inputs)

    def compute_output_shape(
        self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "norm": keras.saving.serialize_keras_object(self.norm),
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Residual":
        norm = keras.saving.deserialize_keras_object(config["norm"])
        return super().from_config({**config, "norm": norm})
