"""Tokenizers, which convert text to subword ids and back inside the TensorFlow graph."""

import os
import pathlib

from ..config import TokenizerConfig
from ..errors import InvalidFileError
from ..model_dir.files import require_undamaged
from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .normalization import NormalForm
    from .sentencepiece import PretrainedSentencePieceTokenizer, SentencePieceTokenizer
    from .tokenizer import MAX_FILE_BYTES, Tokenizer, TokenizerPair, WordPieceTokenizer

__all__ = [
    "PretrainedSentencePieceTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "TokenizerPair",
    "WordPieceTokenizer",
    "load_tokenizers",
    "tokenizer_filenames",
]

_CLASSES: dict[str, type[Tokenizer]] = {
    "bpe": SentencePieceTokenizer,
    "unigram": SentencePieceTokenizer,
    "wordpiece": WordPieceTokenizer,
    "sentencepiece": PretrainedSentencePieceTokenizer,
}


def load_tokenizers(
    directory: str | os.PathLike[str], config: TokenizerConfig, normalization: NormalForm
) -> TokenizerPair:
    """Loads the tokenizers of both languages from a model directory.

    Args:
        config: the section `tokenizer` of the model's configuration.
        normalization: the model's `data.normalize`.

    Raises:
        InvalidFileError: If a file is missing or is not a file of this tokenizer kind.
        DamagedFileError: If a file does not match its checksum.
    """
    tokenizers = []
    for name in tokenizer_filenames(config):
        path = pathlib.Path(directory, name)
        if not path.is_file():
            raise InvalidFileError(f"{path}: the tokenizer file is missing")
        # Check the size before the checksum, which reads the whole file.
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidFileError(f"{path}: the file must have at most {MAX_FILE_BYTES:,} bytes")
        require_undamaged(path)
        try:
            tokenizers.append(_CLASSES[config.kind].load(path, normalization))
        except ValueError as error:
            raise InvalidFileError(f"{path}: {error}") from None
    return TokenizerPair(tokenizers[0], tokenizers[-1])


def tokenizer_filenames(config: TokenizerConfig) -> tuple[str, ...]:
    """Returns the names of the tokenizer files: a shared file, or a file per language."""
    return _CLASSES[config.kind].filenames(config.shared)
