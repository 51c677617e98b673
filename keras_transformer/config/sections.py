"""The configuration: what `config.yaml` in a model directory holds, as five frozen dataclasses.

    model       TransformerConfig   sizes and variations of the network
    tokenizer   TokenizerConfig     how text becomes tokens
    decoding    DecodingConfig      how translations are searched
    training    TrainingConfig      how the model is trained
    data        DataConfig          which pairs of the text it is trained on, and how often

`TransformerConfig` is in model.py. Each field names its default and the check of its values, most
often from `keras_transformer/checks.py`; rules about several fields are in `__post_init__`.
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
    """How text becomes tokens.

    Args:
        kind: "bpe" or "unigram" (SentencePiece) or "wordpiece", which are learned from the training
            text; or "sentencepiece", the SentencePiece model of an imported model. Defaults to
            "bpe".
        vocab_size: int. Number of tokens, including the four special ones and eight placeholders; 5
            to 1,000,000. Defaults to 8000.
        shared: bool. Whether both languages share one vocabulary, as in the paper. Otherwise each
            has its own, of `vocab_size` tokens, and `model.tie_embeddings` must be "target" or
            "none". Defaults to True.

    Raises:
        ConfigError: A value breaks its rule.
    """

    kind: TokenizerKind = checked("bpe", one_of, choices=get_args(TokenizerKind))
    # SentencePiece counts up to it, however few tokens the text supports.
    vocab_size: int = checked(8000, integer, at_least=5, at_most=1_000_000)
    shared: bool = checked(True, boolean)

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")


# Finding many more terms in a text takes too long.
MAX_TERMS = 5000


def _kept_term(name: str, value: Any) -> Any:
    return utf_8(name, text_not_blank(name, value))


def _glossary(name: str, value: Any, *, optional: bool = False) -> Any:
    is_glossary = isinstance(value, dict) and len(value) > 0
    is_glossary = is_glossary and all(map(_is_term, (*value, *value.values())))
    rule = "a mapping of one or more terms to their translations, without white space around them"
    require(is_glossary or (optional and value is None), name, rule, value)
    for term, translation in (value or {}).items():
        utf_8(name, term)
        utf_8(f"{name}[{shown(term)}]", translation)
    return value


def _is_term(value: object) -> bool:
    return isinstance(value, str) and value != "" and value == value.strip()


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched (section 6.1 of the paper).

    Args:
        beam_size: int. Hypotheses kept at each step, at most 1,000; 1 is greedy search. Defaults to
            4.
        length_penalty: float. α in `log P / ((5 + length) / 6) ** α`, at most 5: the higher, the
            longer the translations. Defaults to 0.6.
        max_extra_tokens: int. How many tokens a translation may have more than its source; at most
            1,000,000. Defaults to 50.
        forbidden_tokens: str. Which tokens a translation never contains: "none"; "special", the
            padding and start tokens; or "unknown", also the unknown token. Defaults to "none".
        no_repeat_ngram_size: int. A translation does not contain the same n-gram of this many
            tokens twice; at most 100. For models that repeat themselves. Defaults to 0: n-grams
            may be repeated.
        repetition_penalty: float. Values above 1 make tokens that already occur in the translation
            less probable; 0.01 to 100. Defaults to 1: no penalty.
        min_length: int. The fewest tokens of a translation that is not empty, with its end token;
            at most 1,000,000. Defaults to 0.
        shortlist: bool. Whether training ends with a shortlist, which makes translation faster: for
            each source token the target tokens that may translate it. Translations are searched
            among these, whenever the model directory has a shortlist. Defaults to False.
        tag: str or None. The tag to put in front of every source, such as ">>de<<". It must be in
            the vocabulary.
            Defaults to None: none.
        placeholders: bool. Whether URLs, e-mail addresses, `{names}`, formats such as `%s` and tags
            such as `<b>` are in a translation as they are in its source, each once; the first eight
            of a text. In training text, a placeholder of the vocabulary stands for each that is on
            both sides of a pair, so that a model learns where they belong. Defaults to False.
        keep: list of str or None. Terms that placeholders stand for, too, where they are whole
            words. Defaults to None.
        placeholder_patterns: list of str or None. Regular expressions of RE2, whose matches
            placeholders stand for, too, such as `%[0-9]+` and `#[a-z]+#`. Defaults to None.
        terms: dict or None. Translations of terms, which a model that was trained with `data.terms`
            is asked to use where they are whole words; at most 5,000. Defaults to None.

    Raises:
        ConfigError: A value breaks its rule.
    """

    beam_size: int = checked(4, search_options.beam_size)
    length_penalty: float = checked(0.6, search_options.length_penalty)
    max_extra_tokens: int = checked(50, search_options.fewest_new_tokens)
    forbidden_tokens: str = checked("none", one_of, choices=("none", "special", "unknown"))
    no_repeat_ngram_size: int = checked(0, search_options.no_repeat_ngram_size)
    repetition_penalty: float = checked(1.0, search_options.repetition_penalty)
    min_length: int = checked(0, search_options.fewest_new_tokens)
    shortlist: bool = checked(False, boolean)
    tag: str | None = checked(None, tag, optional=True)
    placeholders: bool = checked(False, boolean)
    keep: list[str] | None = checked(None, list_of, item=_kept_term, optional=True)
    placeholder_patterns: list[str] | None = checked(None, list_of, item=_kept_term, optional=True)
    terms: dict[str, str] | None = checked(None, _glossary, optional=True)

    def __post_init__(self) -> None:
        # Checked apart from the rule, whose message would print the terms instead of their number.
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
    """How a model is trained (section 5 of the paper).

    Args:
        steps: int. Number of updates. A run that is resumed with another number follows the
            schedule of that number: after the end of a cosine, the learning rate rises again, and a
            warning shows both rates. Defaults to 100,000.
        tokens_per_batch: int. At most this many source positions, and as many target positions, in
            a batch, on all devices together. Defaults to 25,000.
        num_buckets: int. At most this many different batch shapes; more shapes mean less padding.
            At most 1,000. Defaults to 12.
        warmup_steps: int. Updates until the learning rate peaks. Defaults to 4000.
        peak_learning_rate: float or None. The peak. Defaults to the paper's,
            `(d_model * warmup_steps) ** -0.5`.
        decay: "inverse_sqrt", the paper's decay after the peak; "cosine", which reaches 0 at the
            last step and is better for short training runs; or "constant", which stays at the peak,
            to fine-tune. Defaults to "inverse_sqrt".
        label_smoothing: float. ε_ls (section 5.4). Defaults to 0.1.
        subword_dropout: float. BPE-dropout (Provilkov et al. 2020): rate at which merges are
            skipped in the training text, so that the model sees a sentence in several
            segmentations. For small corpora, with tokenizers of kind "bpe". Defaults to 0.
        subword_samples: int. Segmentations of each sentence if `subword_dropout` is not 0, shapes
            of each sentence with `data.augment`, and draws of terms with `data.terms`; at most
            1,000. Defaults to 16.
        consistency: float. α of R-Drop (Liang et al. 2021): each batch passes through the model
            twice with different dropout, and a loss draws the two predictions together. For small
            corpora; takes twice the time. Defaults to 0: one pass, as in the paper.
        guided_alignment: float. Weight of a loss by which the first head of the decoder's last
            layer learns to attend to the source token that a token translates (Garg et al. 2019),
            as IBM Model 1 finds it in the training text, such as 0.1. For alignments, and for
            pictures of attention. Defaults to 0: none.
        clip_norm: float or None. Largest norm of the gradient. For training runs that diverge.
            Defaults to None.
        accumulate_steps: int. Number of parts in which a device computes its share of a batch, one
            after another, so that larger batches fit into its memory; the result is the same,
            except for the random numbers of dropout. Defaults to 1.
        freeze: str. Which weights are not trained: "none"; "embeddings", and with them an output
            projection that shares them; "encoder", its layers; or "both". To fine-tune on little
            text. Defaults to "none".
        precision: "float32", "bfloat16" or "float16" (both mixed: weights stay in float32), or
            "auto": bfloat16 on CPUs with AMX and on GPUs of compute capability 8.0 and later,
            float16 on GPUs of 7.0 to 7.9, otherwise float32. In float16, gradients are scaled to
            its small range. A step in which one still overflows is skipped: it counts, but changes
            no weights. Defaults to "auto".
        validate_every: int. Updates between validations, which save a checkpoint and the state from
            which a run is resumed; a crash costs at most so many. Defaults to 1000.
        validate_by: "perplexity", or "bleu", which translates the validation text by greedy search:
            the score by which checkpoints are compared. BLEU needs 4-grams: perplexity ranks all
            checkpoints if the references of the validation text have fewer than 250, as phrases and
            small texts do. A checkpoint whose translations match fewer than 25 of them ranks behind
            those that match more. Between equal BLEU, perplexity decides, too. The log says where
            it does. Defaults to "perplexity".
        bleu_tokenizer: str or None. sacreBLEU's tokenizer for the BLEU of `validate_by`: "13a",
            "intl", "zh", "ja-mecab", "ko-mecab", "char", "spm", "flores101", "flores200" or "none".
            Defaults to None: the one for the script of the validation text's targets; a run that is
            resumed keeps its own.
        ema: float. Decay of an exponential moving average of the weights, which is validated,
            ranked, and saved for translation. It covers about the last `1 / (1 - ema)` updates, but
            at most about a tenth of all: 0.99 suits thousands of updates, 0.999 tens of thousands.
            It gains most while the learning rate is high, and little once it has decayed to 0.
            Defaults to 0: no average.
        patience: int or None. Training stops after this many validations without a new best.
            Defaults to None: never.
        keep_checkpoints: int. How many of the last checkpoints are kept. Defaults to 5.
        average_last: int. How many of the last checkpoints are averaged when training ends; at most
            `keep_checkpoints`. The average and the best checkpoint are then measured on the
            validation text, by `validate_by`; the better one translates, and the log says which.
            Defaults to 5.
        average_best: int. How many of the best checkpoints are kept, and averaged instead of the
            last. Defaults to 0.
        seed: int. Seed of the initial weights, of the order of the text and of dropout; at most
            4,294,967,295. Defaults to 1.

    Raises:
        ConfigError: A value breaks its rule.
    """

    steps: int = checked(100_000, positive_int)
    tokens_per_batch: int = checked(25_000, positive_int)
    # The shapes are chosen in as many rounds.
    num_buckets: int = checked(12, positive_int, at_most=1000)
    warmup_steps: int = checked(4000, positive_int)
    peak_learning_rate: float | None = checked(None, positive_float, optional=True)
    decay: str = checked("inverse_sqrt", one_of, choices=("inverse_sqrt", "cosine", "constant"))
    label_smoothing: float = checked(0.1, rate)
    subword_dropout: float = checked(0.0, rate)
    # Each is a copy of the training text on disk.
    subword_samples: int = checked(16, positive_int, at_most=1000)
    consistency: float = checked(0.0, non_negative_float)
    guided_alignment: float = checked(0.0, non_negative_float)
    clip_norm: float | None = checked(None, positive_float, optional=True)
    accumulate_steps: int = checked(1, positive_int)
    freeze: str = checked("none", one_of, choices=("none", "embeddings", "encoder", "both"))
    precision: TrainingPrecision = checked("auto", one_of, choices=get_args(TrainingPrecision))
    validate_every: int = checked(1000, positive_int)
    validate_by: str = checked("perplexity", one_of, choices=("perplexity", "bleu"))
    bleu_tokenizer: str | None = checked(None, one_of, choices=BLEU_TOKENIZERS, optional=True)
    ema: float = checked(0.0, rate)
    patience: int | None = checked(None, positive_int, optional=True)
    keep_checkpoints: int = checked(5, positive_int)
    average_last: int = checked(5, non_negative_int)
    average_best: int = checked(0, non_negative_int)
    # NumPy takes seeds of 32 bits.
    seed: int = checked(1, non_negative_int, at_most=2**32 - 1)

    def __post_init__(self) -> None:
        check_fields(self, "training")
        last, most = self.average_last, self.keep_checkpoints
        rule = f"0 if average_best={self.average_best}"
        require(not (last and self.average_best), "training.average_last", rule, last)
        require(last <= most, "training.average_last", f"at most keep_checkpoints={most}", last)


def scripts_of(value: str) -> list[str]:
    """Returns the names in a list with commas, such as "Han, Hiragana, Katakana"."""
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
    """Whether `regex` knows names as values of Unicode's property Script."""
    import regex

    try:
        # Only letters, because the name becomes part of a pattern.
        return all(name.isalpha() and regex.compile(rf"\p{{scx={name}}}") for name in names)
    except regex.error:
        return False


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """In which other shapes a model sees the training text, so that it translates them too.

    Each field is a share of the pairs, from 0 to 1. Which pairs it is, and how they change, is
    drawn anew in each of `training.subword_samples` epochs. A pair has at most one of the three
    cases, so that their shares sum to at most 1; everything else is drawn independently. URLs, tags
    and whatever else `decoding.placeholders` is about stay as they are.

    Args:
        upper_case: float. UPPER CASE on both sides. Defaults to 0.
        title_case: float. Title Case on both sides. Defaults to 0.
        lower_case: float. lower case in the source; the target is written as usual. Defaults to 0.
        no_final_punctuation: float. No full stop, question mark or exclamation mark at the end, on
            both sides. Defaults to 0.
        typos: float. Typing errors in the source: in one of ten words, but at least one, letters
            are swapped, dropped, doubled, or replaced by a neighbor on the keyboard. Defaults to 0.
        spaces: float. One of ten spaces of the source, but at least one, is doubled or missing.
            Defaults to 0.
        emoji: float. The same emoji at the beginning or the end of both sides. Defaults to 0.

    Raises:
        ConfigError: A value breaks its rule.
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
        # Rounding may make a sum that should be 1 a little larger.
        name = "data.augment.upper_case + title_case + lower_case"
        require(cases <= 1 + 1e-9, name, "at most 1", cases)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return any(dataclasses.astuple(self))


# Pairs are repeated on disk.
_weight = functools.partial(number, at_least=0.001, at_most=1000)
_tag_or_none = functools.partial(tag, optional=True)
_file_or_none = functools.partial(text_not_empty, optional=True)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which pairs of the given text a model is trained on, and how often.

    A pair is left out by the first filter that matches it, in the order of this list. Lengths are
    in characters, because Chinese, Japanese and Thai text has no spaces between words. By default,
    a pair is left out only if a side has no tokens or more than the model takes.

    Args:
        weights: list of float or None. For each corpus, how often its pairs are used in an epoch: 2
            is twice; 0.5 is half of them, chosen at random but always in the same way; each from
            0.001 to 1,000. Defaults to None: once.
        tags: list of str or None. For each corpus, the tag in front of its sources, such as
            ">>de<<" for a language to translate into or "<bt>" for back-translations; None for a
            corpus without one. A tag is one token of the vocabulary, which no text contains.
            Defaults to None: no tags.
        valid_tags: list of str or None. The same for the corpora to validate on, among `tags`.
            Pairs that are held out keep theirs. Defaults to None: no tags.
        terms: float. The share of the pairs in whose sources the translations of some words or
            phrases are written beside them, drawn anew in each epoch, so that translations follow a
            glossary; at least 0 and below 1, such as 0.1. Defaults to 0: none.
        normalize: "nfc", "nfkc", "none" or None. The normal form of Unicode (UAX #15) into which
            the model brings every text first, in training and whenever it translates. "nfc" joins
            a letter and its accents into one character, as most programs write them. "nfkc" also
            replaces half-width and full-width forms, ligatures and circled numbers by plain
            characters, so that translations have none of them. "none" leaves texts as they are.
            Placeholders always keep their text as it is. Defaults to None: a new model has "nfc",
            and a training run that is resumed or starts from a model has that model's.
        scores: list of str or None. For each corpus, a file with a number for each pair, such as
            `score` prints; None for a corpus without one, all of whose pairs pass. Defaults to
            None: no scores.
        min_score: float or None. Leaves out pairs with a lower score. Defaults to None.
        min_characters: int or None. Leaves out pairs with a side that is shorter. Defaults to None.
        max_characters: int or None. Leaves out pairs with a side that is longer. Defaults to None.
        max_length_ratio: float or None. Leaves out pairs whose longer side has more than this many
            times the characters of the shorter; at least 1. Defaults to None.
        source_script: str or None. The Unicode script of the source language, such as "Latin", or
            several with commas, such as "Han, Hiragana, Katakana". Leaves out pairs with too few
            letters of this script. Defaults to None.
        target_script: str or None. The same for the target. Defaults to None.
        min_script_share: float. The least share of letters in the script; above 0 and at most 1. A
            side without letters passes. Defaults to 0.5.
        source_language: str or None. The ISO 639 code of the source language, such as "de". Leaves
            out pairs whose source is 30 times as likely to be in another language. Needs the extra
            `languages`. Defaults to None.
        target_language: str or None. The same for the target. Defaults to None.
        remove_copies: bool. Leaves out pairs whose target is their source. Defaults to False.
        remove_duplicates: bool. Leaves out pairs that came before, with the same source and the
            same target. Takes 8 bytes of memory for each pair, and at moments twice as much.
            Defaults to False.
        augment: AugmentConfig. Other shapes in which the model sees the training text. Defaults to
            none.

    Raises:
        ConfigError: A value breaks its rule.
    """

    weights: list[float] | None = checked(None, list_of, item=_weight, optional=True)
    tags: list[str | None] | None = checked(None, list_of, item=_tag_or_none, optional=True)
    valid_tags: list[str | None] | None = checked(None, list_of, item=_tag_or_none, optional=True)
    terms: float = checked(0.0, rate)
    normalize: str | None = checked(None, one_of, choices=("nfc", "nfkc", "none"), optional=True)
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
        """The normal form of a trained model; models of earlier releases do not name one."""
        return cast(Literal["nfc", "nfkc", "none"], self.normalize or "none")


@dataclasses.dataclass(frozen=True)
class Config:
    """All five sections.

    Raises:
        ConfigError: Values of different sections do not fit each other.
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
        # Two imported SentencePiece models may have one vocabulary.
        may_be_tied = self.tokenizer.shared or kind == "sentencepiece"
        rule = "'target' or 'none' if tokenizer.shared=False"
        require(may_be_tied or tied != "all", "model.tie_embeddings", rule, tied)
        window = self.model.sliding_window
        rule = f"0 if model.sliding_window={window}"
        require(not alignment or window is None, "training.guided_alignment", rule, alignment)

    def with_vocab_sizes(self, source: int, target: int) -> "Config":
        """Returns a copy whose model has the vocabularies that were actually learned."""
        model = dataclasses.replace(self.model, source_vocab_size=source, target_vocab_size=target)
        return dataclasses.replace(self, model=model)


SECTIONS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}
