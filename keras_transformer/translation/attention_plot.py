"""A picture of attention (as in the paper's appendix): a panel for each layer and head."""

import os
from typing import TYPE_CHECKING

import numpy as np

from ..config.attention_view import AttentionView
from ..config.rules import PicturePath, Sentence, check
from ..model_dir.files import replacing
from .attention import Attention, translate_with_attention
from .attention_page import attention_page
from .translator import Translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# A picture of many layers and heads and a long sentence has fewer pixels an inch than others.
_MOST_PIXELS = 5e7


def source_attention(translator: Translator, text: Sentence) -> tuple[np.ndarray, list[str], list[str], str]:
    """Translates a text and returns what the decoder's last layer attended to.

    Args:
        translator: Translator, of a Transformer.
        text: str, not blank.

    Returns:
        The weights (num_heads, target length, source length), the tokens of the source, the tokens of the
        translation, both with their end tokens, and the translation. Row `t` of the weights is what token `t` was
        chosen from.

    Raises:
        ConfigError: The text is blank.
    """
    found = translate_with_attention(translator, text)
    cross = found.by_kind["cross"]
    return cross.weights[-1], cross.keys, cross.queries, found.translation


def plot_attention(
    translator: Translator, text: str, path: str | os.PathLike[str], view: AttentionView | None = None
) -> str:
    """Draws what a model attends to while it translates a text.

    Args:
        translator: Translator, of a Transformer.
        text: str, not blank.
        path: str or path of a picture, a .png, .svg or .pdf file, with a panel for each layer and head; or of a .html
            file, which shows every kind of attention, layer and head, of the token that is pointed at.
        view: AttentionView. What the picture shows, and the page at first. Defaults to the attention of the decoder's
            last layer to the source.

    Returns:
        The translation.

    Raises:
        ConfigError: The text is blank, the path has another suffix, or the model has no such layer or head.
    """
    path, view = os.fspath(path), view or AttentionView()
    check("output", path, PicturePath)
    config = translator.model.config
    layers, heads = view.layers(config), view.heads(config)
    found = translate_with_attention(translator, text)
    with replacing(path) as temporary:
        if path.lower().endswith(".html"):
            temporary.write_text(attention_page(found, view.kind, layers[-1], heads), encoding="utf-8")
        else:
            figure = attention_figure(found.by_kind[view.kind], layers, heads)
            width, height = figure.get_size_inches()
            figure.savefig(temporary, dpi=min(150, (_MOST_PIXELS / width / height) ** 0.5))
    return found.translation


def attention_figure(attention: Attention, layers: list[int], heads: list[int]) -> "Figure":
    """Draws a row of panels for each layer, and in it one for each head; both are counted from 0."""
    from matplotlib.figure import Figure

    weights, queries, keys = attention
    width, height = 0.28 * len(keys) * len(heads) + 2, (0.28 * len(queries) + 1.5) * len(layers)
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(len(layers), len(heads), sharex=True, sharey=True, squeeze=False)
    for layer, row in zip(layers, panels, strict=True):
        for head, panel in zip(heads, row, strict=True):
            panel.imshow(weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
            panel.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            # A token may have a "$".
            panel.set_xticks(range(len(keys)), keys, rotation=90, fontsize=8, parse_math=False)
            panel.set_yticks(range(len(queries)), queries, fontsize=8, parse_math=False)
    return figure
