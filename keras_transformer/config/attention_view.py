"""Which attention of a model a picture shows."""

import dataclasses
from typing import Annotated, Literal

from ..rules import Rule, check, require
from .model import TransformerConfig

AttentionKind = Literal["cross", "encoder", "decoder"]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0


LayerChoice = Annotated[
    str, Rule("a positive number, all or last", lambda text: text in ("all", "last") or _is_number(text))
]
HeadChoice = Annotated[str, Rule("a positive number or all", lambda text: text == "all" or _is_number(text))]


@dataclasses.dataclass(frozen=True)
class AttentionView:
    """Which attention of a model a picture shows. The first layer and the first head have the number 1.

    Args:
        kind: "cross", from the translation to the source; "encoder", from the source to itself; or "decoder", from the
            translation to what was written before.

    Example:
        >>> config = TransformerConfig.preset("base", source_vocab_size=100, target_vocab_size=100)
        >>> view = AttentionView("encoder", layer="all", head="3")
        >>> view.layers(config), view.heads(config)
        ([0, 1, 2, 3, 4, 5], [2])
    """

    kind: AttentionKind = "cross"
    layer: LayerChoice = "last"
    head: HeadChoice = "all"

    def __post_init__(self) -> None:
        for name, rule in (("kind", AttentionKind), ("layer", LayerChoice), ("head", HeadChoice)):
            check(name, getattr(self, name), rule)

    def layers(self, config: TransformerConfig) -> list[int]:
        """Returns the layers of a model that are shown, from 0; a ConfigError if it lacks them or their weights."""
        neighborhood = config.neighborhood
        rule = f"cross for a model with model.neighborhood={neighborhood}, whose self-attention keeps no weights"
        require(self.kind == "cross" or neighborhood is None, "the kind of attention", rule, self.kind)
        number = config.depths[0 if self.kind == "encoder" else 1]
        return [number - 1] if self.layer == "last" else _chosen("layer", self.layer, number)

    def heads(self, config: TransformerConfig) -> list[int]:
        """Returns the heads of a model that are shown, counted from 0; a ConfigError if it has no such head."""
        return _chosen("head", self.head, config.num_heads)


def _chosen(name: str, choice: str, number: int) -> list[int]:
    if choice == "all":
        return [*range(number)]
    require(int(choice) <= number, name, f"at most {number}, as many as the model has", choice)
    return [int(choice) - 1]
