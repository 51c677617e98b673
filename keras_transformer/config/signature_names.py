"""The names of a servable's signatures."""

from typing import Literal

SignatureName = Literal[
    "serving_default",
    "translate",
    "translate_n_best",
    "translate_with_prefix",
    "translate_document",
    "score",
    "align",
    "tokenize",
    "detokenize",
    "encode",
]
