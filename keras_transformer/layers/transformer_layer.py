"""The options and parts that encoder and decoder layers have in common."""

from collections.abc import Callable
from typing import Any, get_args

import keras

from ..checks import boolean, integer, one_of, positive_float, positive_int, rate, require_divisor
from ..config.layer_options import Normalization, RelativePositions
from ..tensors import Dimension, Shape
from .argument_hints import ArgumentHints
from .cache import Cache
from .children import child_initializer, child_seed, head_width, require_built, saved_dtype
from .feed_forward import FeedForward
from .input_checks import output_spec_with_scores
from .layer_normalization import make_normalization
from .multi_head_attention import MultiHeadAttention
from .position_scheme import PositionScheme, copy_of
from .relative_positions import (
    check_relative_positions,
    serialize_relative_positions,
)
from .residual import Residual


class _TransformerLayer(ArgumentHints, keras.layers.Layer):
    """Base class of `EncoderLayer` and `DecoderLayer`, whose docstrings explain the arguments.

    It checks and stores the options and creates the sublayers. Its subclasses build and call them.
    """

    # The inputs that a layer accepts before it is built.
    _unbuilt_input_spec = keras.InputSpec(min_ndim=3)

    other_names = {
        "dff": "d_ff",
        "dim_feedforward": "d_ff",
        "dropout_rate": "dropout",
        "ff_dim": "d_ff",
        "head_dim": "key_dim",
        "intermediate_dim": "d_ff",
        "layer_norm_eps": "epsilon",
        "layer_norm_epsilon": "epsilon",
        "nhead": "num_heads",
        "normalize_first": "norm_first",
        "num_query_heads": "num_heads",
        "rate": "dropout",
        "use_bias": "attention_bias and feed_forward_bias",
    }

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        activation: str | Callable[..., Any] = "relu",
        norm_first: bool = False,
        sliding_window: int | None = None,
        epsilon: float = 1e-6,
        attention_bias: bool = False,
        feed_forward_bias: bool = True,
        kernel_initializer: str | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | keras.initializers.Initializer = "zeros",
        kernel_regularizer: str | keras.regularizers.Regularizer | None = None,
        bias_regularizer: str | keras.regularizers.Regularizer | None = None,
        seed: int | None = None,
        normalization: Normalization = "layer",
        gated: bool = False,
        num_key_value_heads: int | None = None,
        query_key_norm: bool = False,
        relative_positions: RelativePositions | PositionScheme | None = None,
        flash_attention: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int("num_heads", num_heads)
        self.d_ff = positive_int("d_ff", d_ff)
        self.key_dim = positive_int("key_dim", key_dim, optional=True)
        self.value_dim = positive_int("value_dim", value_dim, optional=True)
        self.dropout = rate("dropout", dropout)
        self.attention_dropout = rate("attention_dropout", attention_dropout)
        self.activation_dropout = rate("activation_dropout", activation_dropout)
        self.activation = keras.activations.get(activation)
        self.norm_first = boolean("norm_first", norm_first)
        self.sliding_window = positive_int("sliding_window", sliding_window, optional=True)
        self.epsilon = positive_float("epsilon", epsilon)
        self.attention_bias = boolean("attention_bias", attention_bias)
        self.feed_forward_bias = boolean("feed_forward_bias", feed_forward_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.seed = integer("seed", seed, optional=True)
        self.normalization = one_of("normalization", normalization, get_args(Normalization))
        self.gated = boolean("gated", gated)
        self.num_key_value_heads = positive_int(
            "num_key_value_heads", num_key_value_heads, optional=True
        )
        self.query_key_norm = boolean("query_key_norm", query_key_norm)
        self.relative_positions = check_relative_positions(relative_positions)
        self.flash_attention = boolean("flash_attention", flash_attention, optional=True)
        require_divisor("num_key_value_heads", self.num_key_value_heads, num_heads=self.num_heads)
        self.input_spec = self._unbuilt_input_spec
        self.supports_masking = True

    def make_self_attention(self, input_shape: Shape) -> keras.layers.Layer:
        """Creates the self-attention layer.

        Override it to use another layer. `build` calls it.
        """
        return self._make_attention(
            "self_attention",
            input_shape,
            sliding_window=self.sliding_window,
            relative_positions=copy_of(self.relative_positions),
        )

    def _make_attention(self, name: str, query_shape: Shape, **options: Any) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim or head_width(query_shape[-1], self.num_heads),
            self.value_dim,
            dropout=self.attention_dropout,
            use_bias=self.attention_bias,
            flash_attention=self.flash_attention,
            kernel_initializer=child_initializer(self.kernel_initializer, name),
            bias_initializer=child_initializer(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            num_key_value_heads=self.num_key_value_heads,
            query_key_norm=self.query_key_norm,
            seed=child_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def make_feed_forward(self, input_shape: Shape) -> keras.layers.Layer:
        """Creates the feed-forward network.

        Override it to use another layer that maps (batch, length, d_model) to the same shape.
        `build` calls it.
        """
        return FeedForward(
            self.d_ff,
            self.activation,
            self.activation_dropout,
            use_bias=self.feed_forward_bias,
            gated=self.gated,
            kernel_initializer=child_initializer(self.kernel_initializer, "feed_forward"),
            bias_initializer=child_initializer(self.bias_initializer, "feed_forward"),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            seed=child_seed(self.seed, "feed_forward"),
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def make_residual(self, sublayer_name: str) -> Residual:
        """Creates the residual connection around a sublayer.

        The sublayer is "self_attention", "cross_attention" or "feed_forward". Override it to use a
        subclass of `Residual`. `build` calls it.
        """
        name = f"{sublayer_name}_residual"
        return Residual(
            self.make_normalization(sublayer_name),
            dropout=self.dropout,
            norm_first=self.norm_first,
            seed=child_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )

    def make_normalization(self, sublayer_name: str) -> keras.layers.Layer | None:
        """Creates the normalization of a sublayer's residual connection.

        Override it to use another layer, or return None to disable normalization. `build` calls it.
        """
        return make_normalization(self.normalization, self.epsilon, self.dtype_policy, "norm")

    def init_cache(self, batch_size: Dimension, max_length: Dimension | None = None) -> Cache:
        """Returns an empty cache for the self-attention.

        Args:
            batch_size: int or int scalar.
            max_length: int or int scalar. Number of entries in the cache. Defaults to None: the
                cache grows with each step.
        """
        require_built(self)
        return self.self_attention.init_cache(batch_size, max_length)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return output_spec_with_scores(self, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": saved_dtype(self),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "activation": keras.activations.serialize(self.activation),
            "norm_first": self.norm_first,
            "sliding_window": self.sliding_window,
            "epsilon": self.epsilon,
            "attention_bias": self.attention_bias,
            "feed_forward_bias": self.feed_forward_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "seed": self.seed,
            "normalization": self.normalization,
            "gated": self.gated,
            "num_key_value_heads": self.num_key_value_heads,
            "query_key_norm": self.query_key_norm,
            "relative_positions": serialize_relative_positions(self.relative_positions),
            "flash_attention": self.flash_attention,
        }
