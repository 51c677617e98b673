"""The tokenizers of the two languages: one that they share, or one for each."""

import os
import pathlib
from typing import NamedTuple

from .tokenizer import Tokenizer


class TokenizerPair(NamedTuple):
    """The tokenizers of a translator.

    Attributes:
        source: Tokenizer.
        target: Tokenizer, the same object if the languages share one.
    """

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def of(cls, tokenizers: "Tokenizer | TokenizerPair") -> "TokenizerPair":
        """Returns a pair as it is, and a single tokenizer as the one that both languages share."""
        return cls(tokenizers, tokenizers) if isinstance(tokenizers, Tokenizer) else tokenizers

    @property
    def is_shared(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, Tokenizer]:
        """Returns each tokenizer by the name that its file has in a model directory."""
        names = filenames(type(self.target), self.is_shared)
        return dict(zip(names, (self.target,) if self.is_shared else self, strict=True))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the files of a model directory, each whole or not at all, with its checksum."""
        for name, tokenizer in self.files().items():
            tokenizer.save(pathlib.Path(directory, name))


def filenames(tokenizer_class: type[Tokenizer], is_shared: bool) -> tuple[str, ...]:
    """Returns the names of the files in a model directory: the shared one, or those of source and target."""
    name = tokenizer_class.filename
    return (name,) if is_shared else (f"source.{name}", f"target.{name}")
