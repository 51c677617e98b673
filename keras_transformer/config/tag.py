"""Tags: special pieces of a vocabulary that stand in front of a source, such as the language to translate into."""

import itertools
import re
from collections.abc import Collection
from typing import Annotated

from .rules import Rule

_NAME = r"[A-Za-z0-9_.:@=+-]{1,50}"
# Without the special pieces that every vocabulary has, and those of bytes.
_TAG = rf"<(?!(pad|unk|start|s|0x[0-9A-F]{{2}})>){_NAME}>|>>{_NAME}<<"
_NUM_LISTED = 10


def is_tag(value: object) -> bool:
    """Whether a value is what a tag may be."""
    return isinstance(value, str) and re.fullmatch(_TAG, value) is not None


def listed(tags: Collection[str]) -> str:
    """Returns the first of several tags, for messages."""
    more = f" and {len(tags) - _NUM_LISTED} more" if len(tags) > _NUM_LISTED else ""
    return ", ".join(itertools.islice(tags, _NUM_LISTED)) + more


def _are_tags(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(tag is None or is_tag(tag) for tag in value)


Tag = Annotated[str, Rule("a tag such as <bt> or >>de<<", is_tag, {"pattern": f"^({_TAG})$"})]
# One for each corpus, null for one that has none.
Tags = Annotated[
    list[str | None],
    Rule(
        "a list of tags such as <bt> or >>de<<, or null",
        _are_tags,
        {"items": {"anyOf": [{"type": "string", "pattern": f"^({_TAG})$"}, {"type": "null"}]}, "minItems": 1},
    ),
]
