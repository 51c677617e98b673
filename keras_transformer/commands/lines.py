"""Lines of text that are translated or scored in blocks."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ..runtime.progress import ProgressBar

if TYPE_CHECKING:
    from ..translation import Translator

Item = TypeVar("Item")

# Bounds the memory that a block takes.
LINES_PER_BLOCK = 1024

_log = logging.getLogger(__name__)


def numbered_blocks(items: Iterable[Item]) -> Iterator[tuple[int, list[Item]]]:
    """Divides items into blocks, each with the number of its first item."""
    items = iter(items)
    first = 1
    while block := list(itertools.islice(items, LINES_PER_BLOCK)):
        yield first, block
        first += len(block)


def log_truncated(lengths: Iterable[int], max_length: int, first: int, file: str = "") -> None:
    """Logs which lines are longer than the model's limit.

    Args:
        lengths: the number of tokens of each line, as in `Translations.source_lengths`.
        max_length: int. The model's limit.
        first: int. The number of the first line.
        file: str. The name of the file that they are from. Defaults to "": it need not be named.
    """
    for number, length in enumerate(lengths, start=first):
        if length > max_length:
            place = f"{file}, line {number}" if file else f"line {number}"
            _log.info(f"{place}: too many tokens, truncated to model.max_length={max_length}")


def translate_lines(translator: "Translator", texts: list[str], max_length: int, file: str) -> list[str]:
    """Translates the lines of a file, shows progress, and logs which lines are longer than the model's limit."""
    translations: list[str] = []
    with ProgressBar("translating", "lines", len(texts)) as bar:
        for first, block in numbered_blocks(texts):
            found = translator.translate(block)
            log_truncated((each.source_length for each in found), max_length, first, file)
            translations += [each.hypotheses[0][0] for each in bar.count(found)]
    return translations
