"""The layers that encoder and decoder are made of, and their sublayers (sections 3.1 and 3.3 of the
paper)."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Unpack, get_args, get_type_hints

import keras
from keras import ops

from ..checks import plain, require_divisor
from ..masks import implicit_mask
from ..rules import OddSize, Positive, Rate, Size, annotations_of, check, check_attributes
from ..tensors import Dimension, Shape, Tensor, reshape_inferring
from .arguments import (
    Activation,
    LayerArguments,
    check_batch,
    check_mask,
    child_arguments,
    child_seed,
    config_of,
    require_built,
)
from .attention import MultiHeadAttention, spec_with_scores
from .cache import Cache, KeyValues
from .elementary import Dropout, Normalization, make_normalization
from .relative_positions import RelativePositions

L = TypeVar("L", bound=keras.layers.Layer)


class BlockOptions(LayerArguments, total=False):
    """The options of `EncoderLayer` and `DecoderLayer`, which `Encoder` and `Decoder` hand on to
    their layers.

    Args:
        key_dim: int or None. d_k, the width of each head's queries and keys. Defaults to `d_model
            // num_heads`.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. Rate of dropout on each sublayer's output. Defaults to 0.1.
        attention_dropout: float. Rate of dropout on the attention weights; the paper has none.
            Defaults to 0.
        activation_dropout: float. Rate of dropout inside the feed-forward network; the paper has
            none. Defaults to 0.
        activation: str or callable. Activation of the feed-forward network. Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer instead of after the residual
            sum as in the paper. Defaults to False.
        neighborhood: int or None. r of restricted self-attention (section 4), odd: each position
            attends to the r positions centred on itself. Defaults to None: all positions.
        epsilon: float. Added to the variance, or to the mean square, in normalization. Defaults to
            1e-6.
        attention_bias: bool. Whether the projections of attention add a bias; those of the paper do
            not. Defaults to False.
        feed_forward_bias: bool. Whether the feed-forward network adds biases, as that of the paper
            does. Defaults to True.
        kernel_initializer: str or `keras.initializers.Initializer`. Every kernel draws numbers of
            its own. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None, for each kernel. Defaults
            to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None, for each bias. Defaults to
            None.
        seed: int or None. Dropout with a seed draws the same numbers in every run, and others in
            each sublayer. Defaults to None.
        normalization: "layer", or "rms", root mean square normalization (Zhang and Sennrich 2019,
            arXiv 1910.07467). Defaults to "layer".
        gated: bool. Whether the feed-forward network is a gated linear unit (Shazeer 2020, arXiv
            2002.05202): with the activation "silu" SwiGLU, with "gelu" GEGLU. Defaults to False.
        num_key_value_heads: int or None. Heads of keys and values, a divisor of `num_heads`: each
            serves as many heads of queries (Ainslie et al. 2023, arXiv 2305.13245). Defaults to
            `num_heads`.
        query_key_norm: bool. Whether the queries and keys of each head are normalized by their root
            mean square, with learned scales (Henry et al. 2020, arXiv 2010.04245). Defaults to
            False.
        relative_positions: positions that self-attention knows by itself: "rotary" (Su et al. 2021,
            arXiv 2104.09864), "alibi" (Press et al. 2022, arXiv 2108.12409) or "t5" (Raffel et al.
            2020, arXiv 1910.10683); or None: it knows only those that were added to its inputs.
            Defaults to None.
        flash_attention: bool or None. As in `MultiHeadAttention`. Defaults to None.
    """

    # Each annotation ends with the default.
    key_dim: Annotated[Size | None, None]
    value_dim: Annotated[Size | None, None]
    dropout: Annotated[Rate, 0.1]
    attention_dropout: Annotated[Rate, 0.0]
    activation_dropout: Annotated[Rate, 0.0]
    activation: Annotated[Activation, "relu"]
    norm_first: Annotated[bool, False]
    neighborhood: Annotated[OddSize | None, None]
    epsilon: Annotated[Positive, 1e-6]
    attention_bias: Annotated[bool, False]
    feed_forward_bias: Annotated[bool, True]
    kernel_initializer: Annotated[str | keras.initializers.Initializer, "glorot_uniform"]
    bias_initializer: Annotated[str | keras.initializers.Initializer, "zeros"]
    kernel_regularizer: Annotated[str | keras.regularizers.Regularizer | None, None]
    bias_regularizer: Annotated[str | keras.regularizers.Regularizer | None, None]
    seed: Annotated[int | None, None]
    normalization: Annotated[Normalization, "layer"]
    gated: Annotated[bool, False]
    num_key_value_heads: Annotated[Size | None, None]
    query_key_norm: Annotated[bool, False]
    relative_positions: Annotated[RelativePositions | None, None]
    flash_attention: Annotated[bool | None, None]


_HINTS = get_type_hints(BlockOptions, include_extras=True)
_OPTIONS = {
    name: get_args(_HINTS[name]) for name in _HINTS if name not in LayerArguments.__annotations__
}
_DEFAULTS = {name: default for name, (*_, default) in _OPTIONS.items()}
# What stands between a type and its default is a rule.
_TYPES: dict[str, Any] = {"num_heads": Size, "d_ff": Size} | {
    name: Annotated[type_, *rules] if rules else type_
    for name, (type_, *rules, _) in _OPTIONS.items()
}
# How Keras turns a name into an object, by the last word of the option.
_GETTERS: dict[str, Callable[[Any], Any]] = {
    "activation": keras.activations.get,
    "initializer": keras.initializers.get,
    "regularizer": keras.regularizers.get,
}


def show_options(layer_class: type[L]) -> type[L]:
    """Class decorator: makes `help` and `inspect.signature` show each of the options, with its type
    and its default."""
    constructor: Any = layer_class.__init__
    signature = inspect.signature(constructor)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, default in _DEFAULTS.items():
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_TYPES[name]
            )
        )
    kwargs = inspect.Parameter(
        "kwargs", inspect.Parameter.VAR_KEYWORD, annotation=Unpack[LayerArguments]
    )
    constructor.__signature__ = signature.replace(parameters=[*parameters, kwargs])
    return layer_class


def layer_arguments(options: BlockOptions) -> dict[str, Any]:
    """Returns the arguments for `keras.layers.Layer`, which reports those that do not exist."""
    return {name: value for name, value in options.items() if name not in _TYPES}


def set_options(
    layer: keras.layers.Layer, num_heads: int, d_ff: int, options: BlockOptions
) -> None:
    """Makes options, or their defaults, attributes of a layer of (batch, length, d_model), and
    checks them.

    Raises:
        ConfigError: An option breaks its rule.
    """
    values = {"num_heads": num_heads, "d_ff": d_ff, **_DEFAULTS, **options}
    for name, annotation in _TYPES.items():
        get = _GETTERS.get(name.rpartition("_")[2])
        value = plain(values[name]) if get is None else get(values[name])
        check(name, value, annotation)
        setattr(layer, name, value)
    require_divisor("num_key_value_heads", layer.num_key_value_heads, num_heads=layer.num_heads)
    layer.input_spec = keras.InputSpec(ndim=3)
    layer.supports_masking = True


def get_options(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the options of a layer, with `num_heads` and `d_ff`, as Keras' objects."""
    return {name: getattr(layer, name) for name in _TYPES}


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """`activation(x W1 + b1) W2 + b2`, the same at every position (section 3.3, equation 2).

    With `gated`, `(activation(x Wg + bg) * (x W1 + b1)) W2 + b2`, a gated linear unit (Shazeer
    2020, arXiv 2002.05202): with the activation "silu" it is that paper's SwiGLU, with "gelu" its
    GEGLU. It has 1.5 times the weights; with two thirds of the width, it has the same number.

    Args:
        d_ff: int. Width between the two products.
        activation: str or callable. The paper's is ReLU. Defaults to "relu".
        dropout: float. Rate of dropout on the activations; the paper has none here. Defaults to 0.
        use_bias: bool. Whether the products add a bias, as those of the paper do. Defaults to True.
        gated: bool. Whether a second product of the inputs, with the activation, is multiplied with
            the first, which then has none. Defaults to False.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to "glorot_uniform".
        bias_initializer: str or `keras.initializers.Initializer`. Defaults to "zeros".
        kernel_regularizer: str, `keras.regularizers.Regularizer` or None, for each kernel. Defaults
            to None.
        bias_regularizer: str, `keras.regularizers.Regularizer` or None, for each bias. Defaults to
            None.
        seed: int or None. Dropout with a seed draws the same numbers in every run. Defaults to
            None.

    Call arguments:
        inputs: (..., d_model).
        training: bool. Whether to apply dropout.

    Returns:
        (..., d_model).

    Raises:
        ValueError: An argument breaks its rule, or the inputs are of another width than those
            before.

    Example:
        >>> FeedForward(d_ff=2048)(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> swiglu = FeedForward(d_ff=1365, activation="silu", gated=True, use_bias=False)
        >>> swiglu(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
    """

    def __init__(
        self,
        d_ff: Size,
        activation: Activation = "relu",
        dropout: Rate = 0.0,
        *,
        use_bias: bool = True,
        gated: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.gated = gated
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.seed = seed
        check_attributes(self, FeedForward)
        self.input_spec = keras.InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: input_shape[-1]})
        self.hidden_dense = self._dense(
            self.d_ff, "hidden", None if self.gated else self.activation
        )
        self.gate_dense = self._dense(self.d_ff, "gate", self.activation) if self.gated else None
        self.hidden_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)
        self.output_dense = self._dense(input_shape[-1], "output")
        self.hidden_dense.build(input_shape)
        if self.gate_dense is not None:
            self.gate_dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.d_ff))

    def _dense(
        self, units: int | None, name: str, activation: Activation | None = None
    ) -> keras.layers.Dense:
        return keras.layers.Dense(units, activation, self.use_bias, **child_arguments(self, name))

    def call(
        self, inputs: Annotated[Tensor, "(..., d_model)"], training: bool | None = None
    ) -> Annotated[Tensor, "(..., d_model)"]:
        # For matrices, TensorFlow fuses product, bias and activation into one operation.
        rows = ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))
        hidden = self.hidden_dense(rows)  # (rows, d_ff)
        if self.gate_dense is not None:
            hidden = ops.multiply(self.gate_dense(rows), hidden)
        outputs = self.output_dense(self.hidden_dropout(hidden, training=training))
        return reshape_inferring(outputs, ops.shape(inputs))

    if TYPE_CHECKING:
        # For type checkers, which do not know the types of Keras' tensors.
        def __call__(self, inputs: object, training: bool | None = None) -> Any: ...

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, annotations_of(FeedForward.__init__))}


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(keras.layers.Layer):
    """`LayerNorm(x + Dropout(sublayer(x)))` (sections 3.1 and 5.4), or `x +
    Dropout(sublayer(LayerNorm(x)))`.

    The arguments are described in `BlockOptions`; without any, nothing is dropped out.
    """

    def __init__(
        self,
        dropout: Rate = 0.0,
        norm_first: bool = False,
        epsilon: Positive = 1e-6,
        normalization: Normalization = "layer",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.norm_first = norm_first
        self.epsilon = epsilon
        self.normalization = normalization
        self.seed = seed
        check_attributes(self, Residual)
        self.supports_masking = True

    def build(self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None) -> None:
        self.norm = make_normalization(self.normalization, self.epsilon, self.dtype_policy, "norm")
        self.norm.build(inputs_shape)
        self.output_dropout = Dropout(self.dropout, self.seed, dtype=self.dtype_policy)

    def sublayer_input(
        self, inputs: Annotated[Tensor, "(..., d_model)"]
    ) -> Annotated[Tensor, "(..., d_model)"]:
        """Returns what the sublayer is applied to: the inputs, normalized if `norm_first`."""
        return self.norm(inputs) if self.norm_first else inputs

    def call(
        self,
        inputs: Annotated[Tensor, "(..., d_model)"],
        sublayer_output: Annotated[Tensor, "(..., d_model)"],
        training: bool | None = None,
    ) -> Annotated[Tensor, "(..., d_model)"]:
        total = inputs + self.output_dropout(sublayer_output, training=training)
        return total if self.norm_first else self.norm(total)

    def compute_output_shape(
        self, inputs_shape: Shape, sublayer_output_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, annotations_of(Residual.__init__))}


@keras.saving.register_keras_serializable("keras_transformer")
@show_options
class EncoderLayer(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with a residual connection (section 3.1).

    d_model is read from the inputs.

    Args:
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
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
        (batch, length, d_model), with the inputs' implicit mask, and, if asked for, the weights
        (batch, num_heads, length, length).

    Raises:
        ValueError: An argument breaks its rule, `num_heads` does not divide d_model and `key_dim`
            is None, or the inputs are not (batch, length, d_model).

    Example:
        >>> layer = EncoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512))).shape
        (2, 5, 512)
        >>> llama = dict(normalization="rms", norm_first=True, activation="silu", gated=True, feed_forward_bias=False)
        >>> layer = EncoderLayer(num_heads=8, d_ff=1365, relative_positions="rotary", num_key_value_heads=2, **llama)
        >>> outputs, scores = layer(keras.random.normal((2, 5, 512)), return_attention_scores=True)
        >>> scores.shape
        (2, 8, 5, 5)
    """

    def __init__(self, num_heads: Size, d_ff: Size, **options: Unpack[BlockOptions]) -> None:
        super().__init__(**layer_arguments(options))
        set_options(self, num_heads, d_ff, options)

    def build(self, input_shape: Shape) -> None:
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: input_shape[-1]})
        self.attention = _self_attention(self, input_shape)
        self.attention_residual = _residual(self, "attention", input_shape)
        self.feed_forward = _feed_forward(self, input_shape)
        self.feed_forward_residual = _residual(self, "feed_forward", input_shape)

    def call(
        self,
        inputs: Annotated[Tensor, "(batch, length, d_model)"],
        mask: Annotated[Tensor, "bool (batch, length)"] | None = None,
        attention_mask: Annotated[Tensor, "bool (..., length, length)"] | None = None,
        training: bool | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        mask = implicit_mask(inputs) if mask is None else mask
        check_mask("mask", mask, "inputs", inputs)
        hidden = self.attention_residual.sublayer_input(inputs)
        outputs = self.attention(
            hidden,
            hidden,
            value_mask=mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            use_causal_mask=use_causal_mask,
        )
        attended, *scores = outputs if return_attention_scores else [outputs]
        outputs = _apply_feed_forward(
            self, self.attention_residual(inputs, attended, training=training), training
        )
        return (outputs, *scores) if return_attention_scores else outputs

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

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache, see `DecoderLayer.init_cache`."""
        require_built(self)
        return self.attention.init_cache(batch_size, max_length)

    def step(
        self,
        inputs: Annotated[Tensor, "(batch, n, d_model)"],
        cache: Cache,
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"]
        | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], Cache]:
        """Computes new positions of a layer with `use_causal_mask` only, see
        `DecoderLayer.step`."""
        hidden = self.attention_residual.sublayer_input(inputs)
        attended, cache = self.attention.step(
            hidden, cache, position, mask, position_ids, entry_position_ids
        )
        return _apply_feed_forward(self, self.attention_residual(inputs, attended)), cache

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    compute_output_spec = spec_with_scores

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, _TYPES)}


@keras.saving.register_keras_serializable("keras_transformer")
@show_options
class DecoderLayer(keras.layers.Layer):
    """Causal self-attention, attention to the source, and a feed-forward network (section 3.1).

    A layer that is first called without a source has no attention to a source: the layer of a
    language model. d_model is read from the target.

    For decoding step by step, `init_cache` and `project_source` prepare what `step` attends to.
    Without a mask, the outputs of the steps equal the rows of one call.

    Args:
        num_heads: int. h, the number of attention heads.
        d_ff: int. Width inside the feed-forward network.
        **options: those of `BlockOptions`, by name.

    Call arguments:
        target: (batch, target length, d_model).
        source: (batch, source length, any width), the encoder's output, or None.
        target_mask: bool (batch, target length), True = a real token. Defaults to the target's
            implicit Keras mask.
        source_mask: bool (batch, source length), True = a real token. Defaults to the source's
            implicit Keras mask.
        training: bool. Whether to apply dropout.
        attention_mask: bool, True = attend, for self-attention, of a shape that
            `MultiHeadAttention` takes. It restricts what `use_causal_mask` leaves.
        source_attention_mask: bool, True = attend, for attention to the source, of such a shape.
        use_causal_mask: bool. Whether a position sees only itself and earlier positions. False,
            with an `attention_mask`, is for prefix language models and the like. Defaults to True.
        return_attention_scores: bool. Whether to return the attention weights too. Defaults to
            False.

    Returns:
        (batch, target length, d_model), with the target's implicit mask, and, if asked for, the
        weights of self-attention (batch, num_heads, target length, target length) and, in a layer
        with a source, those of attention to the source (batch, num_heads, target length, source
        length).

    Raises:
        ValueError: An argument breaks its rule; `num_heads` does not divide d_model and `key_dim`
            is None; a layer that was built with a source is called without one, or the reverse; or
            an input is not (batch, length, width), or of another width than that before.

    Example:
        >>> layer = DecoderLayer(num_heads=8, d_ff=2048)
        >>> layer(keras.random.normal((2, 5, 512)), keras.random.normal((2, 7, 512))).shape
        (2, 5, 512)
    """

    def __init__(self, num_heads: Size, d_ff: Size, **options: Unpack[BlockOptions]) -> None:
        super().__init__(**layer_arguments(options))
        set_options(self, num_heads, d_ff, options)

    def build(self, target_shape: Shape, source_shape: Shape | None = None) -> None:
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: target_shape[-1]})
        self.attention = _self_attention(self, target_shape)
        self.attention_residual = _residual(self, "attention", target_shape)
        self.source_attention: Any = None  # MultiHeadAttention in a layer with a source
        self._source_width: int | None = None
        if source_shape is not None:
            self._check_source(source_shape)
            self._source_width = source_shape[-1]
            self.source_attention = _attention(self, "source_attention", target_shape, source_shape)
            self.source_attention_residual = _residual(self, "source_attention", target_shape)
        self.feed_forward = _feed_forward(self, target_shape)
        self.feed_forward_residual = _residual(self, "feed_forward", target_shape)

    def _check_source(self, shape: Shape) -> None:
        # Keras' message, for the second input: `input_spec` describes the first one only.
        problem = (
            f"Input 1 with name 'source' of layer '{self.name}' is incompatible with the "
            f"layer: expected "
        )
        if len(shape) != 3:
            raise ValueError(
                f"{problem}ndim=3, found ndim={len(shape)}. Full shape received: {tuple(shape)}"
            )
        if None not in (self._source_width, shape[-1]) and shape[-1] != self._source_width:
            raise ValueError(
                f"{problem}axis -1 of input shape to have value {self._source_width}, but "
                f"received input with shape "
                f"{tuple(shape)}"
            )

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
    ) -> Tensor | tuple[Tensor, ...]:
        if (source is None) != (self.source_attention is None):
            built = "without" if self.source_attention is None else "with"
            raise ValueError(
                f"source must be given in every call or in none; the layer was built {built} one "
                f"and "
                f"received source={'None' if source is None else 'a tensor'}"
            )
        target_mask = implicit_mask(target) if target_mask is None else target_mask
        check_mask("target_mask", target_mask, "target", target)
        if source is not None:
            self._check_source(source.shape)
            check_batch("source", source, "target", target)
            check_mask("source_mask", source_mask, "source", source)
        options: dict[str, Any] = {
            "return_attention_scores": return_attention_scores,
            "training": training,
        }
        hidden = self.attention_residual.sublayer_input(target)
        outputs = self.attention(
            hidden,
            hidden,
            value_mask=target_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            **options,
        )
        attended, *scores = outputs if return_attention_scores else [outputs]
        target = self.attention_residual(target, attended, training=training)
        if source is not None:
            hidden = self.source_attention_residual.sublayer_input(target)
            outputs = self.source_attention(
                hidden,
                source,
                value_mask=source_mask,
                attention_mask=source_attention_mask,
                **options,
            )
            attended, *source_scores = outputs if return_attention_scores else [outputs]
            scores += source_scores
            target = self.source_attention_residual(target, attended, training=training)
        outputs = _apply_feed_forward(self, target, training)
        return (outputs, *scores) if return_attention_scores else outputs

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

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache for the self-attention.

        Args:
            batch_size: int or int scalar.
            max_length: int or int scalar, the number of entries. Defaults to None: each step makes
                the cache longer.
        """
        require_built(self)
        return self.attention.init_cache(batch_size, max_length)

    def project_source(
        self, source: Annotated[Tensor, "(batch, source length, any width)"]
    ) -> KeyValues:
        """Projects the source to keys and values, once for all steps."""
        return self.source_attention.project_key_value(source)

    def step(
        self,
        target: Annotated[Tensor, "(batch, n, d_model)"],
        cache: Cache,
        position: Dimension,
        mask: Annotated[Tensor, "bool, broadcasts to (batch, n, number of entries)"] | None = None,
        source_key_values: KeyValues | None = None,
        source_mask: Annotated[Tensor, "bool (batch, source length)"] | None = None,
        position_ids: Annotated[Tensor, "int, broadcasts to (batch, n)"] | None = None,
        entry_position_ids: Annotated[Tensor, "int, broadcasts to (batch, number of entries)"]
        | None = None,
    ) -> tuple[Annotated[Tensor, "(batch, n, d_model)"], Cache]:
        """Computes new positions only.

        Args:
            target: the next position of n hypotheses in a beam search, or n next positions.
            cache: from `init_cache` or the previous step.
            position: int or int scalar, the place in a `FixedCache` where the n entries go.
            mask: True = attend: the entries that each of the n may attend to, within its
                neighborhood if the layer has one. Defaults to None: the n are next positions, and
                each sees itself and the entries before it, within its neighborhood.
            source_key_values: from `project_source`.
            source_mask: True = a real token.
            position_ids: the places of the n in the sequence, for `relative_positions`. Defaults to
                None: the numbers of their entries.
            entry_position_ids: the places of the cache's entries in the sequence, for
                `relative_positions`. Defaults to None: 0, 1, 2, ... In a beam search, where each
                step writes `beam_size` entries, entry e is at place `e // beam_size`.

        Returns:
            The outputs of the n positions, and the cache with the n entries.

        Raises:
            ValueError: The n entries end after the `FixedCache`; only checked if the sizes and
                `position` are ints.
        """
        hidden = self.attention_residual.sublayer_input(target)
        attended, cache = self.attention.step(
            hidden, cache, position, mask, position_ids, entry_position_ids
        )
        target = self.attention_residual(target, attended)
        if source_key_values is not None:
            hidden = self.source_attention_residual.sublayer_input(target)
            allowed = None if source_mask is None else ops.expand_dims(source_mask, 1)
            attended = self.source_attention.attend(hidden, source_key_values, allowed)
            target = self.source_attention_residual(target, attended)
        return _apply_feed_forward(self, target), cache

    def compute_output_shape(self, target_shape: Shape, source_shape: Shape | None = None) -> Shape:
        return target_shape

    compute_output_spec = spec_with_scores

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, _TYPES)}


def _self_attention(layer: EncoderLayer | DecoderLayer, shape: Shape) -> MultiHeadAttention:
    positions = {"neighborhood": layer.neighborhood, "relative_positions": layer.relative_positions}
    return _attention(layer, "attention", shape, shape, **positions)


def _attention(
    layer: EncoderLayer | DecoderLayer,
    name: str,
    query_shape: Shape,
    value_shape: Shape,
    **positions: Any,
) -> MultiHeadAttention:
    d_model, key_dim = query_shape[-1], layer.key_dim
    if key_dim is None:
        if d_model is None or d_model % layer.num_heads:
            raise ValueError(
                f"num_heads must divide d_model={d_model} unless key_dim is given; received "
                f"num_heads={layer.num_heads}"
            )
        key_dim = d_model // layer.num_heads
    attention = MultiHeadAttention(
        layer.num_heads,
        key_dim,
        layer.value_dim,
        dropout=layer.attention_dropout,
        use_bias=layer.attention_bias,
        flash_attention=layer.flash_attention,
        num_key_value_heads=layer.num_key_value_heads,
        query_key_norm=layer.query_key_norm,
        seed=child_seed(layer.seed, name),
        **child_arguments(layer, name),
        **positions,
    )
    attention.build(query_shape, value_shape)
    return attention


def _feed_forward(layer: EncoderLayer | DecoderLayer, shape: Shape) -> FeedForward:
    feed_forward = FeedForward(
        layer.d_ff,
        layer.activation,
        layer.activation_dropout,
        use_bias=layer.feed_forward_bias,
        gated=layer.gated,
        seed=child_seed(layer.seed, "feed_forward"),
        **child_arguments(layer, "feed_forward"),
    )
    feed_forward.build(shape)
    return feed_forward


def _residual(layer: EncoderLayer | DecoderLayer, sublayer_name: str, shape: Shape) -> Residual:
    name = f"{sublayer_name}_residual"
    seed = child_seed(layer.seed, name)
    residual = Residual(
        layer.dropout,
        layer.norm_first,
        layer.epsilon,
        layer.normalization,
        seed,
        dtype=layer.dtype_policy,
        name=name,
    )
    residual.build(shape)
    return residual


def _apply_feed_forward(
    layer: EncoderLayer | DecoderLayer, inputs: Tensor, training: bool | None = None
) -> Tensor:
    hidden = layer.feed_forward(
        layer.feed_forward_residual.sublayer_input(inputs), training=training
    )
    return layer.feed_forward_residual(inputs, hidden, training=training)
