"""The configuration: what `config.yaml` in a model directory holds, as five frozen dataclasses.

    model       TransformerConfig   sizes and variations of the network
    tokenizer   TokenizerConfig     how text becomes tokens
    decoding    DecodingConfig      how translations are searched
    training    TrainingConfig      how the model is trained
    data        DataConfig          which pairs of the text it is trained on, and how often

The annotation of a field is its rule (`rules.py`); rules about several fields are in `__post_init__`.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from ..errors import ConfigError
from .rules import (
    Count,
    EvenSize,
    NonNegative,
    OddSize,
    Positive,
    Rate,
    Rule,
    Size,
    at_least,
    at_most,
    check,
    check_fields,
    require,
    shown,
)

Precision = Literal["float32", "bfloat16"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]
PresetName = Literal["tiny", "base", "big"]
LearnedTokenizerKind = Literal["bpe", "unigram", "wordpiece"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "sentencepiece"]
Section = TypeVar("Section")

# Every number has an upper limit far above what makes sense, so that a mistyped one does not ask for terabytes. All
# sizes together may make so many parameters:
MAX_PARAMETERS = 10_000_000_000
VocabSize = Annotated[Size, at_most(1_000_000)]
Depth = Annotated[Size, at_most(1000)]
Width = Annotated[Size, at_most(100_000)]
Steps = Annotated[Size, at_most(1_000_000_000)]
BeamSize = Annotated[Size, at_most(1000)]
LengthPenalty = Annotated[NonNegative, at_most(5)]

# Those of Keras that keep the width and need no arguments.
ACTIVATIONS = {
    *("celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh"),
    *("leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus"),
    *("swish", "tanh", "tanh_shrink"),
}
Activation = Annotated[str, Rule("the name of a Keras activation", ACTIVATIONS.__contains__)]


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The sizes and variations of a Transformer, named by the letters of the paper's Table 3.

    Args:
        source_vocab_size: int. Tokens in the source vocabulary, including the padding id 0; at most 1,000,000.
        target_vocab_size: int. Tokens in the target vocabulary, including the padding id 0; at most 1,000,000.
        num_layers: int. N, the number of layers in the encoder, and in the decoder; at most 1,000. Defaults to 6.
        num_encoder_layers: int or None. The number in the encoder, if it is another one; at most 1,000. A deep encoder
            with a shallow decoder translates faster. Defaults to `num_layers`.
        num_decoder_layers: int or None. The number in the decoder, if it is another one; at most 1,000. Defaults to
            `num_layers`.
        d_model: int. Width of every layer's input and output; even, at most 100,000. Defaults to 512.
        d_ff: int. Width inside the feed-forward networks; at most 1,000,000. Defaults to 2048.
        num_heads: int. h, the number of attention heads; at most 1,000. Defaults to 8.
        key_dim: int or None. d_k, the width of each head's queries and keys; at most 100,000. Defaults to
            `d_model // num_heads`.
        value_dim: int or None. d_v, the width of each head's values; at most 100,000. Defaults to `key_dim`.
        dropout: float. P_drop, applied to the sums of embeddings and positions and to each sublayer's output.
            Defaults to 0.1.
        attention_dropout: float. Dropout on the attention weights, 0 in the paper. Small corpora may gain from
            0.1. Defaults to 0.
        activation_dropout: float. Dropout inside the feed-forward network, 0 in the paper. Small corpora may gain
            from 0.1. Defaults to 0.
        activation: str. Name of the Keras activation inside the feed-forward network, one that keeps the width.
            Defaults to "relu".
        norm_first: bool. Whether to normalize before each sublayer (pre-norm) instead of after the residual sum as
            in the paper. Deep or briefly trained models learn more reliably with it. Defaults to False.
        positions: "sinusoidal" (section 3.5), "tensor2tensor", the slightly different sinusoids of the authors' program
            and of Marian, or "learned" (Table 3, row E). Defaults to "sinusoidal".
        tie_embeddings: str. Which weights are shared (section 3.4): "none"; "target", the decoder's embedding and
            the output projection; or "all", the encoder's embedding too, which needs one vocabulary for both
            languages. Defaults to "all".
        epsilon: float. Added to the variance in layer normalization; at most 1. Defaults to 1e-6.
        attention_bias: bool. Whether the projections of attention add a bias; those of the paper do not. Defaults to
            False.
        logits_bias: bool. Whether the output projection adds a bias; the paper's does not. Defaults to False.
        neighborhood: int or None. r of restricted self-attention (section 4): each position attends to the r
            positions centred on itself, in the encoder and in the decoder; odd, at most 1,000,000. Attention to the
            source is never restricted. For sequences of thousands of tokens. Defaults to None: all positions.
        max_length: int. Length of the longest sequence in tokens, including its end token; 2 to 1,000,000. Defaults
            to 256.

    All sizes together may make at most 10,000,000,000 parameters.

    Raises:
        ConfigError: A value breaks its rule.

    Example:
        >>> TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000).d_ff
        2048
    """

    source_vocab_size: VocabSize
    target_vocab_size: VocabSize
    num_layers: Depth = 6
    num_encoder_layers: Depth | None = None
    num_decoder_layers: Depth | None = None
    d_model: Annotated[EvenSize, at_most(100_000)] = 512
    d_ff: Annotated[Size, at_most(1_000_000)] = 2048
    num_heads: Annotated[Size, at_most(1000)] = 8
    key_dim: Width | None = None
    value_dim: Width | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: Activation = "relu"
    norm_first: bool = False
    positions: Literal["sinusoidal", "tensor2tensor", "learned"] = "sinusoidal"
    tie_embeddings: Literal["none", "target", "all"] = "all"
    epsilon: Annotated[Positive, at_most(1)] = 1e-6
    attention_bias: bool = False
    logits_bias: bool = False
    neighborhood: Annotated[OddSize, at_most(1_000_000)] | None = None
    max_length: Annotated[int, at_least(2), at_most(1_000_000)] = 256

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
        if self.num_parameters > MAX_PARAMETERS:
            raise ConfigError(
                f"the sizes in the section model must make at most {MAX_PARAMETERS:,} parameters; "
                f"they make {self.num_parameters:,}"
            )

    @property
    def depths(self) -> tuple[int, int]:
        """The numbers of layers in the encoder and in the decoder."""
        return self.num_encoder_layers or self.num_layers, self.num_decoder_layers or self.num_layers

    @property
    def num_parameters(self) -> int:
        """How many numbers the model learns."""
        key_dim = self.key_dim or self.d_model // self.num_heads
        heads_width = self.num_heads * (key_dim + (self.value_dim or key_dim))
        attention = 2 * self.d_model * heads_width
        if self.attention_bias:
            attention += heads_width + self.num_heads * key_dim + self.d_model
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        norm = 2 * self.d_model
        encoder_layers, decoder_layers = self.depths
        encoder = encoder_layers * (attention + feed_forward + 2 * norm)
        decoder = decoder_layers * (2 * attention + feed_forward + 3 * norm)
        final_norms = 2 * norm if self.norm_first else 0
        sizes = [self.target_vocab_size]
        if self.tie_embeddings != "all":
            sizes.append(self.source_vocab_size)
        positions = self.max_length if self.positions == "learned" else 0
        embeddings = sum(size + positions for size in sizes)
        projection = self.target_vocab_size if self.tie_embeddings == "none" else 0
        logits_bias = self.target_vocab_size if self.logits_bias else 0
        return encoder + decoder + final_norms + (embeddings + projection) * self.d_model + logits_bias

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
        kind: "bpe" or "unigram" (SentencePiece), or "wordpiece", which are learned from the training text; or
            "sentencepiece", a SentencePiece model that came with an imported model. Defaults to "bpe".
        vocab_size: int. Number of tokens, including the four special ones; 5 to 1,000,000. Defaults to 8000.
        shared: bool. Whether both languages share one vocabulary, as in the paper. Otherwise each has its own, of
            `vocab_size` tokens, and `model.tie_embeddings` must be "target" or "none". Defaults to True.

    Raises:
        ConfigError: A value breaks its rule.
    """

    kind: TokenizerKind = "bpe"
    vocab_size: Annotated[int, at_least(5), at_most(1_000_000)] = 8000
    shared: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched (section 6.1 of the paper).

    Args:
        beam_size: int. Hypotheses kept at each step, at most 1,000; 1 is greedy search. Defaults to 4.
        length_penalty: float. α in `log P / ((5 + length) / 6) ** α`, at most 5: the higher, the longer the
            translations. Defaults to 0.6.
        max_extra_tokens: int. A translation has at most this many tokens more than its source; at most
            1,000,000. Defaults to 50.
        forbidden_tokens: str. What a translation never holds: "none"; "special", the padding and start tokens; or
            "unknown", the unknown token too. Defaults to "none".

    Raises:
        ConfigError: A value breaks its rule.
    """

    beam_size: BeamSize = 4
    length_penalty: LengthPenalty = 0.6
    max_extra_tokens: Annotated[Count, at_most(1_000_000)] = 50
    forbidden_tokens: Literal["none", "special", "unknown"] = "none"

    def __post_init__(self) -> None:
        check_fields(self, "decoding")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained (section 5 of the paper).

    Args:
        steps: int. Number of updates; at most 1,000,000,000. Defaults to 100,000.
        tokens_per_batch: int. At most this many source positions, and as many target positions, in a batch, on all
            devices together; at most 10,000,000. Defaults to 25,000.
        num_buckets: int. At most this many different batch shapes; more shapes mean less padding. At most 1,000.
            Defaults to 12.
        warmup_steps: int. Updates until the learning rate peaks; at most 1,000,000,000. Defaults to 4000.
        peak_learning_rate: float or None. The peak; at most 1,000,000. Defaults to the paper's,
            `(d_model * warmup_steps) ** -0.5`.
        decay: "inverse_sqrt", the paper's decay after the peak; "cosine", which reaches 0 at the last step and gets
            more out of short trainings; or "constant", which stays at the peak, to fine-tune. Defaults to
            "inverse_sqrt".
        label_smoothing: float. ε_ls (section 5.4). Defaults to 0.1.
        subword_dropout: float. BPE-dropout (Provilkov et al. 2020): rate at which merges are skipped in the
            training text, so that a sentence is seen in several segmentations. For tokenizers of kind "bpe" and
            small corpora. Defaults to 0.
        subword_samples: int. Segmentations of each sentence if `subword_dropout` is not 0; at most 1,000. Defaults
            to 16.
        consistency: float. α of R-Drop (Liang et al. 2021): each batch passes through the model twice with
            different dropout, and the two predictions are drawn towards each other. At most 1,000; costs twice
            the time, for small corpora. Defaults to 0: one pass, as in the paper.
        clip_norm: float or None. Largest norm of the gradient; at most 1,000,000. For trainings that diverge.
            Defaults to None.
        accumulate_steps: int. Number of parts in which a device computes its share of a batch, one after another,
            so that a batch may exceed its memory; the result is the same. At most 1,000. Defaults to 1.
        freeze: str. Which weights are not trained: "none"; "embeddings", also where the output projection shares them;
            "encoder", its layers; or "both". To fine-tune on little text. Defaults to "none".
        precision: "float32", "bfloat16" or "float16" (both mixed: weights stay in float32), or "auto": what the device
            multiplies fastest; float16 only on GPUs that do not have bfloat16. In float16, gradients are scaled to its
            small range. A step in which one still overflows is skipped: it counts, but changes no weights. Defaults
            to "auto".
        validate_every: int. Updates between validations, each of which saves a checkpoint; at most 1,000,000,000.
            Defaults to 1000.
        validate_by: "perplexity", or "bleu", which translates the validation text by greedy search: what makes one
            checkpoint better than another. Defaults to "perplexity".
        ema: float. Decay of an exponential moving average of the weights, which is what is validated, ranked, and
            saved to translate with. It covers about the last `1 / (1 - ema)` updates, but at most about a tenth of
            all: 0.99 suits thousands of updates, 0.999 tens of thousands. It gains most while the learning rate is
            high, and little once it has decayed to 0. Defaults to 0: no average.
        patience: int or None. Training stops after this many validations without a new best; at most 1,000,000.
            Defaults to None: never.
        keep_checkpoints: int. How many of the last checkpoints are kept; at most 1,000. Defaults to 5.
        average_last: int. How many of the last checkpoints are averaged when training ends; at most
            `keep_checkpoints`. Defaults to 5.
        average_best: int. How many of the best checkpoints are kept, and averaged instead of the last; at most
            1,000. Defaults to 0.
        seed: int. Seed of the initial weights, of the order of the text and of dropout; at most 4,294,967,295.
            Defaults to 1.

    Raises:
        ConfigError: A value breaks its rule.
    """

    steps: Steps = 100_000
    tokens_per_batch: Annotated[Size, at_most(10_000_000)] = 25_000
    num_buckets: Annotated[Size, at_most(1000)] = 12
    warmup_steps: Steps = 4000
    peak_learning_rate: Annotated[Positive, at_most(1_000_000)] | None = None
    decay: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    label_smoothing: Rate = 0.1
    subword_dropout: Rate = 0.0
    subword_samples: Annotated[Size, at_most(1000)] = 16
    consistency: Annotated[NonNegative, at_most(1000)] = 0.0
    clip_norm: Annotated[Positive, at_most(1_000_000)] | None = None
    accumulate_steps: Annotated[Size, at_most(1000)] = 1
    freeze: Literal["none", "embeddings", "encoder", "both"] = "none"
    precision: TrainingPrecision = "auto"
    validate_every: Steps = 1000
    validate_by: Literal["perplexity", "bleu"] = "perplexity"
    ema: Rate = 0.0
    patience: Annotated[Size, at_most(1_000_000)] | None = None
    keep_checkpoints: Annotated[Size, at_most(1000)] = 5
    average_last: Annotated[Count, at_most(1000)] = 5
    average_best: Annotated[Count, at_most(1000)] = 0
    seed: Annotated[Count, at_most(2**32 - 1)] = 1

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


def _is_script(value: str) -> bool:
    """Whether `regex` knows all names of a list with commas as values of Unicode's property Script."""
    import regex

    try:
        # Letters alone: a name is put into a pattern.
        return all(name.isalpha() and regex.compile(rf"\p{{scx={name}}}") for name in scripts_of(value))
    except regex.error:
        return False


def scripts_of(value: str) -> list[str]:
    """Returns the names in a list with commas, such as "Han, Hiragana, Katakana"."""
    return [name.strip().replace("_", "") for name in value.split(",")]


def _are_weights(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_weight, value))


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1000


Weights = Annotated[list[float], Rule("a list of numbers, each above 0 and at most 1,000", _are_weights)]
Script = Annotated[str, Rule("the name of a Unicode script, such as Latin, or several with commas", _is_script)]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which pairs of the given text a model is trained on, and how often.

    A pair is left out by the first of the filters that matches it, in the order of this list. Lengths are in
    characters: Chinese, Japanese or Thai text has no spaces between words. Nothing is left out by default, except pairs
    of which a side has no tokens or more than the model takes.

    Args:
        weights: list of float or None. For each corpus, how often its pairs pass in an epoch: 2 is twice, 0.5 is a half
            of them, chosen at random but always the same way; each above 0 and at most 1,000. Defaults to None: once.
        min_characters: int or None. Leaves out pairs with a side that is shorter; at most 1,000,000. Defaults to None.
        max_characters: int or None. Leaves out pairs with a side that is longer; at most 1,000,000. Defaults to None.
        max_length_ratio: float or None. Leaves out pairs whose longer side has more than this many times the characters
            of the shorter; 1 to 1,000. Defaults to None.
        source_script: str or None. The Unicode script of the source language, such as "Latin", or several with commas,
            such as "Han, Hiragana, Katakana". Leaves out pairs of which too few letters are of it. Defaults to None.
        target_script: str or None. The same for the target. Defaults to None.
        min_script_share: float. The least share of letters in the script; above 0 and at most 1. A side without
            letters passes. Defaults to 0.5.
        remove_copies: bool. Leaves out pairs whose target is their source. Defaults to False.
        remove_duplicates: bool. Leaves out pairs that came before, with the same source and the same target. Takes 8
            bytes of memory for each pair, and at moments twice as much. Defaults to False.

    Raises:
        ConfigError: A value breaks its rule.
    """

    weights: Weights | None = None
    min_characters: Annotated[Size, at_most(1_000_000)] | None = None
    max_characters: Annotated[Size, at_most(1_000_000)] | None = None
    max_length_ratio: Annotated[float, at_least(1), at_most(1000)] | None = None
    source_script: Script | None = None
    target_script: Script | None = None
    min_script_share: Annotated[float, Rule("above 0 and at most 1", lambda value: 0 < value <= 1)] = 0.5
    remove_copies: bool = False
    remove_duplicates: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "data")
        if self.min_characters is not None and self.max_characters is not None:
            require(
                self.min_characters <= self.max_characters,
                "data.min_characters",
                f"at most max_characters={self.max_characters}",
                self.min_characters,
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """All five sections.

    Args:
        model: TransformerConfig.
        tokenizer: TokenizerConfig.
        decoding: DecodingConfig.
        training: TrainingConfig.
        data: DataConfig.

    Raises:
        ConfigError: Values of different sections do not fit each other.
    """

    model: TransformerConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    decoding: DecodingConfig = DecodingConfig()
    training: TrainingConfig = TrainingConfig()
    data: DataConfig = DataConfig()

    def __post_init__(self) -> None:
        require(
            not self.training.subword_dropout or self.tokenizer.kind == "bpe",
            "training.subword_dropout",
            f"0 if tokenizer.kind={self.tokenizer.kind}",
            self.training.subword_dropout,
        )
        require(
            # Two imported SentencePiece models may have one vocabulary.
            self.tokenizer.shared or self.model.tie_embeddings != "all" or self.tokenizer.kind == "sentencepiece",
            "model.tie_embeddings",
            "'target' or 'none' if tokenizer.shared=False",
            self.model.tie_embeddings,
        )

    @classmethod
    def from_sections(cls, sections: Mapping[str, Any]) -> "Config":
        """Makes a configuration from mappings, as YAML gives them; an empty or missing section has its defaults.

        Raises:
            ConfigError: A section or key is unknown, or a value breaks its rule.
        """
        check_keys(sections, SECTIONS)
        values = {name: from_dict(section, section_of(sections, name), name) for name, section in SECTIONS.items()}
        return cls(**values)

    def with_vocab_sizes(self, source: int, target: int) -> "Config":
        """Returns a copy whose model has the vocabularies that were actually learned."""
        model = dataclasses.replace(self.model, source_vocab_size=source, target_vocab_size=target)
        return dataclasses.replace(self, model=model)


SECTIONS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}


def section_of(sections: Mapping[str, Any], name: str) -> Any:
    """Returns a section as YAML gives it; an empty or missing one, which YAML gives as None, has no keys."""
    values = sections.get(name)
    return {} if values is None else values


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
        received = f"{section}={shown(values)}" if section else shown(values)
        raise ConfigError(f"{section or 'the configuration'} must be a mapping; received {received}")
    for key in values:
        if key not in known:
            name = key if isinstance(key, str) else shown(key)
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
            raise ConfigError(f"unknown configuration key {shown(f'{section}.{name}' if section else name)}; {hint}")
