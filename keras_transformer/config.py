"""The configuration: what `config.yaml` in a model directory holds, as four frozen dataclasses.

    model       TransformerConfig   sizes and variations of the network
    tokenizer   TokenizerConfig     how text becomes tokens
    decoding    DecodingConfig      how translations are searched
    training    TrainingConfig      how the model is trained

The annotation of a field is its rule (`rules.py`); rules about several fields are in `__post_init__`.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from .rules import (
    ConfigError,
    Count,
    EvenSize,
    NonNegative,
    OddSize,
    Positive,
    Rate,
    Size,
    at_least,
    check,
    check_fields,
    require,
)

Precision = Literal["float32", "bfloat16"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16"]
PresetName = Literal["tiny", "base", "big"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece"]
Section = TypeVar("Section")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The sizes and variations of a Transformer, named by the letters of the paper's Table 3.

    Args:
        source_vocab_size: int. Tokens in the source vocabulary, including the padding id 0.
        target_vocab_size: int. Tokens in the target vocabulary, including the padding id 0.
        num_layers: int. N, the number of layers in the encoder, and in the decoder. Defaults to 6.
        d_model: int. Width of every layer's input and output; even. Defaults to 512.
        d_ff: int. Width inside the feed-forward networks. Defaults to 2048.
        num_heads: int. h, the number of attention heads. Defaults to 8.
        key_dim: int or None. d_k, the width of each head's queries and keys. Defaults to `d_model // num_heads`.
        value_dim: int or None. d_v, the width of each head's values. Defaults to `key_dim`.
        dropout: float. P_drop, applied to the sums of embeddings and positions and to each sublayer's output.
            Defaults to 0.1.
        attention_dropout: float. Dropout on the attention weights, 0 in the paper. Small corpora may gain from
            0.1. Defaults to 0.
        activation_dropout: float. Dropout inside the feed-forward network, 0 in the paper. Small corpora may gain
            from 0.1. Defaults to 0.
        activation: str. Keras activation inside the feed-forward network. Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer (pre-norm) instead of after the residual sum as
            in the paper. Deep or briefly trained models learn more reliably with it. Defaults to False.
        positions: "sinusoidal" (section 3.5) or "learned" (Table 3, row E). Defaults to "sinusoidal".
        tie_embeddings: str. Which weights are shared (section 3.4): "none"; "target", the decoder's embedding and
            the output projection; or "all", the encoder's embedding too, which needs one vocabulary for both
            languages. Defaults to "all".
        neighborhood: int or None. r of restricted self-attention (section 4): each position attends to the r
            positions centred on itself, in the encoder and in the decoder; odd. Attention to the source is never
            restricted. For sequences of thousands of tokens. Defaults to None: all positions.
        max_length: int. Length of the longest sequence in tokens, including its end token. Defaults to 256.

    Raises:
        ConfigError: A value breaks its rule.

    Example:
        >>> TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000).d_ff
        2048
    """

    source_vocab_size: Size
    target_vocab_size: Size
    num_layers: Size = 6
    d_model: EvenSize = 512
    d_ff: Size = 2048
    num_heads: Size = 8
    key_dim: Size | None = None
    value_dim: Size | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: str = "relu"
    norm_first: bool = False
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    tie_embeddings: Literal["none", "target", "all"] = "all"
    neighborhood: OddSize | None = None
    max_length: Annotated[int, at_least(2)] = 256

    def __post_init__(self) -> None:
        check_fields(self, "model")
        require(
            self.key_dim is not None or self.d_model % self.num_heads == 0,
            "model.d_model",
            f"a multiple of num_heads={self.num_heads} unless key_dim is given",
            self.d_model,
        )
        require(
            self.tie_embeddings != "all" or self.source_vocab_size == self.target_vocab_size,
            "model.tie_embeddings",
            "'target' or 'none' if the vocabularies differ in size "
            f"({self.source_vocab_size} and {self.target_vocab_size})",
            self.tie_embeddings,
        )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "TransformerConfig":
        """Returns the paper's "base" or "big" model, or a "tiny" one, with `changes` applied."""
        check("model.preset", name, PresetName)
        return from_dict(cls, {**PRESETS[name], **changes}, "model")


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3),
    "base": dict(num_layers=6, d_model=512, d_ff=2048, num_heads=8, dropout=0.1),
    "big": dict(num_layers=6, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3),
}


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes tokens.

    Args:
        kind: "bpe" or "unigram" (SentencePiece), or "wordpiece". Defaults to "bpe".
        vocab_size: int. Number of tokens, including the four special ones. Defaults to 8000.

    Raises:
        ConfigError: A value breaks its rule.
    """

    kind: TokenizerKind = "bpe"
    vocab_size: Annotated[int, at_least(5)] = 8000

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched (section 6.1 of the paper).

    Args:
        beam_size: int. Hypotheses kept at each step; 1 is greedy search. Defaults to 4.
        length_penalty: float. α in `log P / ((5 + length) / 6) ** α`: the higher, the longer the translations.
            Defaults to 0.6.
        max_extra_tokens: int. A translation has at most this many tokens more than its source. Defaults to 50.

    Raises:
        ConfigError: A value breaks its rule.
    """

    beam_size: Size = 4
    length_penalty: NonNegative = 0.6
    max_extra_tokens: Count = 50

    def __post_init__(self) -> None:
        check_fields(self, "decoding")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained (section 5 of the paper).

    Args:
        steps: int. Number of updates. Defaults to 100,000.
        tokens_per_batch: int. At most this many source positions, and as many target positions, in a batch, on all
            devices together. Defaults to 25,000.
        num_buckets: int. At most this many different batch shapes; more shapes mean less padding. Defaults to 12.
        warmup_steps: int. Updates until the learning rate peaks. Defaults to 4000.
        peak_learning_rate: float or None. The peak. Defaults to the paper's, `(d_model * warmup_steps) ** -0.5`.
        decay: "inverse_sqrt", the paper's decay after the peak, or "cosine", which reaches 0 at the last step and
            gets more out of short trainings. Defaults to "inverse_sqrt".
        label_smoothing: float. ε_ls (section 5.4). Defaults to 0.1.
        subword_dropout: float. BPE-dropout (Provilkov et al. 2020): rate at which merges are skipped in the
            training text, so that a sentence is seen in several segmentations. For tokenizers of kind "bpe" and
            small corpora. Defaults to 0.
        subword_samples: int. Segmentations of each sentence if `subword_dropout` is not 0. Defaults to 16.
        consistency: float. α of R-Drop (Liang et al. 2021): each batch passes through the model twice with
            different dropout, and the two predictions are drawn towards each other. Costs twice the time, for
            small corpora. Defaults to 0: one pass, as in the paper.
        clip_norm: float or None. Largest norm of the gradient. For trainings that diverge. Defaults to None.
        accumulate_steps: int. Number of parts in which a device computes its share of a batch, one after another,
            so that a batch may exceed its memory; the result is the same. Defaults to 1.
        precision: "float32", "bfloat16" (mixed: weights stay in float32), or "auto": bfloat16 where the device
            multiplies it faster, else float32. Defaults to "auto".
        validate_every: int. Updates between validations, each of which saves a checkpoint. Defaults to 1000.
        validate_by: "perplexity", or "bleu", which translates the validation text by greedy search: what makes one
            checkpoint better than another. Defaults to "perplexity".
        patience: int or None. Training stops after this many validations without a new best. Defaults to None:
            never.
        keep_checkpoints: int. How many of the last checkpoints are kept. Defaults to 5.
        average_last: int. How many of the last checkpoints are averaged when training ends. Defaults to 5.
        average_best: int. How many of the best checkpoints are kept, and averaged instead of the last. Defaults
            to 0.
        seed: int. Seed of the initial weights, of the order of the text and of dropout. Defaults to 1.

    Raises:
        ConfigError: A value breaks its rule.
    """

    steps: Size = 100_000
    tokens_per_batch: Size = 25_000
    num_buckets: Size = 12
    warmup_steps: Size = 4000
    peak_learning_rate: Positive | None = None
    decay: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    label_smoothing: Rate = 0.1
    subword_dropout: Rate = 0.0
    subword_samples: Size = 16
    consistency: NonNegative = 0.0
    clip_norm: Positive | None = None
    accumulate_steps: Size = 1
    precision: PrecisionOrAuto = "auto"
    validate_every: Size = 1000
    validate_by: Literal["perplexity", "bleu"] = "perplexity"
    patience: Size | None = None
    keep_checkpoints: Size = 5
    average_last: Count = 5
    average_best: Count = 0
    seed: Count = 1

    def __post_init__(self) -> None:
        check_fields(self, "training")
        require(
            not (self.average_last and self.average_best),
            "training.average_last",
            f"0 if average_best={self.average_best}",
            self.average_last,
        )
        require(
            self.average_last <= self.keep_checkpoints,
            "training.average_last",
            f"at most keep_checkpoints={self.keep_checkpoints}",
            self.average_last,
        )


@dataclasses.dataclass(frozen=True)
class Config:
    """All four sections.

    Args:
        model: TransformerConfig.
        tokenizer: TokenizerConfig.
        decoding: DecodingConfig.
        training: TrainingConfig.

    Raises:
        ConfigError: Values of different sections do not fit each other.
    """

    model: TransformerConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    decoding: DecodingConfig = DecodingConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        require(
            not self.training.subword_dropout or self.tokenizer.kind == "bpe",
            "training.subword_dropout",
            f"0 if tokenizer.kind={self.tokenizer.kind}",
            self.training.subword_dropout,
        )

    @classmethod
    def from_sections(cls, sections: Mapping[str, Any]) -> "Config":
        """Makes a configuration from mappings, as YAML gives them; an empty or missing section has its defaults.

        Raises:
            ConfigError: A section or key is unknown, or a value breaks its rule.
        """
        check_keys(sections, SECTIONS)
        values = {name: from_dict(section, sections.get(name) or {}, name) for name, section in SECTIONS.items()}
        return cls(**values)

    def with_vocab_size(self, vocab_size: int) -> "Config":
        """Returns a copy whose model has the vocabulary that was actually learned, on both sides."""
        model = dataclasses.replace(self.model, source_vocab_size=vocab_size, target_vocab_size=vocab_size)
        return dataclasses.replace(self, model=model)


SECTIONS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}


def from_dict(cls: type[Section], values: Any, section: str) -> Section:
    """Makes a configuration section from a mapping.

    Args:
        cls: type. The section's dataclass.
        values: Mapping from field names to values.
        section: str. What error messages call the section.

    Raises:
        ConfigError: A key is unknown (the message suggests the nearest) or missing, or a value breaks its rule.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    check_keys(values, [field.name for field in fields], section)
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in values:
            raise ConfigError(f"{section}.{field.name} is required")
    return cls(**values)


def check_keys(values: Any, known: Iterable[str], section: str | None = None) -> None:
    """Raises a ConfigError unless `values` is a mapping whose keys are all known."""
    known = list(known)
    if not isinstance(values, Mapping):
        name = section or "the configuration"
        raise ConfigError(f"{name} must be a mapping; received {name}={values!r}")
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
            raise ConfigError(f"unknown configuration key {f'{section}.{key}' if section else key!r}; {hint}")
