"""The section `data`: which pairs of a text a model is trained on, and how often."""

import dataclasses
from typing import Annotated

from ..rules import NotEmpty, Probability, Rate, Rule, Share, Size, at_least, at_most, require
from .mappings import check_fields
from .values import Tags


def _is_script(value: str) -> bool:
    """Whether `regex` knows all names of a list with commas as values of Unicode's property Script."""
    import regex

    try:
        # Only letters, because the name becomes part of a pattern.
        return all(name.isalpha() and regex.compile(rf"\p{{scx={name}}}") for name in scripts_of(value))
    except regex.error:
        return False


def scripts_of(value: str) -> list[str]:
    """Returns the names in a list with commas, such as "Han, Hiragana, Katakana"."""
    return [name.strip().replace("_", "") for name in value.split(",")]


Script = Annotated[str, Rule("the name of a Unicode script, such as Latin, or several with commas", _is_script)]


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """In which other shapes a model sees the training text, so that it translates them too.

    Each field is a share of the pairs, from 0 to 1. Which pairs it is, and how they change, is drawn anew in each of
    `training.subword_samples` epochs. A pair has at most one of the three cases, so that their shares sum to at most
    1; everything else is drawn independently. URLs, tags and whatever else `decoding.placeholders` is about stay as
    they are.

    Args:
        upper_case: float. UPPER CASE on both sides. Defaults to 0.
        title_case: float. Title Case on both sides. Defaults to 0.
        lower_case: float. lower case in the source; the target is written as usual. Defaults to 0.
        no_final_punctuation: float. No full stop, question mark or exclamation mark at the end, on both sides. Defaults
            to 0.
        typos: float. Typing errors in the source: in one of ten words, but at least one, letters are swapped, dropped,
            doubled, or replaced by a neighbor on the keyboard. Defaults to 0.
        spaces: float. One of ten spaces of the source, but at least one, is doubled or missing. Defaults to 0.
        emoji: float. The same emoji at the beginning or the end of both sides. Defaults to 0.

    Raises:
        ConfigError: A value breaks its rule.
    """

    upper_case: Probability = 0.0
    title_case: Probability = 0.0
    lower_case: Probability = 0.0
    no_final_punctuation: Probability = 0.0
    typos: Probability = 0.0
    spaces: Probability = 0.0
    emoji: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "data.augment")
        cases = self.upper_case + self.title_case + self.lower_case
        # Rounding may make a sum that should be 1 a little larger.
        require(cases <= 1 + 1e-9, "upper_case + title_case + lower_case", "at most 1", cases)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return any(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which pairs of the given text a model is trained on, and how often.

    A pair is left out by the first filter that matches it, in the order of this list. Lengths are in characters,
    because Chinese, Japanese and Thai text has no spaces between words. By default, a pair is left out only if a side
    has no tokens or more than the model takes.

    Args:
        weights: list of float or None. For each corpus, how often its pairs are used in an epoch: 2 is twice; 0.5 is
            half of them, chosen at random but always in the same way; each from 0.001 to 1,000. Defaults to None: once.
        tags: list of str or None. For each corpus, the tag in front of its sources, such as ">>de<<" for a language to
            translate into or "<bt>" for back-translations; None for a corpus without one. A tag is one token of the
            vocabulary, which no text contains. Defaults to None: no tags.
        valid_tags: list of str or None. The same for the corpora to validate on, among `tags`. Pairs that are held out
            keep theirs. Defaults to None: no tags.
        terms: float. The share of the pairs in whose sources the translations of some words or phrases are written
            beside them, drawn anew in each epoch, so that translations follow a glossary; at least 0 and below 1, such
            as 0.1. Defaults to 0: none.
        scores: list of str or None. For each corpus, a file with a number for each pair, such as `score` prints; None
            for a corpus without one, all of whose pairs pass. Defaults to None: no scores.
        min_score: float or None. Leaves out pairs with a lower score; -1,000,000 to 1,000,000. Defaults to None.
        min_characters: int or None. Leaves out pairs with a side that is shorter; at most 1,000,000. Defaults to None.
        max_characters: int or None. Leaves out pairs with a side that is longer; at most 1,000,000. Defaults to None.
        max_length_ratio: float or None. Leaves out pairs whose longer side has more than this many times the characters
            of the shorter; 1 to 1,000. Defaults to None.
        source_script: str or None. The Unicode script of the source language, such as "Latin", or several with commas,
            such as "Han, Hiragana, Katakana". Leaves out pairs with too few letters of this script. Defaults to None.
        target_script: str or None. The same for the target. Defaults to None.
        min_script_share: float. The least share of letters in the script; above 0 and at most 1. A side without
            letters passes. Defaults to 0.5.
        remove_copies: bool. Leaves out pairs whose target is their source. Defaults to False.
        remove_duplicates: bool. Leaves out pairs that came before, with the same source and the same target. Takes 8
            bytes of memory for each pair, and at moments twice as much. Defaults to False.
        augment: AugmentConfig. Other shapes in which the model sees the training text. Defaults to none.

    Raises:
        ConfigError: A value breaks its rule.
    """

    weights: list[Annotated[float, at_least(0.001), at_most(1000)]] | None = None
    tags: Tags | None = None
    valid_tags: Tags | None = None
    terms: Rate = 0.0
    scores: list[NotEmpty | None] | None = None
    min_score: Annotated[float, at_least(-1_000_000), at_most(1_000_000)] | None = None
    min_characters: Annotated[Size, at_most(1_000_000)] | None = None
    max_characters: Annotated[Size, at_most(1_000_000)] | None = None
    max_length_ratio: Annotated[float, at_least(1), at_most(1000)] | None = None
    source_script: Script | None = None
    target_script: Script | None = None
    min_script_share: Share = 0.5
    remove_copies: bool = False
    remove_duplicates: bool = False
    augment: AugmentConfig = dataclasses.field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        check_fields(self, "data")
        require(isinstance(self.augment, AugmentConfig), "data.augment", "an AugmentConfig", self.augment)
        for name, other in (("min_score", "scores"), ("scores", "min_score")):
            is_given = getattr(self, name) is not None or getattr(self, other) is None
            require(is_given, f"data.{name}", f"given together with data.{other}", getattr(self, name))
        fewest, most = self.min_characters, self.max_characters
        if fewest is not None and most is not None:
            require(fewest <= most, "data.min_characters", f"at most max_characters={most}", fewest)
        are_known = {*(self.valid_tags or ())} <= {None, *(self.tags or ())}
        require(are_known, "data.valid_tags", "among data.tags", self.valid_tags)
