"""The options and parts that the encoder and the decoder have in common."""

from typing import Any, get_args

import keras

from ..checks import boolean, integer, one_of, positive_float, positive_int
from ..config.layer_options import Normalization
from ..tensors import Dimension, Shape, Tensor
from .argument_hints import ArgumentHints
from .cache import Cache
from .children import child_initializer, child_seed, require_built, saved_dtype
from .input_checks import output_spec_with_scores
from .layer_normalization import make_normalization
from .position_scheme import copy_of
from .transformer_layer import _TransformerLayer

_INITIALIZERS = ("kernel_initializer", "bias_initializer")
_KERAS_ARGUMENTS = ("name", "dtype", "trainable", "autocast", "activity_regularizer")


class _Stack(ArgumentHints, keras.layers.Layer):
    """Base class of `Encoder` and `Decoder`, whose docstrings explain the arguments.

    It creates the layers, which check their own arguments. Its subclasses call them.
    """

    # A subclass can set its own layer class.
    layer_class: type[_TransformerLayer]

    # The layers suggest names for their own arguments.
    other_names = {
        "dff": "d_ff",
        "dim_feedforward": "d_ff",
        "ff_dim": "d_ff",
        "intermediate_dim": "d_ff",
        "layer_norm_epsilon": "epsilon",
        "nhead": "num_heads",
        "normalize_first": "norm_first",
        "num_query_heads": "num_heads",
    }

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        *,
        norm_first: bool = False,
        normalization: Normalization = "layer",
        epsilon: float = 1e-6,
        seed: int | None = None,
        remat: bool = False,
        **layer_arguments: Any,
    ) -> None:
        super().__init__(**_pop_keras_arguments(layer_arguments))
        self.num_layers = positive_int("num_layers", num_layers)
        self.num_heads = positive_int("num_heads", num_heads)
        self.d_ff = positive_int("d_ff", d_ff)
        self.norm_first = boolean("norm_first", norm_first)
        self.normalization = one_of("normalization", normalization, get_args(Normalization))
        self.epsilon = positive_float("epsilon", epsilon)
        self.seed = integer("seed", seed, optional=True)
        self.remat = boolean("remat", remat)
        self.layer_arguments = _take_initializers(layer_arguments)
        self.input_spec = self.layer_class._unbuilt_input_spec
        self.supports_masking = True

    def _build_layers(self, input_shape: Shape, *further_shapes: Shape | None) -> None:
        self.layers = []
        for index in range(self.num_layers):
            layer = self.make_layer(index)
            layer.build(input_shape, *further_shapes)
            self.layers.append(layer)
        self.input_spec = self.layers[0].input_spec
        # Pre-norm layers do not normalize their outputs, so the stack does so once at the end.
        self.final_norm: Any = None
        if self.norm_first:
            self.final_norm = self.make_normalization("final_norm")
            self.final_norm.build(input_shape)

    def make_layer(self, index: int) -> Any:
        """Creates the layer with this index, from 0 to `num_layers - 1`.

        Override it to create layers that differ. `build` calls it.
        """
        name = f"layer_{index}"
        return self.layer_class(
            self.num_heads,
            self.d_ff,
            norm_first=self.norm_first,
            normalization=self.normalization,
            epsilon=self.epsilon,
            seed=child_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
            **_arguments_of_child(self.layer_arguments, name),
        )

    def make_normalization(self, name: str) -> keras.layers.Layer:
        """Creates the final normalization of a pre-norm stack. Override it to use another layer."""
        return make_normalization(self.normalization, self.epsilon, self.dtype_policy, name)

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> list[Cache]:
        """Returns an empty cache for each layer. See `DecoderLayer.init_cache`."""
        require_built(self)
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def _normalize(self, hidden: Tensor) -> Tensor:
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return output_spec_with_scores(self, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{
                name: keras.saving.serialize_keras_object(value)
                for name, value in self.layer_arguments.items()
            },
            "dtype": saved_dtype(self),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "norm_first": self.norm_first,
            "normalization": self.normalization,
            "epsilon": self.epsilon,
            "seed": self.seed,
            "remat": self.remat,
        }


def _take_initializers(layer_arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, with initializers as objects instead of names or configurations."""
    arguments = dict(layer_arguments)
    for name in _INITIALIZERS:
        if name in arguments:
            arguments[name] = keras.initializers.get(arguments[name])
    return arguments


def _pop_keras_arguments(layer_arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes and returns the arguments of `keras.layers.Layer`, which apply to the stack."""
    return {name: layer_arguments.pop(name) for name in _KERAS_ARGUMENTS if name in layer_arguments}


def _arguments_of_child(layer_arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the arguments for a layer, with its own initializers and position scheme."""
    arguments = dict(layer_arguments)
    for initializer in _INITIALIZERS:
        if initializer in arguments:
            arguments[initializer] = child_initializer(arguments[initializer], name)
    if "relative_positions" in arguments:
        arguments["relative_positions"] = copy_of(arguments["relative_positions"])
    return arguments
