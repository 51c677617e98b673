"""Text to subword ids and back, inside the TensorFlow graph."""

import os
import pathlib

from .sentencepiece import SentencePieceTokenizer
from .tokenizer import Tokenizer
from .wordpiece import WordPieceTokenizer


def load_tokenizer(directory: str | os.PathLike) -> Tokenizer:
    """Loads the tokenizer whose file stands in `directory`.

    Raises:
        ValueError: if the directory holds no tokenizer's file, more than one, or a damaged one.
    """
    directory = pathlib.Path(directory)
    classes = (SentencePieceTokenizer, WordPieceTokenizer)
    found = [cls for cls in classes if (directory / cls.filename).is_file()]
    if len(found) != 1:
        names = " or ".join(cls.filename for cls in classes)
        raise ValueError(
            f"{directory} must hold one tokenizer file, {names}, got {'both' if found else 'none'}"
        )
    path = directory / found[0].filename
    try:
        return found[0].load(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
