"""Unicode normalization of texts (UAX #15), in Python and inside the TensorFlow graph."""

import unicodedata
from typing import Annotated, Literal

import tensorflow_text as tf_text

from ..tensors import Tensor

# Values of `data.normalize`. "none" leaves text unchanged.
NormalForm = Literal["none", "nfc", "nfkc"]

# Maximum factor by which normalization reduces the number of bytes. NFKC turns a mathematical
# letter of four bytes into a plain letter of one byte. The maximum for NFC is three, for Korean
# syllables.
LARGEST_SHRINKAGE = 4


def normalize_text(text: str, normalization: NormalForm) -> str:
    """Applies Unicode normalization to a text."""
    if normalization == "none":
        return text
    return unicodedata.normalize("NFC" if normalization == "nfc" else "NFKC", text)


def normalize_texts(
    texts: Annotated[Tensor, "string, of any shape"], normalization: NormalForm
) -> Tensor:
    """Applies Unicode normalization to texts, which must be valid UTF-8, inside the graph."""
    if normalization == "none":
        return texts
    return tf_text.normalize_utf8(texts, "NFC" if normalization == "nfc" else "NFKC")
