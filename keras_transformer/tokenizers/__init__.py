"""Text to subword ids and back, inside the TensorFlow graph."""

import os
import pathlib

from ..checksums import require_undamaged
from ..config import TokenizerKind
from ..rules import ConfigError
from .sentencepiece import SentencePieceTokenizer
from .tokenizer import Tokenizer
from .wordpiece import WordPieceTokenizer


def load_tokenizer(directory: str | os.PathLike[str], kind: TokenizerKind | None = None) -> Tokenizer:
    """Loads the tokenizer whose file is in a model directory.

    Args:
        directory: str or path of the model directory.
        kind: "bpe", "unigram", "wordpiece" or None. Which kind it is, if the directory may have other files. Defaults
            to None: the kind whose file is there.

    Raises:
        ConfigError: The directory has no tokenizer file, more than one of unknown kind, or a damaged one.
    """
    directory = pathlib.Path(directory)
    classes: tuple[type[Tokenizer], ...] = (SentencePieceTokenizer, WordPieceTokenizer)
    if kind is not None:
        classes = (WordPieceTokenizer,) if kind == "wordpiece" else (SentencePieceTokenizer,)
    found = [cls for cls in classes if (directory / cls.filename).is_file()]
    if len(found) != 1:
        names = " or ".join(cls.filename for cls in classes)
        raise ConfigError(f"{directory} must have one tokenizer file, {names}; it has {'both' if found else 'none'}")
    path = directory / found[0].filename
    require_undamaged(path)
    try:
        return found[0].load(path)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
