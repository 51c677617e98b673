"""The section `model`, and the selection of layers and heads for attention pictures."""

import dataclasses
import re
from typing import Any, Literal, cast, get_args

from ..checks import (
    boolean,
    integer,
    one_of,
    positive_float,
    positive_int,
    rate,
    require,
    require_divisor,
    text,
)
from ..errors import ConfigError
from .layer_options import T5_BUCKETS, AddedPositions, Normalization, RelativePositions
from .values import REQUIRED, check_fields, checked, from_dict

# Limits the total size, so that a typo does not allocate terabytes.
MAX_PARAMETERS = 10_000_000_000
# The graph has operations for each layer. Building a thousand layers takes minutes.
MAX_LAYERS = 1000
# Graphs compute lengths and distances in int32, which larger values would overflow.
MAX_LENGTH = 1_000_000
# Keras activations that keep the width and need no arguments. With this list, a wrong name is
# reported before Keras is loaded.
ACTIVATIONS = {
    "celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish",
    "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6",
    "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus",
    "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh", "tanh_shrink",
}  # fmt: skip

PositionKind = Literal[AddedPositions, RelativePositions]
TiedEmbeddings = Literal["none", "target", "all"]
AttentionKind = Literal["cross", "encoder", "decoder"]


def _even_width(name: str, value: Any) -> Any:
    value = integer(name, value)
    require(value > 0 and value % 2 == 0, name, "positive and even", value)
    return value


def _activation(name: str, value: Any) -> Any:
    require(text(name, value) in ACTIVATIONS, name, "the name of a Keras activation", value)
    return value


def layer_choice(name: str, value: Any) -> Any:
    """Returns the value if it is a layer number as text, "all" or "last"."""
    is_valid = re.fullmatch("all|last|[1-9][0-9]{0,8}", text(name, value)) is not None
    require(is_valid, name, "a positive number, all or last", value)
    return value


def head_choice(name: str, value: Any) -> Any:
    """Returns the value if it is a head number as text, or "all"."""
    is_valid = re.fullmatch("all|[1-9][0-9]{0,8}", text(name, value)) is not None
    require(is_valid, name, "a positive number or all", value)
    return value


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Size and architecture of a Transformer, with the symbols of the paper's Table 3.

    Args:
        source_vocab_size: int. Size of the source vocabulary, including the padding id 0.
        target_vocab_size: int. Size of the target vocabulary, including the padding id 0.
        num_layers: int. N, the number of layers in the encoder and in the decoder, at most 1,000.
            Defaults to 6.
        num_encoder_layers: int or None. Number of encoder layers if it differs from `num_layers`,
            at most 1,000. A deep encoder with a shallow decoder translates faster. Defaults to
            `num_layers`.
        num_decoder_layers: int or None. Number of decoder layers if it differs from `num_layers`,
            at most 1,000. Defaults to `num_layers`.
        d_model: int. Width of the input and output of every layer, an even number. Defaults to 512.
        d_ff: int. Width of the feed-forward network's hidden layer. Defaults to 2048.
        num_heads: int. h, the number of attention heads. Defaults to 8.
        key_dim: int or None. d_k, the width of each head's queries and keys. Defaults to
            `d_model // num_heads`.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. P_drop, the dropout rate on the sums of embeddings and positions and on the
            output of each sublayer. Defaults to 0.1.
        attention_dropout: float. Dropout rate on the attention weights, 0 in the paper. 0.1 may
            help on small corpora. Defaults to 0.
        activation_dropout: float. Dropout rate inside the feed-forward network, 0 in the paper. 0.1
            may help on small corpora. Defaults to 0.
        activation: str. Name of the Keras activation inside the feed-forward network. It must not
            change the width. Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer (pre-norm) instead of after the
            residual sum (post-norm), as in the paper. Pre-norm makes training more reliable for
            deep models and short training runs. Defaults to False.
        positions: str. Position encoding. "sinusoidal" (section 3.5), "tensor2tensor" (the slightly
            different sinusoids in the authors' code and in Marian) and "learned" (Table 3, row E)
            are added to the embeddings. "rotary" (Su et al. 2021, arXiv 2104.09864), "alibi" (Press
            et al. 2022, arXiv 2108.12409) and "t5" (Raffel et al. 2020, arXiv 1910.10683) are
            applied by self-attention in every layer. Defaults to "sinusoidal".
        tie_embeddings: str. Weights to share (section 3.4): "none"; "target", the decoder's
            embedding and the output projection; or "all", which adds the encoder's embedding and
            requires the same vocabulary for both languages. Defaults to "all".
        epsilon: float. Small constant that normalization adds to the variance or to the mean
            square, at most 1. Defaults to 1e-6.
        attention_bias: bool. Whether the attention projections have biases. The paper does not use
            them. Defaults to False.
        logits_bias: bool. Whether the output projection has a bias. The paper does not use it.
            Defaults to False.
        sliding_window: int or None. Window size w of restricted self-attention, at most 1,000,000.
            Each position of the encoder and the decoder attends to itself and to the w - 1
            positions on either side. Section 4 of the paper calls these r = 2w - 1 positions a
            neighborhood. Attention to the source is never restricted. Use it for sequences of
            thousands of tokens. Defaults to None: no window.
        max_length: int. Maximum sequence length in tokens, from 2 to 1,000,000, including the end
            token. Defaults to 256.
        feed_forward_bias: bool. Whether the feed-forward networks have biases, as in the paper.
            Defaults to True.
        normalization: str. "layer" normalization or "rms", root mean square normalization (Zhang
            and Sennrich 2019, arXiv 1910.07467), which is cheaper. Defaults to "layer".
        gated: bool. Whether the feed-forward networks are gated linear units (Shazeer 2020, arXiv
            2002.05202): SwiGLU with the activation "silu", GEGLU with "gelu". They have 1.5 times
            the weights, or the same number if you reduce `d_ff` to two thirds. Defaults to False.
        num_key_value_heads: int or None. Number of key and value heads, a divisor of `num_heads`.
            Each key-value head is shared by `num_heads / num_key_value_heads` query heads (Ainslie
            et al. 2023, arXiv 2305.13245). Defaults to `num_heads`.
        query_key_norm: bool. Whether to normalize the queries and keys of each head by their root
            mean square, with learned scales (Henry et al. 2020, arXiv 2010.04245). This keeps
            attention stable at high learning rates. Defaults to False.

    A model may have at most 10,000,000,000 parameters.

    Raises:
        ConfigError: If a value is invalid.

    Example:
        >>> TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000).d_ff
        2048
    """

    source_vocab_size: int = checked(REQUIRED, positive_int)
    target_vocab_size: int = checked(REQUIRED, positive_int)
    num_layers: int = checked(6, positive_int, at_most=MAX_LAYERS)
    num_encoder_layers: int | None = checked(None, positive_int, at_most=MAX_LAYERS, optional=True)
    num_decoder_layers: int | None = checked(None, positive_int, at_most=MAX_LAYERS, optional=True)
    d_model: int = checked(512, _even_width)
    d_ff: int = checked(2048, positive_int)
    num_heads: int = checked(8, positive_int)
    key_dim: int | None = checked(None, positive_int, optional=True)
    value_dim: int | None = checked(None, positive_int, optional=True)
    dropout: float = checked(0.1, rate)
    attention_dropout: float = checked(0.0, rate)
    activation_dropout: float = checked(0.0, rate)
    activation: str = checked("relu", _activation)
    norm_first: bool = checked(False, boolean)
    positions: PositionKind = checked("sinusoidal", one_of, choices=get_args(PositionKind))
    tie_embeddings: TiedEmbeddings = checked("all", one_of, choices=get_args(TiedEmbeddings))
    # Catches 1e6 instead of 1e-6, which would make normalization return zeros.
    epsilon: float = checked(1e-6, positive_float, at_most=1)
    attention_bias: bool = checked(False, boolean)
    logits_bias: bool = checked(False, boolean)
    sliding_window: int | None = checked(None, positive_int, at_most=MAX_LENGTH, optional=True)
    max_length: int = checked(256, integer, at_least=2, at_most=MAX_LENGTH)
    feed_forward_bias: bool = checked(True, boolean)
    normalization: Normalization = checked("layer", one_of, choices=get_args(Normalization))
    gated: bool = checked(False, boolean)
    num_key_value_heads: int | None = checked(None, positive_int, optional=True)
    query_key_norm: bool = checked(False, boolean)

    def __post_init__(self) -> None:
        check_fields(self, "model")
        rule = f"a multiple of num_heads={self.num_heads} unless key_dim is given"
        is_divided = self.d_model % self.num_heads == 0
        require(self.key_dim is not None or is_divided, "model.d_model", rule, self.d_model)
        require_divisor(
            "model.num_key_value_heads", self.num_key_value_heads, num_heads=self.num_heads
        )
        is_valid = self.positions != "rotary" or self._key_dim % 2 == 0
        require(is_valid, "model.key_dim", "even if positions='rotary'", self._key_dim)
        source, target = self.source_vocab_size, self.target_vocab_size
        rule = f"'target' or 'none' if the vocabularies differ in size ({source} and {target})"
        is_valid = self.tie_embeddings != "all" or source == target
        require(is_valid, "model.tie_embeddings", rule, self.tie_embeddings)
        if self.num_parameters > MAX_PARAMETERS:
            raise ConfigError(
                f"the sizes in the section model must result in at most {MAX_PARAMETERS:,} "
                f"parameters; they result in {self.num_parameters:,}"
            )

    @property
    def depths(self) -> tuple[int, int]:
        """The number of encoder layers and the number of decoder layers."""
        return (
            self.num_encoder_layers or self.num_layers,
            self.num_decoder_layers or self.num_layers,
        )

    @property
    def added_positions(self) -> AddedPositions | None:
        """`positions` if they are added to the embeddings, otherwise None."""
        is_added = self.positions in get_args(AddedPositions)
        return cast(AddedPositions, self.positions) if is_added else None

    @property
    def relative_positions(self) -> RelativePositions | None:
        """`positions` if self-attention applies them, otherwise None."""
        is_relative = self.positions in get_args(RelativePositions)
        return cast(RelativePositions, self.positions) if is_relative else None

    @property
    def _key_dim(self) -> int:
        return self.key_dim or self.d_model // self.num_heads

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the model, computed before Keras is loaded.

        `build_transformer` raises an error if the model has another number of parameters.
        """
        encoder_layers, decoder_layers = self.depths
        key_value_heads, value_dim = (
            self.num_key_value_heads or self.num_heads,
            self.value_dim or self._key_dim,
        )
        projected = self.num_heads * self._key_dim + key_value_heads * (self._key_dim + value_dim)
        attention = self.d_model * (projected + self.num_heads * value_dim)
        attention += projected + self.d_model if self.attention_bias else 0
        attention += 2 * self._key_dim if self.query_key_norm else 0
        norm = self.d_model if self.normalization == "rms" else 2 * self.d_model
        hidden = 2 * self.d_ff if self.gated else self.d_ff
        feed_forward = self.d_model * (hidden + self.d_ff) + (
            hidden + self.d_model if self.feed_forward_bias else 0
        )
        position_bias = T5_BUCKETS * self.num_heads if self.positions == "t5" else 0
        encoder_layer = attention + position_bias + feed_forward + 2 * norm
        decoder_layer = encoder_layer + attention + norm
        layers = encoder_layers * encoder_layer + decoder_layers * decoder_layer
        final_norms = 2 * norm if self.norm_first else 0
        sizes = [self.target_vocab_size]
        if self.tie_embeddings != "all":
            sizes.append(self.source_vocab_size)
        positions = self.max_length if self.positions == "learned" else 0
        embeddings = sum(size + positions for size in sizes)
        projection = self.target_vocab_size if self.tie_embeddings == "none" else 0
        logits_bias = self.target_vocab_size if self.logits_bias else 0
        return layers + final_norms + (embeddings + projection) * self.d_model + logits_bias

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "TransformerConfig":
        """Returns the paper's "base" or "big" model or a "tiny" model, with `changes` applied."""
        one_of("model.preset", name, tuple(PRESETS))
        return from_dict(cls, {**PRESETS[name], **changes}, "model")


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3),
    "base": dict(num_layers=6, d_model=512, d_ff=2048, num_heads=8, dropout=0.1),
    "big": dict(num_layers=6, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}


@dataclasses.dataclass(frozen=True)
class AttentionView:
    """Selection of layers and heads, numbered from 1, for an attention picture.

    Args:
        kind: str. "cross", from the translation to the source; "encoder", from the source to
            itself; or "decoder", from the translation to its earlier tokens. Defaults to "cross".
        layer: str. Number of a layer, "all" or "last". Defaults to "last".
        head: str. Number of a head, or "all". Defaults to "all".

    Example:
        >>> config = TransformerConfig.preset("base", source_vocab_size=100, target_vocab_size=100)
        >>> view = AttentionView("encoder", layer="all", head="3")
        >>> view.layers(config), view.heads(config)
        ([0, 1, 2, 3, 4, 5], [2])
    """

    kind: AttentionKind = "cross"
    layer: str = "last"
    head: str = "all"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, get_args(AttentionKind))
        layer_choice("layer", self.layer)
        head_choice("head", self.head)

    def layers(self, config: TransformerConfig, name: str = "layer") -> list[int]:
        """Returns the indices of the layers to show, from 0.

        Raises:
            ConfigError: If the model has no such layer. Its message begins with `name`.
        """
        place, unit = (0, "encoder layers") if self.kind == "encoder" else (1, "decoder layers")
        number = config.depths[place]
        return [number - 1] if self.layer == "last" else _chosen(name, self.layer, number, unit)

    def heads(self, config: TransformerConfig, name: str = "head") -> list[int]:
        """Returns the indices of the heads to show, from 0.

        Raises:
            ConfigError: If the model has no such head. Its message begins with `name`.
        """
        return _chosen(name, self.head, config.num_heads, "attention heads")


def _chosen(name: str, choice: str, number: int, unit: str) -> list[int]:
    if choice == "all":
        return [*range(number)]
    rule = f"at most {number}, the number of {unit} in the model"
    require(int(choice) <= number, name, rule, choice)
    return [int(choice) - 1]
