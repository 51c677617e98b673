"""The section `tokenizer`: how text becomes tokens."""

import dataclasses
from typing import Annotated, Literal

from .rules import at_least, at_most, check_fields

LearnedTokenizerKind = Literal["bpe", "unigram", "wordpiece"]
TokenizerKind = Literal["bpe", "unigram", "wordpiece", "sentencepiece"]


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes tokens.

    Args:
        kind: "bpe" or "unigram" (SentencePiece) or "wordpiece", which are learned from the training text; or
            "sentencepiece", the SentencePiece model of an imported model. Defaults to "bpe".
        vocab_size: int. Number of tokens, including the four special ones and eight placeholders; 5 to
            1,000,000. Defaults to 8000.
        shared: bool. Whether both languages share one vocabulary, as in the paper. Otherwise each has its own, of
            `vocab_size` tokens, and `model.tie_embeddings` must be "target" or "none". Defaults to True.

    Raises:
        ConfigError: A value breaks its rule.
    """

    kind: TokenizerKind = "bpe"
    vocab_size: Annotated[int, at_least(5), at_most(1_000_000)] = 8000
    shared: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")
