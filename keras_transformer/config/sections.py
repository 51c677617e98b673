"""The configuration in `config.yaml` of a model directory, as five frozen dataclasses.

    model       TransformerConfig   size and architecture of the network
    tokenizer   TokenizerConfig     tokenizer settings
    decoding    DecodingConfig      translation settings
    training    TrainingConfig      training settings
    data        DataConfig          selection, weights and augmentation of the training text

`TransformerConfig` is in model.py. Each field has a default and a check, usually from
`keras_transformer/checks.py`. `__post_init__` checks rules that involve several fields.
"""

import dataclasses
import functools
import re
from typing import Any, Literal, cast, get_args

from ..checks import (
    boolean,
    finite_number,
    fraction,
    integer,
    list_of,
    non_negative_float,
    non_negative_int,
    number,
    one_of,
    positive_float,
    positive_int,
    probability,
    rate,
    require,
    shown,
    text,
    text_not_blank,
    text_not_empty,
    utf_8,
)
from ..errors import ConfigError
from . import search_options
from .model import TransformerConfig
from .values import BLEU_TOKENIZERS, TrainingPrecision, check_fields, checked, tag

LearnedTokenizerKind = Literal["bpe", "unigram", "wordpiece"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "sentencepiece"]


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """Tokenizer settings.

    Args:
        kind: str. Tokenizer algorithm: "bpe" or "unigram" (SentencePiece) or "wordpiece", which are
            learned from the training text; or "sentencepiece", which keeps the SentencePiece model
            of an imported model. Defaults to "bpe".
        vocab_size: int. Vocabulary size from 5 to 1,000,000, including four special tokens, eight
            placeholders, and the pieces for `data.tags` and `data.terms`. Defaults to 8000.
        shared: bool. Whether both languages share one vocabulary, as in the paper. If False, each
            language has its own vocabulary of `vocab_size` tokens, and `model.tie_embeddings` must
            be "target" or "none". Defaults to True.

    Raises:
        ConfigError: If a value is invalid.
    """

    kind: TokenizerKind = checked("bpe", one_of, choices=get_args(TokenizerKind))
    # SentencePiece loops up to this size, even if the text supports fewer tokens.
    vocab_size: int = checked(8000, integer, at_least=5, at_most=1_000_000)
    shared: bool = checked(True, boolean)

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")


# Searching a text for many more terms would take too long.
MAX_TERMS = 5000


def _kept_term(name: str, value: Any) -> Any:
    return utf_8(name, text_not_blank(name, value))


def _glossary(name: str, value: Any, *, optional: bool = False) -> Any:
    is_glossary = isinstance(value, dict) and len(value) > 0
    is_glossary = is_glossary and all(map(_is_term, (*value, *value.values())))
    rule = (
        "a mapping from one or more terms to translations, without leading or trailing white space"
    )
    require(is_glossary or (optional and value is None), name, rule, value)
    for term, translation in (value or {}).items():
        utf_8(name, term)
        utf_8(f"{name}[{shown(term)}]", translation)
    return value


def _is_term(value: object) -> bool:
    return isinstance(value, str) and value != "" and value == value.strip()


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """Translation settings (section 6.1 of the paper).

    Args:
        beam_size: int. Number of hypotheses that beam search keeps at each step, at most 1,000. 1
            is greedy search. Defaults to 4.
        length_penalty: float. α in `log P / ((5 + length) / 6) ** α`, at most 5. Higher values lead
            to longer translations. Defaults to 0.6.
        max_extra_tokens: int. Maximum number of tokens that a translation may have beyond the
            length of its source, at most 1,000,000. Defaults to 50.
        forbidden_tokens: str. Tokens that never occur in a translation: "none" allows all tokens;
            "special" forbids the padding and start tokens; "unknown" also forbids the unknown
            token. Defaults to "none".
        no_repeat_ngram_size: int. Size of the n-grams that may occur only once in a translation, at
            most 100. Use it for models that repeat themselves. Defaults to 0, which allows repeated
            n-grams.
        repetition_penalty: float. Penalty for tokens that already occur in the translation, from
            0.01 to 100. Values above 1 make them less probable. Defaults to 1: no penalty.
        min_length: int. Minimum number of tokens in a translation, at most 1,000,000, including the
            end token. Translations of empty sources stay empty. Defaults to 0.
        shortlist: bool. Whether to build a shortlist at the end of training, which makes
            translation faster. It lists, for each source token, the target tokens that may
            translate it. If a model directory has a shortlist, search considers only these tokens.
            Defaults to False.
        tag: str or None. Tag in front of every source, such as ">>de<<". It must be in the
            vocabulary. Defaults to None: no tag.
        placeholders: bool. Whether to copy URLs, e-mail addresses, `{names}`, formats such as `%s`
            and tags such as `<b>` from the source to the translation unchanged, each exactly once.
            This applies to the first eight such items in a text. In training text, a placeholder
            token replaces every such item that occurs on both sides of a pair, so that the model
            learns where it belongs. Defaults to False.
        keep: list of str or None. Additional terms to copy, where they are whole words. Requires
            `placeholders=True`. Defaults to None.
        placeholder_patterns: list of str or None. Regular expressions in RE2 syntax for additional
            text to copy, such as `%[0-9]+` and `#[a-z]+#`. Requires `placeholders=True`. Defaults
            to None.
        terms: dict or None. Maps at most 5,000 terms to their translations. Wherever a term is a
            whole word, the model is asked to use its translation. Requires a model that was trained
            with `data.terms`. Defaults to None.

    Raises:
        ConfigError: If a value is invalid.
    """

    beam_size: int = checked(4, search_options.beam_size)
    length_penalty: float = checked(0.6, search_options.length_penalty)
    max_extra_tokens: int = checked(50, search_options.number_of_tokens)
    forbidden_tokens: str = checked("none", one_of, choices=("none", "special", "unknown"))
    no_repeat_ngram_size: int = checked(0, search_options.no_repeat_ngram_size)
    repetition_penalty: float = checked(1.0, search_options.repetition_penalty)
    min_length: int = checked(0, search_options.number_of_tokens)
    shortlist: bool = checked(False, boolean)
    tag: str | None = checked(None, tag, optional=True)
    placeholders: bool = checked(False, boolean)
    keep: list[str] | None = checked(None, list_of, item=_kept_term, optional=True)
    placeholder_patterns: list[str] | None = checked(None, list_of, item=_kept_term, optional=True)
    terms: dict[str, str] | None = checked(None, _glossary, optional=True)

    def __post_init__(self) -> None:
        # `require` would print the terms instead of their number.
        if isinstance(self.terms, dict) and len(self.terms) > MAX_TERMS:
            raise ConfigError(
                f"decoding.terms must have at most {MAX_TERMS:,} terms; received "
                f"{len(self.terms):,}"
            )
        check_fields(self, "decoding")
        if self.keep is not None and not self.placeholders:
            raise ConfigError("decoding.keep needs decoding.placeholders=true")
        if self.placeholder_patterns is not None and not self.placeholders:
            raise ConfigError("decoding.placeholder_patterns needs decoding.placeholders=true")


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Training settings (section 5 of the paper).

    Args:
        steps: int. Number of training steps. Each step updates the weights once. If you resume a
            run with a different number, the learning rate follows the schedule for the new number:
            after the end of a cosine schedule, it rises again, and a warning shows both rates.
            Defaults to 100,000.
        tokens_per_batch: int. Maximum number of source positions, and of target positions, in a
            batch across all devices. Defaults to 25,000.
        num_buckets: int. Maximum number of different batch shapes, at most 1,000. More shapes mean
            less padding. Defaults to 12.
        warmup_steps: int. Number of steps until the learning rate reaches its peak. Defaults to
            4000.
        peak_learning_rate: float or None. Learning rate at the end of the warmup. Defaults to the
            paper's value, `(d_model * warmup_steps) ** -0.5`.
        decay: str. Learning rate schedule after the warmup: "inverse_sqrt", as in the paper;
            "cosine", which reaches 0 at the last step and is better for short training runs; or
            "constant", which stays at the peak and suits fine-tuning. Defaults to "inverse_sqrt".
        label_smoothing: float. Label smoothing rate, ε_ls in section 5.4. Defaults to 0.1.
        subword_dropout: float. Rate at which BPE merges are skipped in the training text
            (BPE-dropout, Provilkov et al. 2020), so that the model sees several segmentations of a
            sentence. Use it for small corpora. Requires `tokenizer.kind="bpe"`. Defaults to 0.
        subword_samples: int. Number of epochs for which random changes to the training text are
            drawn, at most 1,000: segmentations if `subword_dropout` is positive, augmentation with
            `data.augment`, and terms with `data.terms`. Each epoch is a copy of the training text
            on disk. Defaults to 16.
        consistency: float. α of R-Drop (Liang et al. 2021): each batch passes through the model
            twice with different dropout, and a loss term brings the two predictions closer
            together. Use it for small corpora. Training takes twice as long. Defaults to 0: one
            pass, as in the paper.
        guided_alignment: float. Weight of the guided alignment loss, such as 0.1 (Garg et al.
            2019). It trains the first head of the decoder's last layer to attend to the source
            token that each target token translates, as found by IBM Model 1 in the training text.
            Use it for alignments and attention pictures. Defaults to 0: no alignment loss.
        clip_norm: float or None. Maximum norm of the gradient. Use it if training diverges.
            Defaults to None: no clipping.
        accumulate_steps: int. Number of gradient accumulation steps. Each device computes its share
            of a batch in this many parts, one after another, so that larger batches fit into
            memory. The result is the same, except for the random numbers of dropout. Defaults to 1.
        freeze: str. Weights that are not trained, for fine-tuning on little text: "none";
            "embeddings", including an output projection that shares their weights; "encoder", the
            encoder's layers; or "both". Defaults to "none".
        precision: str. "float32"; "bfloat16" or "float16", both mixed precision with float32
            weights; or "auto", which is bfloat16 on CPUs with AMX and on GPUs of compute capability
            8.0 and later, float16 on GPUs of compute capability 7.0 to 7.9, and float32 otherwise.
            In float16, loss scaling keeps gradients within the range of the format. If a gradient
            still overflows, the step counts but does not change the weights. Defaults to "auto".
        validate_every: int. Number of steps between validations. Each validation saves a checkpoint
            and the state for resuming the run, so a crash costs at most this many steps. Defaults
            to 1000.
        validate_by: str. Score that ranks checkpoints: "perplexity", or "bleu", which translates
            the validation text by greedy search. BLEU needs 4-grams: if the references of the
            validation text have fewer than 250, as in lists of phrases and small texts, perplexity
            ranks all checkpoints. If the translations of a checkpoint match fewer than 25, the
            checkpoint ranks below those that match more. Perplexity also breaks ties in BLEU. The
            log says when perplexity decides. Defaults to "perplexity".
        bleu_tokenizer: str or None. sacreBLEU tokenizer for the BLEU of `validate_by`: "13a",
            "intl", "zh", "ja-mecab", "ko-mecab", "char", "spm", "flores101", "flores200" or "none".
            A resumed run keeps its tokenizer. Defaults to None: chosen by the script of the
            validation text's targets.
        ema: float. Decay of an exponential moving average of the weights. The averaged weights are
            validated, ranked and saved for translation. The average covers about the last
            `1 / (1 - ema)` steps, but at most about a tenth of all steps: use 0.99 for thousands of
            steps and 0.999 for tens of thousands. It helps most while the learning rate is high,
            and little once it has decayed to 0. Defaults to 0: no average.
        patience: int or None. Number of validations without a new best score after which training
            stops. Defaults to None: no early stopping.
        keep_checkpoints: int. Number of most recent checkpoints to keep. Defaults to 5.
        average_last: int. Number of most recent checkpoints to average at the end of training, at
            most `keep_checkpoints`. The average and the best checkpoint are then scored on the
            validation text by `validate_by`. The better of the two is used for translation, and the
            log says which. Must be 0 if `average_best` is positive. Defaults to 5.
        average_best: int. Number of best checkpoints to keep, and to average instead of the most
            recent checkpoints. Defaults to 0.
        seed: int. Random seed for the initial weights, the order of the text and dropout, at most
            4,294,967,295. Defaults to 1.

    Raises:
        ConfigError: If a value is invalid.
    """

    steps: int = checked(100_000, positive_int)
    tokens_per_batch: int = checked(25_000, positive_int)
    # Choosing the shapes takes this many iterations.
    num_buckets: int = checked(12, positive_int, at_most=1000)
    warmup_steps: int = checked(4000, positive_int)
    peak_learning_rate: float | None = checked(None, positive_float, optional=True)
    decay: str = checked("inverse_sqrt", one_of, choices=("inverse_sqrt", "cosine", "constant"))
    label_smoothing: float = checked(0.1, rate)
    subword_dropout: float = checked(0.0, rate)
    # Each sample is a copy of the training text on disk.
    subword_samples: int = checked(16, positive_int, at_most=1000)
    consistency: float = checked(0.0, non_negative_float)
    guided_alignment: float = checked(0.0, non_negative_float)
    clip_norm: float | None = checked(None, positive_float, optional=True)
    accumulate_steps: int = checked(1, positive_int)
    freeze: str = checked(
        "none", one_of, is_fixed=True, choices=("none", "embeddings", "encoder", "both")
    )
    precision: TrainingPrecision = checked("auto", one_of, choices=get_args(TrainingPrecision))
    validate_every: int = checked(1000, positive_int)
    validate_by: str = checked("perplexity", one_of, is_fixed=True, choices=("perplexity", "bleu"))
    bleu_tokenizer: str | None = checked(
        None, one_of, is_fixed=True, choices=BLEU_TOKENIZERS, optional=True
    )
    ema: float = checked(0.0, rate, is_fixed=True)
    patience: int | None = checked(None, positive_int, optional=True)
    keep_checkpoints: int = checked(5, positive_int)
    average_last: int = checked(5, non_negative_int)
    average_best: int = checked(0, non_negative_int)
    # NumPy seeds have at most 32 bits.
    seed: int = checked(1, non_negative_int, at_most=2**32 - 1)

    def __post_init__(self) -> None:
        check_fields(self, "training")
        last, most = self.average_last, self.keep_checkpoints
        rule = f"0 if average_best={self.average_best}"
        require(not (last and self.average_best), "training.average_last", rule, last)
        require(last <= most, "training.average_last", f"at most keep_checkpoints={most}", last)


def scripts_of(value: str) -> list[str]:
    """Returns the names in a comma-separated list, such as "Han, Hiragana, Katakana"."""
    return [name.strip().replace("_", "") for name in value.split(",")]


def _script(name: str, value: Any, *, optional: bool = False) -> Any:
    is_valid = text(name, value, optional=optional) is None or _are_scripts(scripts_of(value))
    rule = "the name of a Unicode script, such as Latin, or several with commas"
    require(is_valid, name, rule, value)
    return value


def _language(name: str, value: Any, *, optional: bool = False) -> Any:
    is_code = text(name, value, optional=optional) is None or re.fullmatch("[a-z]{2,3}", value)
    require(bool(is_code), name, "the code of a language, such as de, zh or yue", value)
    return value


def _are_scripts(names: list[str]) -> bool:
    """Returns whether `regex` recognizes all names as values of the Unicode property Script."""
    import regex

    try:
        # Accept only letters, because the name becomes part of a pattern.
        return all(name.isalpha() and regex.compile(rf"\p{{scx={name}}}") for name in names)
    except regex.error:
        return False


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """Augmentation of the training text with other forms, which the model learns to translate.

    Each field is the share of pairs to change, from 0 to 1. The pairs and their changes are drawn
    anew in each of `training.subword_samples` epochs. At most one of the three case changes applies
    to a pair, so their shares must sum to at most 1. All other changes are independent of each
    other. URLs, tags and everything else that `decoding.placeholders` covers stay unchanged.

    Args:
        upper_case: float. Share of pairs in UPPER CASE on both sides. Defaults to 0.
        title_case: float. Share of pairs in Title Case on both sides. Defaults to 0.
        lower_case: float. Share of pairs with the source in lower case. The target keeps its case.
            Defaults to 0.
        no_final_punctuation: float. Share of pairs without a full stop, question mark or
            exclamation mark at the end of both sides. Defaults to 0.
        typos: float. Share of pairs with typing errors in the source. In 10% of its words of three
            letters or more, and at least in one of them, a letter is dropped, doubled or replaced
            by a neighbor on the keyboard, or two letters are swapped. Defaults to 0.
        spaces: float. Share of pairs with spacing errors in the source. 10% of its spaces, and at
            least one space, are doubled or missing. Defaults to 0.
        emoji: float. Share of pairs with the same emoji at the beginning or the end of both sides.
            Defaults to 0.

    Raises:
        ConfigError: If a value is invalid.
    """

    upper_case: float = checked(0.0, probability)
    title_case: float = checked(0.0, probability)
    lower_case: float = checked(0.0, probability)
    no_final_punctuation: float = checked(0.0, probability)
    typos: float = checked(0.0, probability)
    spaces: float = checked(0.0, probability)
    emoji: float = checked(0.0, probability)

    def __post_init__(self) -> None:
        check_fields(self, "data.augment")
        cases = self.upper_case + self.title_case + self.lower_case
        # Rounding errors may make the sum slightly larger than 1.
        name = "data.augment.upper_case + title_case + lower_case"
        require(cases <= 1 + 1e-9, name, "at most 1", cases)

    def __bool__(self) -> bool:
        """Returns whether any augmentation is enabled."""
        return any(dataclasses.astuple(self))


# Limited because repeated pairs are written to disk.
_weight = functools.partial(number, at_least=0.001, at_most=1000)
_tag_or_none = functools.partial(tag, optional=True)
_file_or_none = functools.partial(text_not_empty, optional=True)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Selection, weights and augmentation of the training text.

    Filters are applied in the order of this list, and the first filter that matches a pair removes
    it. Lengths are in characters, because Chinese, Japanese and Thai text has no spaces between
    words. By default, a pair is removed only if a side has no tokens or more tokens than the model
    accepts.

    Args:
        weights: list of float or None. For each corpus, the number of times that its pairs occur in
            an epoch, from 0.001 to 1,000. With 2, every pair occurs twice; with 0.5, half of the
            pairs occur, in a random but reproducible selection. Defaults to None: once.
        tags: list of str or None. For each corpus, the tag in front of its sources, such as
            ">>de<<" for the target language or "<bt>" for back-translations; None for a corpus
            without a tag. A tag is a single token of the vocabulary and does not occur in text.
            Defaults to None: no tags.
        valid_tags: list of str or None. The same for the validation corpora. Each tag must be one
            of `tags`. Held-out pairs keep their tags. Defaults to None: no tags.
        terms: float. Share of pairs in which the translations of some words or phrases are written
            beside them in the source, so that the model learns to follow a glossary. The pairs
            and the terms are drawn anew in each epoch. At least 0 and below 1, such as 0.1.
            Defaults to 0: no terms.
        normalize: str or None. Unicode normalization (UAX #15) of every text, in training and
            translation: "nfc", "nfkc" or "none". "nfc" joins a letter and its accents into one
            character, as most programs write them. "nfkc" also replaces half-width and full-width
            forms, ligatures and circled numbers with plain characters, so that translations do not
            contain them. "none" leaves text unchanged. Spans of placeholders are never changed.
            Defaults to None: a new model uses "nfc", and a training run that is resumed or starts
            from a model uses that model's normalization.
        scores: list of str or None. For each corpus, a file with one number per pair, such as the
            output of `score`; None for a corpus without scores, which keeps all its pairs. Requires
            `min_score`. Defaults to None: no scores.
        min_score: float or None. Removes pairs with a lower score. Requires `scores`. Defaults to
            None.
        min_characters: int or None. Removes pairs with a shorter side. Defaults to None.
        max_characters: int or None. Removes pairs with a longer side. Defaults to None.
        max_length_ratio: float or None. Removes pairs whose longer side has more than this many
            times the characters of the shorter side. Must be at least 1. Defaults to None.
        source_script: str or None. Unicode script of the source language, such as "Latin", or a
            comma-separated list, such as "Han, Hiragana, Katakana". Removes pairs with too few
            letters in this script. Defaults to None.
        target_script: str or None. The same for the target language. Defaults to None.
        min_script_share: float. Minimum share of letters in the script, above 0 and at most 1. A
            side without letters passes. Defaults to 0.5.
        source_language: str or None. ISO 639 code of the source language, such as "de". Removes
            pairs whose source is more than 30 times as likely to be in another language as in
            this one. Requires the extra `languages`. Defaults to None.
        target_language: str or None. The same for the target language. Defaults to None.
        remove_copies: bool. Whether to remove pairs whose target equals their source. Defaults to
            False.
        remove_duplicates: bool. Whether to remove repeated pairs, with the same source and the same
            target as an earlier pair. This takes 8 bytes of memory per pair, and twice as much for
            a short time. Defaults to False.
        augment: AugmentConfig. Augmentation of the training text. Defaults to no augmentation.

    Raises:
        ConfigError: If a value is invalid.
    """

    weights: list[float] | None = checked(None, list_of, item=_weight, optional=True)
    tags: list[str | None] | None = checked(None, list_of, item=_tag_or_none, optional=True)
    valid_tags: list[str | None] | None = checked(None, list_of, item=_tag_or_none, optional=True)
    terms: float = checked(0.0, rate)
    normalize: str | None = checked(
        None, one_of, is_fixed=True, choices=("nfc", "nfkc", "none"), optional=True
    )
    scores: list[str | None] | None = checked(None, list_of, item=_file_or_none, optional=True)
    min_score: float | None = checked(None, finite_number, optional=True)
    min_characters: int | None = checked(None, positive_int, optional=True)
    max_characters: int | None = checked(None, positive_int, optional=True)
    max_length_ratio: float | None = checked(None, finite_number, at_least=1, optional=True)
    source_script: str | None = checked(None, _script, optional=True)
    target_script: str | None = checked(None, _script, optional=True)
    min_script_share: float = checked(0.5, fraction)
    source_language: str | None = checked(None, _language, optional=True)
    target_language: str | None = checked(None, _language, optional=True)
    remove_copies: bool = checked(False, boolean)
    remove_duplicates: bool = checked(False, boolean)
    augment: AugmentConfig = dataclasses.field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        check_fields(self, "data")
        is_valid = isinstance(self.augment, AugmentConfig)
        require(is_valid, "data.augment", "an AugmentConfig", self.augment)
        is_valid = self.min_score is not None or self.scores is None
        require(is_valid, "data.min_score", "given together with data.scores", self.min_score)
        is_valid = self.scores is not None or self.min_score is None
        require(is_valid, "data.scores", "given together with data.min_score", self.scores)
        fewest, most = self.min_characters, self.max_characters
        if fewest is not None and most is not None:
            require(fewest <= most, "data.min_characters", f"at most max_characters={most}", fewest)
        are_known = {*(self.valid_tags or ())} <= {None, *(self.tags or ())}
        require(are_known, "data.valid_tags", "among data.tags", self.valid_tags)

    @property
    def normalization(self) -> Literal["nfc", "nfkc", "none"]:
        """The Unicode normalization; "none" if the configuration does not set it."""
        return cast(Literal["nfc", "nfkc", "none"], self.normalize or "none")


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration with all five sections.

    Raises:
        ConfigError: If values of different sections contradict each other.
    """

    model: TransformerConfig
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    decoding: DecodingConfig = dataclasses.field(default_factory=DecodingConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        kind, tied = self.tokenizer.kind, self.model.tie_embeddings
        dropout, alignment = self.training.subword_dropout, self.training.guided_alignment
        rule = f"0 if tokenizer.kind={kind}"
        require(not dropout or kind == "bpe", "training.subword_dropout", rule, dropout)
        # Two imported SentencePiece models may share a vocabulary.
        may_be_tied = self.tokenizer.shared or kind == "sentencepiece"
        rule = "'target' or 'none' if tokenizer.shared=False"
        require(may_be_tied or tied != "all", "model.tie_embeddings", rule, tied)
        window = self.model.sliding_window
        rule = f"0 if model.sliding_window={window}"
        require(not alignment or window is None, "training.guided_alignment", rule, alignment)

    def with_vocab_sizes(self, source: int, target: int) -> "Config":
        """Returns a copy with the sizes of the vocabularies that were learned."""
        model = dataclasses.replace(self.model, source_vocab_size=source, target_vocab_size=target)
        return dataclasses.replace(self, model=model)


SECTIONS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}
