"""The options by which a command receives a parallel text, and the function that opens it."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConfigError
from .options import Check, Parser, input_file, input_text

if TYPE_CHECKING:
    from ..text import Corpus


class TextOptions(NamedTuple):
    """The names of the options of a parallel text, which is given by files of pairs or per side.

    Attributes:
        source: option for files with one sentence per line.
        target: option for files with the translations.
        pairs: option for files that contain both sides.
    """

    source: str = "--source"
    target: str = "--target"
    pairs: str = "--pairs"

    def add_to(
        self,
        parser: Parser,
        source_help: str = "sentences, one per line",
        check: Check = input_text,
    ) -> None:
        """Adds the options, each for one or more files."""
        for name, help in self._help(source_help).items():
            parser.add_paths(name, help, check=check)

    def add_single_to(self, parser: Parser) -> None:
        """Adds the options, each for a single file."""
        for name, help in self._help("sentences, one per line").items():
            parser.add_option(name, input_file, "FILE", help.replace("files with", "a file with"))

    def _help(self, source_help: str) -> dict[str, str]:
        return {
            self.source: source_help,
            self.target: "their translations, one per line",
            self.pairs: "files with one pair per line: a sentence, a tab and its translation",
        }

    def check(
        self,
        options: argparse.Namespace,
        text: str,
        other_ways: Mapping[str, object] | None = None,
        required: bool = True,
    ) -> None:
        """Raises a ConfigError if the text is missing, or is given in several ways.

        Args:
            options: the options of the command.
            text: name of the text in the message, such as "training text".
            other_ways: other ways to give the text, as the message names them, and the values of
                their options. Defaults to none.
            required: whether the text must be given. Defaults to True.
        """
        other_ways = other_ways or {}
        sources, targets, pairs = self._paths(options)
        given = [sources + targets, pairs, *other_ways.values()]
        num_ways = sum(bool(value) for value in given)
        if bool(sources) != bool(targets) or num_ways > 1 or (required and num_ways == 0):
            *ways, last = f"by {self.source} and {self.target}", f"by {self.pairs}", *other_ways
            raise ConfigError(f"give the {text} in one way: {', '.join(ways)}, or {last}")

    def open(self, options: argparse.Namespace) -> "list[Corpus]":
        """Opens the text, or returns [] if none of the options is given."""
        from ..text import open_corpora

        return open_corpora(*self._paths(options))

    def _paths(self, options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
        """Returns the paths of the sources, of the targets, and of files of pairs."""

        def paths_of(name: str) -> list[str]:
            value = getattr(options, name.removeprefix("--").replace("-", "_"))
            return [value] if isinstance(value, str) else value or []

        return paths_of(self.source), paths_of(self.target), paths_of(self.pairs)


TRAINING_TEXT = TextOptions()
VALIDATION_TEXT = TextOptions("--valid-source", "--valid-target", "--valid-pairs")
TEST_TEXT = TextOptions(target="--reference")
