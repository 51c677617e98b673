"""What a translator is made of, as frozen dataclasses; a key that does not exist is an error."""

import dataclasses
import difflib
import typing

# What products are computed in.
PRECISIONS = ("float32", "bfloat16")


class ConfigError(ValueError):
    """A configuration value that breaks a rule; the message names key, rule and value."""


def require(condition, key, rule, value):
    """Raises ConfigError with the key, the rule and the value where the condition does not hold."""
    if not condition:
        raise ConfigError(f"{key} must be {rule}; received {value!r}")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The sizes and variations of a Transformer, in the letters of the paper's Table 3.

    Args:
        source_vocab_size, target_vocab_size: tokens in each vocabulary, the padding id 0 included.
        num_layers: N, layers in the encoder and as many in the decoder.
        d_model: width of every layer's input and output.
        d_ff: width inside the feed-forward networks.
        num_heads: h, attention heads.
        key_dim: d_k, width of each head's queries and keys; `d_model // num_heads` if None.
        value_dim: d_v, width of each head's values; `key_dim` if None.
        dropout: P_drop, on the sums of embeddings and positions and on each sublayer's output.
        attention_dropout: dropout on the attention weights; the paper has none.
        activation_dropout: dropout inside the feed-forward network; the paper has none.
        activation: name of a Keras activation between the two products of the feed-forward network.
        norm_first: False normalises after the residual sum, as in the paper; True before each sublayer.
        positions: "sinusoidal" (section 3.5) or "learned" (Table 3, row E).
        tie_embeddings: "none"; "target", one table for the decoder's input and the output
            projection; or "all", one table also for the encoder's input (section 3.4), which
            needs one vocabulary for both languages.
        neighborhood: r of restricted self-attention (section 4), odd: how many positions each attends to, centred on
            itself, in the encoder and in the decoder; None for all. The attention to the source is never restricted.
        max_length: longest sequence in tokens, its end token included.

    Raises:
        ConfigError: a value breaks its rule.

    Example:
        >>> TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000).d_ff
        2048
    """

    source_vocab_size: int
    target_vocab_size: int
    num_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    norm_first: bool = False
    positions: str = "sinusoidal"
    tie_embeddings: str = "all"
    neighborhood: int | None = None
    max_length: int = 256

    def __post_init__(self):
        check_types(self, "model")
        for key in ("source_vocab_size", "target_vocab_size", "num_layers", "d_model", "d_ff"):
            require(getattr(self, key) > 0, f"model.{key}", "positive", getattr(self, key))
        require(self.num_heads > 0, "model.num_heads", "positive", self.num_heads)
        require(self.max_length > 1, "model.max_length", "at least 2", self.max_length)
        require(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)
        if self.key_dim is None:
            require(
                self.d_model % self.num_heads == 0,
                "model.d_model",
                f"a multiple of num_heads={self.num_heads} where key_dim is not given",
                self.d_model,
            )
        for key in ("key_dim", "value_dim"):
            value = getattr(self, key)
            require(value is None or value > 0, f"model.{key}", "positive", value)
        for key in ("dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, key)
            require(0 <= value < 1, f"model.{key}", "at least 0 and below 1", value)
        require(
            self.neighborhood is None or (self.neighborhood > 0 and self.neighborhood % 2 == 1),
            "model.neighborhood",
            "positive and odd",
            self.neighborhood,
        )
        require_one_of("model.positions", self.positions, ("sinusoidal", "learned"))
        require_one_of("model.tie_embeddings", self.tie_embeddings, ("none", "target", "all"))
        require(
            self.tie_embeddings != "all" or self.source_vocab_size == self.target_vocab_size,
            "model.tie_embeddings",
            "'target' or 'none' where the vocabularies differ in size "
            f"({self.source_vocab_size} and {self.target_vocab_size})",
            self.tie_embeddings,
        )

    @classmethod
    def preset(cls, name, **changes):
        """The paper's `base` and `big`, or `tiny`, with `changes` on top."""
        require_one_of("model.preset", name, tuple(PRESETS))
        return from_dict(cls, {**PRESETS[name], **changes}, "model")


PRESETS = {
    "tiny": dict(num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3),
    "base": dict(num_layers=6, d_model=512, d_ff=2048, num_heads=8, dropout=0.1),
    "big": dict(num_layers=6, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes tokens.

    Args:
        kind: "bpe" or "unigram" (SentencePiece), or "wordpiece".
        vocab_size: tokens wanted, special tokens included.
    """

    kind: str = "bpe"
    vocab_size: int = 8000

    def __post_init__(self):
        check_types(self, "tokenizer")
        require_one_of("tokenizer.kind", self.kind, ("bpe", "unigram", "wordpiece"))
        require(self.vocab_size > 4, "tokenizer.vocab_size", "above 4", self.vocab_size)


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched (section 6.1 of the paper).

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search.
        length_penalty: alpha in `log P / ((5 + length) / 6) ** alpha`.
        max_extra_tokens: a translation ends at the latest this many tokens after its source's length.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    max_extra_tokens: int = 50

    def __post_init__(self):
        check_types(self, "decoding")
        require(self.beam_size > 0, "decoding.beam_size", "positive", self.beam_size)
        require(self.length_penalty >= 0, "decoding.length_penalty", "at least 0", self.length_penalty)
        require(
            self.max_extra_tokens >= 0, "decoding.max_extra_tokens", "at least 0", self.max_extra_tokens
        )


def from_dict(cls, values, section):
    """An instance of the dataclass `cls` from a mapping; unknown keys are an error that names the nearest."""
    names = [field.name for field in dataclasses.fields(cls)]
    check_keys(values, names, section)
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    if missing:
        raise ConfigError(f"{section}.{missing[0]} is required and was not given")
    return cls(**values)


def check_keys(values, known, section=None):
    """Raises ConfigError for the first key of `values` that is not `known`."""
    if not isinstance(values, dict):
        raise ConfigError(f"{section or 'the configuration'} must be a mapping; received {values!r}")
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
            where = f"{section}.{key}" if section else key
            raise ConfigError(f"unknown configuration key {where!r}; {hint}")


def check_types(config, section):
    """Raises ConfigError for a field whose value is not of its type; whole numbers pass for float."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        expected = typing.get_args(field.type) or (field.type,)
        if float in expected and type(value) is int:
            object.__setattr__(config, field.name, float(value))
        elif type(value) not in expected:
            names = " or ".join("null" if t is type(None) else t.__name__ for t in expected)
            raise ConfigError(f"{section}.{field.name} must be of type {names}; received {value!r}")


def require_one_of(key, value, choices):
    """`require` for a value that must be one of several."""
    require(value in choices, key, "one of " + ", ".join(choices), value)
