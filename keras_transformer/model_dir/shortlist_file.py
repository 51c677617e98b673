"""Reads and writes `shortlist.npz`, the target tokens that may translate each source token."""

import hashlib
import pathlib
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import numpy as np

from ..errors import InvalidFileError
from .files import reading_archive, replacing_with_checksum


class Shortlist(NamedTuple):
    """Target tokens that search considers."""

    # Possible translations of each source token, padded with 0.
    by_source: Annotated[np.ndarray, "int32 (source_vocab_size, n)"]
    # Tokens that may occur in any translation, in ascending order, including 0 to 3.
    always: Annotated[np.ndarray, "int32 (m,)"]


def write_shortlist(
    path: pathlib.Path, shortlist: Shortlist, tokenizer_files: Iterable[bytes]
) -> None:
    """Writes a shortlist and its checksum.

    Args:
        tokenizer_files: contents of the tokenizer files that define the token ids.
    """
    largest = max(shortlist.by_source.max(initial=0), shortlist.always.max())
    dtype = np.uint16 if largest < 2**16 else np.int32
    with replacing_with_checksum(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(
            file,
            by_source=shortlist.by_source.astype(dtype),
            always=shortlist.always.astype(dtype),
            tokenizers=np.array(_digest(tokenizer_files)),
        )


def read_shortlist(
    path: pathlib.Path,
    source_vocab_size: int,
    target_vocab_size: int,
    tokenizer_files: Iterable[bytes],
) -> Shortlist:
    """Reads a shortlist.

    Args:
        tokenizer_files: contents of the model's tokenizer files.

    Raises:
        DamagedFileError: If the file is damaged.
        InvalidFileError: If the shortlist was made with other tokenizers.
    """
    with reading_archive(path, "the shortlist") as arrays:
        tokenizers = arrays["tokenizers"]
        by_source = arrays["by_source"]
        always = arrays["always"]
        if str(tokenizers) != _digest(tokenizer_files):
            raise InvalidFileError(
                f"{path}: the shortlist was made with other tokenizers; "
                "rebuild it with keras-transformer build-shortlist, or remove it"
            )
        for name, ids, rank in (("by_source", by_source, 2), ("always", always, 1)):
            is_of_ids = ids.dtype.kind in "iu" and ids.ndim == rank
            if not is_of_ids or not ((ids >= 0) & (ids < target_vocab_size)).all():
                raise ValueError(f"{name} does not hold ids of target tokens")
        if len(by_source) != source_vocab_size or not np.isin(range(4), always).all():
            raise ValueError("tokens are missing")
    return Shortlist(by_source.astype("int32"), always.astype("int32"))


def _digest(tokenizer_files: Iterable[bytes]) -> str:
    return " ".join(hashlib.sha256(content).hexdigest() for content in tokenizer_files)
