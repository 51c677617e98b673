"""The configuration: what `config.yaml` in a model directory holds, as five frozen dataclasses.

    model       TransformerConfig   sizes and variations of the network
    tokenizer   TokenizerConfig     how text becomes tokens
    decoding    DecodingConfig      how translations are searched
    training    TrainingConfig      how the model is trained
    data        DataConfig          which pairs of the text it is trained on, and how often

Each is in the module of its name; `TokenizerConfig`, the smallest, is here. The annotation of a field is its rule
(`keras_transformer/rules.py`); rules about several fields are in `__post_init__`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ..rules import at_least, at_most, require
from .data import DataConfig
from .decoding import DecodingConfig
from .mappings import check_fields, check_keys, from_dict, section_of
from .model import TransformerConfig
from .training import TrainingConfig

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


@dataclasses.dataclass(frozen=True)
class Config:
    """All five sections.

    Raises:
        ConfigError: Values of different sections do not fit each other.
    """

    model: TransformerConfig
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    decoding: DecodingConfig = dataclasses.field(default_factory=DecodingConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        kind, tied, neighborhood = self.tokenizer.kind, self.model.tie_embeddings, self.model.neighborhood
        dropout, alignment = self.training.subword_dropout, self.training.guided_alignment
        require(not dropout or kind == "bpe", "training.subword_dropout", f"0 if tokenizer.kind={kind}", dropout)
        # Two imported SentencePiece models may have one vocabulary.
        may_be_tied = self.tokenizer.shared or kind == "sentencepiece"
        rule = "'target' or 'none' if tokenizer.shared=False"
        require(may_be_tied or tied != "all", "model.tie_embeddings", rule, tied)
        rule = f"0 if model.neighborhood={neighborhood}"
        require(not alignment or neighborhood is None, "training.guided_alignment", rule, alignment)

    @classmethod
    def from_sections(cls, sections: Mapping[str, object]) -> "Config":
        """Makes a configuration from mappings; an empty or missing section has its defaults."""
        check_keys(sections, SECTIONS)
        values = {name: from_dict(section, section_of(sections, name), name) for name, section in SECTIONS.items()}
        return cls(**values)

    def with_vocab_sizes(self, source: int, target: int) -> "Config":
        """Returns a copy whose model has the vocabularies that were actually learned."""
        model = dataclasses.replace(self.model, source_vocab_size=source, target_vocab_size=target)
        return dataclasses.replace(self, model=model)


SECTIONS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}
