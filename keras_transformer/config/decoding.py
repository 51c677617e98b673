"""The section `decoding`: how translations are searched."""

import dataclasses
from typing import Annotated, Literal

from ..errors import ConfigError
from ..rules import Count, NonNegative, Positive, Rule, Sentence, Share, Size, at_most
from .mappings import check_fields
from .values import Tag

BeamSize = Annotated[Size, at_most(1000)]
LengthPenalty = Annotated[NonNegative, at_most(5)]
TopP = Share
Temperature = Positive
# Finding many more terms in a text takes too long.
MAX_TERMS = 5000


def _is_glossary(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_term, (*value, *value.values())))


def _is_term(value: object) -> bool:
    return isinstance(value, str) and value != "" and value == value.strip()


Glossary = Annotated[
    dict[str, str],
    Rule("a mapping of one or more terms to their translations, without white space around them", _is_glossary),
]


@dataclasses.dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched (section 6.1 of the paper).

    Args:
        beam_size: int. Hypotheses kept at each step, at most 1,000; 1 is greedy search. Defaults to 4.
        length_penalty: float. α in `log P / ((5 + length) / 6) ** α`, at most 5: the higher, the longer the
            translations. Defaults to 0.6.
        max_extra_tokens: int. How many tokens a translation may have more than its source; at most 1,000,000.
            Defaults to 50.
        forbidden_tokens: str. Which tokens a translation never contains: "none"; "special", the padding and start
            tokens; or "unknown", also the unknown token. Defaults to "none".
        no_repeat_ngram_size: int. A translation does not contain the same n-gram of this many tokens twice; at most
            1,000. For models that repeat themselves. Defaults to 0: n-grams may be repeated.
        repetition_penalty: float. Above 1 to make tokens that a translation has already less probable, at most 100.
            Defaults to 1: no penalty.
        min_length: int. The fewest tokens of a translation that is not empty, with its end token; at most 1,000,000.
            Defaults to 0.
        shortlist: bool. Whether training ends with a shortlist, which makes translation faster: for each source token
            the target tokens that may translate it. Translations are searched among these, whenever the model
            directory has a shortlist. Defaults to False.
        tag: str or None. The tag in front of every source, one of the vocabulary, such as ">>de<<". Defaults to None:
            none.
        placeholders: bool. Whether URLs, e-mail addresses, `{names}`, formats such as `%s` and tags such as `<b>` are
            in a translation as they are in its source, each once; the first eight of a text. In training text, a
            placeholder of the vocabulary stands for each that is on both sides of a pair, so that a model learns where
            they belong. Defaults to False.
        keep: list of str or None. Terms that placeholders stand for, too, where they are whole words. Defaults to None.
        terms: dict or None. Translations of terms, which a model that was trained with `data.terms` is asked to use
            where they are whole words; at most 5,000. Defaults to None.

    Raises:
        ConfigError: A value breaks its rule.
    """

    beam_size: BeamSize = 4
    length_penalty: LengthPenalty = 0.6
    max_extra_tokens: Annotated[Count, at_most(1_000_000)] = 50
    forbidden_tokens: Literal["none", "special", "unknown"] = "none"
    no_repeat_ngram_size: Annotated[Count, at_most(1000)] = 0
    repetition_penalty: Annotated[Positive, at_most(100)] = 1.0
    min_length: Annotated[Count, at_most(1_000_000)] = 0
    shortlist: bool = False
    tag: Tag | None = None
    placeholders: bool = False
    keep: list[Sentence] | None = None
    terms: Glossary | None = None

    def __post_init__(self) -> None:
        # Checked apart from the rule, whose message would print the terms instead of their number.
        if isinstance(self.terms, dict) and len(self.terms) > MAX_TERMS:
            raise ConfigError(f"decoding.terms must have at most {MAX_TERMS:,} terms; received {len(self.terms):,}")
        check_fields(self, "decoding")
        if self.keep is not None and not self.placeholders:
            raise ConfigError("decoding.keep needs decoding.placeholders=true")
