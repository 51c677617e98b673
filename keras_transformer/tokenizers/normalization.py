"""Unicode normalization of texts (UAX #15), in Python and inside the TensorFlow graph."""

import unicodedata
from typing import Annotated, Literal

import tensorflow_text as tf_text

from ..tensors import Tensor

# The names that `data.normalize` takes; "none" leaves texts as they are.
Normalization = Literal["none", "nfc", "nfkc"]

# A text may have at most this many times the bytes of its normalized form: a mathematical letter
# has four, the plain letter one. The most of NFC is three, for the syllables of Korean.
LARGEST_SHRINKAGE = 4


def normalize_text(text: str, normalization: Normalization) -> str:
    """Returns a text in a normal form."""
    if normalization == "none":
        return text
    return unicodedata.normalize("NFC" if normalization == "nfc" else "NFKC", text)


def normalize_texts(
    texts: Annotated[Tensor, "string, of any shape"], normalization: Normalization
) -> Tensor:
    """Returns texts in a normal form, inside the graph. They must be valid UTF-8."""
    if normalization == "none":
        return texts
    return tf_text.normalize_utf8(texts, "NFC" if normalization == "nfc" else "NFKC")
