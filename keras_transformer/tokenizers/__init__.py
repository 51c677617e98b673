"""Text to subword ids and back, inside the TensorFlow graph."""

import os
import pathlib

from ..config import TokenizerConfig
from ..config.tokenizer import TokenizerKind
from ..errors import ConfigError
from ..model_dir.checksums import require_undamaged
from .pretrained_sentencepiece import PretrainedSentencePieceTokenizer, pieces_of
from .sentencepiece import SentencePieceTokenizer
from .tokenizer import Tokenizer
from .tokenizer_pair import TokenizerPair, filenames
from .wordpiece import WordPieceTokenizer

__all__ = [
    "PretrainedSentencePieceTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "TokenizerPair",
    "WordPieceTokenizer",
    "load_tokenizer",
    "load_tokenizers",
    "pieces_of",
    "tokenizer_filenames",
]

# Of kinds "bpe" and "unigram" is what this package trained itself.
_CLASSES: dict[str, type[Tokenizer]] = {
    "bpe": SentencePieceTokenizer,
    "wordpiece": WordPieceTokenizer,
    "sentencepiece": PretrainedSentencePieceTokenizer,
}


def load_tokenizer(directory: str | os.PathLike[str], kind: TokenizerKind | None = None) -> Tokenizer:
    """Loads the tokenizer that both languages share, whose file is in a model directory.

    Args:
        directory: str or path of the model directory.
        kind: "bpe", "unigram", "wordpiece", "sentencepiece" or None. Which kind it is, if the directory may have other
            files. Defaults to None: the kind whose file is there.

    Raises:
        ConfigError: The directory has no tokenizer file, more than one of unknown kind, or a damaged one.
    """
    directory = pathlib.Path(directory)
    classes: tuple[type[Tokenizer], ...] = tuple(_CLASSES.values())
    if kind is not None:
        classes = (_class_of(kind),)
    found = [cls for cls in classes if (directory / cls.filename).is_file()]
    if len(found) != 1:
        names = " or ".join(cls.filename for cls in classes)
        received = " and ".join(cls.filename for cls in found) or "none"
        raise ConfigError(f"{directory} must have one tokenizer file, {names}; it has {received}")
    return _load(found[0], directory / found[0].filename)


def load_tokenizers(directory: str | os.PathLike[str], config: TokenizerConfig) -> TokenizerPair:
    """Loads the tokenizers of both languages.

    Args:
        directory: str or path of the model directory.
        config: TokenizerConfig.

    Raises:
        ConfigError: A file is missing or damaged.
    """
    if config.shared:
        return TokenizerPair.of(load_tokenizer(directory, config.kind))
    paths = [pathlib.Path(directory, name) for name in tokenizer_filenames(config)]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: the tokenizer file is missing")
    return TokenizerPair(*(_load(_class_of(config.kind), path) for path in paths))


def tokenizer_filenames(config: TokenizerConfig) -> tuple[str, ...]:
    """Returns the names of the tokenizer files in a model directory: the shared one, or source and target."""
    return filenames(_class_of(config.kind), config.shared)


def _class_of(kind: TokenizerKind) -> type[Tokenizer]:
    return _CLASSES.get(kind, SentencePieceTokenizer)


def _load(tokenizer_class: type[Tokenizer], path: pathlib.Path) -> Tokenizer:
    require_undamaged(path)
    try:
        return tokenizer_class.load(path)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
