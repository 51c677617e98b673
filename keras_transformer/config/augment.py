"""The section `data.augment`: other shapes in which a model sees the training text."""

import dataclasses

from .rules import Probability, check_fields, require


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
        # Three tenths and seven tenths, say, may sum to a little more than 1.
        require(cases <= 1 + 1e-9, "upper_case + title_case + lower_case", "at most 1", cases)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return any(dataclasses.astuple(self))
