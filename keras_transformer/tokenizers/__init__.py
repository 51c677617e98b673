"""Text to subword ids and back, inside the TensorFlow graph."""

import os
import pathlib

from ..config import TokenizerConfig
from ..config.sections import TokenizerKind
from ..errors import InvalidFileError
from ..model_dir.files import require_undamaged
from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .sentencepiece import PretrainedSentencePieceTokenizer, SentencePieceTokenizer, pieces_of
    from .tokenizer import Tokenizer, TokenizerPair, filenames
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


def load_tokenizer(directory: str | os.PathLike[str]) -> Tokenizer:
    """Loads the only tokenizer in a model directory, whichever kind it is.

    Raises:
        InvalidFileError: The directory has no tokenizer file, or more than one, or it is not of its kind.
        DamagedFileError: The file is not the one that was written.
    """
    directory = pathlib.Path(directory)
    classes = [cls for cls in _CLASSES.values() if (directory / cls.filename).is_file()]
    if len(classes) != 1:
        names = " or ".join(cls.filename for cls in _CLASSES.values())
        received = " and ".join(cls.filename for cls in classes) or "none"
        raise InvalidFileError(f"{directory} must have one tokenizer file, {names}; it has {received}")
    return _load(classes[0], directory / classes[0].filename)


def load_tokenizers(directory: str | os.PathLike[str], config: TokenizerConfig) -> TokenizerPair:
    """Loads the tokenizers of both languages from a model directory.

    Raises:
        InvalidFileError: A file is missing, or is not of its kind.
        DamagedFileError: A file is not the one that was written.
    """
    paths = [pathlib.Path(directory, name) for name in tokenizer_filenames(config)]
    for path in paths:
        if not path.is_file():
            raise InvalidFileError(f"{path}: the tokenizer file is missing")
    tokenizers = [_load(_class_of(config.kind), path) for path in paths]
    return TokenizerPair(tokenizers[0], tokenizers[-1])


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
        raise InvalidFileError(f"{path}: {error}") from None
