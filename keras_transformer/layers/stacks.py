"""Encoder and decoder: stacks of layers (section 3.1 of the paper)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import keras
from keras import ops

from ..masks import implicit_mask
from ..rules import Size, check_attributes
from ..tensors import Dimension, Shape, Tensor
from .arguments import child_arguments, child_seed, config_of, require_built
from .attention import spec_with_scores
from .blocks import (
    BlockOptions,
    DecoderLayer,
    EncoderLayer,
    get_options,
    layer_arguments,
    set_options,
    show_options,
)
from .cache import Cache, KeyValues
from .elementary import make_normalization


@keras.saving.register_keras_serializable("keras_transformer")
@show_options
class Encoder(keras.layers.Layer):
    """`num_layers` encoder layers; with `norm_first`, normalization after the last one.

    Args:
        num_layers: int. N, the number of layers.
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
        remat: bool. Whether training computes each layer again for its gradient, which takes more
            time, but memory for one layer only. Defaults to False.
        **options: those of `BlockOptions`, by name.

    Call arguments:
        inputs: (batch, length, d_model).
        mask: bool (batch, length), True = a real token. Defaults to the implicit Keras mask of the
            inputs.
        attention_mask: bool, True = attend, of a shape that `MultiHeadAttention` takes.
        training: bool. Whether to apply dropout.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults
            to False.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to
            False.

    Returns:
        (batch, length, d_model), with the inputs' implicit mask, and, if asked for, a list of each
        layer's weights.

    Raises:
        ValueError: as `EncoderLayer`.

    Example:
        >>> Encoder(num_layers=6, num_heads=8, d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        num_layers: Size,
        num_heads: Size,
        d_ff: Size,
        *,
        remat: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**layer_arguments(options))
        set_options(self, num_heads, d_ff, options)
        self.num_layers = num_layers
        self.remat = remat
        check_attributes(self, Encoder)

    def build(self, input_shape: Shape) -> None:
        _build_layers(self, EncoderLayer, input_shape)

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        mask: Annotated[Tensor, "bool (batch, length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., length, length)"] | None = None,
        training: bool | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        mask = implicit_mask(inputs) if mask is None else mask
        return _call_layers(
            self,
            inputs,
            mask=mask,
            attention_mask=attention_mask,
            training=training,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
        def __call__(
            self,
            inputs: object,
            mask: object = None,
            attention_mask: object = None,
            training: bool | None = None,
            use_causal_mask: bool = False,
            return_attention_scores: bool = False,
        ) -> Any: ...

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> list[Cache]:
        """Returns an empty cache for each layer, see `DecoderLayer.init_cache`."""
        require_built(self)
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def step(
        self,
        inputs: Annotated[Tensor, "(batch, n, d_model)"],
        caches: Sequence[Cache],
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"]
        | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], list[Cache]]:
        """Computes new positions of an encoder with `use_causal_mask`, see `DecoderLayer.step`."""
        written = []
        for layer, cache in zip(self.layers, caches, strict=True):
            inputs, cache = layer.step(
                inputs, cache, position, mask, position_ids, entry_position_ids
            )
            written.append(cache)
        return _normalize(self, inputs), written

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    compute_output_spec = spec_with_scores

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **config_of(self, ["num_layers", *get_options(self), "remat"]),
        }


@keras.saving.register_keras_serializable("keras_transformer")
@show_options
class Decoder(keras.layers.Layer):
    """`num_layers` decoder layers; with `norm_first`, normalization after the last one.

    `init_cache`, `project_source` and `step` are those of `DecoderLayer`, with one cache and one
    projected source per layer.

    Args:
        num_layers: int. N, the number of layers.
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
        remat: bool. Whether training computes each layer again for its gradient, which takes more
            time, but memory for one layer only. Defaults to False.
        **options: those of `BlockOptions`, by name.

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width), the encoder's output, or None.
        target_mask: bool (batch, target length), True = a real token. Defaults to the target's
            implicit Keras mask.
        source_mask: bool (batch, source length), True = a real token. Defaults to the source's
            implicit Keras mask.
        training: bool. Whether to apply dropout.
        attention_mask: bool, True = attend, as in `DecoderLayer`.
        source_attention_mask: bool, True = attend, as in `DecoderLayer`.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. Defaults
            to True.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to
            False.

    Returns:
        (batch, target length, d_model), with the target's implicit mask, and, if asked for, a list
        of each layer's weights of self-attention and, in a decoder with a source, a list of those
        of attention to the source.

    Raises:
        ValueError: as `DecoderLayer`.

    Example:
        >>> decoder = Decoder(num_layers=6, num_heads=8, d_ff=2048)
        >>> decoder(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        num_layers: Size,
        num_heads: Size,
        d_ff: Size,
        *,
        remat: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**layer_arguments(options))
        set_options(self, num_heads, d_ff, options)
        self.num_layers = num_layers
        self.remat = remat
        check_attributes(self, Decoder)

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        _build_layers(self, DecoderLayer, target_shape, source_shape)

    def call(
        self,
        target: Annotated[Tensor, "(batch, target length, d_model)"],
        source: Annotated[Tensor, "(batch, source length, any width)"] | None = None,
        target_mask: Annotated[Tensor, "bool (batch, target length)"] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        training: bool | None = None,
        attention_mask: Annotated[Tensor, "bool (..., target length, target length)"] | None = None,
        source_attention_mask: Annotated[Tensor, "bool (..., target length, source length)"]
        | None = None,
        use_causal_mask: bool = True,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor | list[Tensor], ...]:
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        if source is not None and source_mask is None:
            source_mask = implicit_mask(source)
        return _call_layers(
            self,
            *([target] if source is None else [target, source]),
            target_mask=target_mask,
            source_mask=source_mask,
            training=training,
            attention_mask=attention_mask,
            source_attention_mask=source_attention_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
        def __call__(
            self,
            target: object,
            source: object = None,
            target_mask: object = None,
            source_mask: object = None,
            training: bool | None = None,
            attention_mask: object = None,
            source_attention_mask: object = None,
            use_causal_mask: bool = True,
            return_attention_scores: bool = False,
        ) -> Any: ...

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> list[Cache]:
        """Returns an empty cache for each layer, see `DecoderLayer.init_cache`."""
        require_built(self)
        return [layer.init_cache(batch_size, max_length) for layer in self.layers]

    def project_source(
        self, source: Annotated[Tensor, "(batch, source length, any width)"]
    ) -> list[KeyValues]:
        """Projects the source to each layer's keys and values, see
        `DecoderLayer.project_source`."""
        return [layer.project_source(source) for layer in self.layers]

    def step(
        self,
        target: Annotated[Tensor, "(batch, n, d_model)"],
        caches: Sequence[Cache],
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        source_key_values: Sequence[KeyValues] | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"]
        | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], list[Cache]]:
        """Computes new positions through all layers, see `DecoderLayer.step`."""
        sources = [None] * self.num_layers if source_key_values is None else source_key_values
        written = []
        for layer, cache, source in zip(self.layers, caches, sources, strict=True):
            target, cache = layer.step(
                target, cache, position, mask, source, source_mask, position_ids, entry_position_ids
            )
            written.append(cache)
        return _normalize(self, target), written

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape

    compute_output_spec = spec_with_scores

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **config_of(self, ["num_layers", *get_options(self), "remat"]),
        }


def _build_layers(
    stack: Encoder | Decoder,
    layer_class: type[EncoderLayer] | type[DecoderLayer],
    input_shape: Shape,
    *source_shape: Shape | None,
) -> None:
    stack.input_spec = keras.InputSpec(ndim=3, axes={-1: input_shape[-1]})
    stack.layers = []
    for name in (f"layer_{i}" for i in range(stack.num_layers)):
        options = {
            **get_options(stack),
            **child_arguments(stack, name),
            "seed": child_seed(stack.seed, name),
        }
        layer = layer_class(**options)
        layer.build(input_shape, *source_shape)
        stack.layers.append(layer)
    # Pre-norm layers do not normalize their sums; the stack does so once, at its end.
    stack.final_norm = None
    if stack.norm_first:
        stack.final_norm = make_normalization(
            stack.normalization, stack.epsilon, stack.dtype_policy, "final_norm"
        )
        stack.final_norm.build(input_shape)


def _call_layers(
    stack: Encoder | Decoder, hidden: Tensor, *source: Tensor, **arguments: Any
) -> Any:
    """Returns what the last layer does; attention scores of each kind are a list with those of
    every layer."""
    scores = []
    for layer in stack.layers:
        if stack.remat and arguments["training"]:
            outputs = _call_with_remat(layer, [hidden, *source], arguments)
        else:
            outputs = layer(hidden, *source, **arguments)
        hidden, *layer_scores = outputs if arguments["return_attention_scores"] else [outputs]
        scores.append(layer_scores)
    outputs = _normalize(stack, hidden)
    return (outputs, *map(list, zip(*scores))) if arguments["return_attention_scores"] else outputs


def _normalize(stack: Encoder | Decoder, hidden: Tensor) -> Tensor:
    return hidden if stack.final_norm is None else stack.final_norm(hidden)


def _call_with_remat(
    layer: keras.layers.Layer, tensors: list[Tensor], arguments: dict[str, Any]
) -> Any:
    """Calls a layer so that its gradient computes it again.

    Whatever has a gradient is passed to `keras.remat`, since TensorFlow finds no other gradients.
    Dropout draws the same numbers again, from the states that its generators have before the call.
    """
    weights = [ops.copy(variable.value) for variable in layer.trainable_variables]
    states = [ops.copy(variable.value) for variable in layer.non_trainable_variables]

    def compute(*inputs: Tensor) -> Any:
        return layer.stateless_call(
            inputs[len(tensors) :], states, *inputs[: len(tensors)], **arguments
        )

    outputs, new_states = keras.remat(compute)(*tensors, *weights)
    for variable, state in zip(layer.non_trainable_variables, new_states, strict=True):
        variable.assign(state)
    return outputs
