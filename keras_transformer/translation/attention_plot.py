"""A picture of the attention from a translation to its source (as in the paper's appendix)."""

import os
from typing import cast

import numpy as np
import tensorflow as tf

from ..config.rules import PicturePath, Sentence, check
from ..model_dir.files import replacing
from ..models import Transformer
from .forced_decoding import attention_to_source
from .translator import Translator


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
    check("text", text, Sentence)
    model, tokenizers = cast(Transformer, translator.model), translator.tokenizers
    found = translator.search(tf.constant([text]))
    chosen = np.asarray(found.token_ids)[0, 0]
    labels = chosen[chosen != tokenizers.target.pad_id]
    source = translator.token_ids([text])
    weights = attention_to_source(model, tf.constant(source), tf.constant(labels[None]))
    translation = np.asarray(found.texts)[0, 0].decode()
    pieces = tokenizers.source.pieces(source[0]), tokenizers.target.pieces(labels)
    return np.array(weights)[0], *pieces, translation


def plot_attention(translator: Translator, text: str, path: str | os.PathLike[str]) -> str:
    """Draws what the decoder's last layer attended to, one panel for each head.

    Args:
        translator: Translator, of a Transformer.
        text: str, not blank.
        path: str or path of the picture, a .png, .svg or .pdf file.

    Returns:
        The translation.

    Raises:
        ConfigError: The text is blank, or the path has another suffix.
    """
    from matplotlib.figure import Figure

    check("output", os.fspath(path), PicturePath)
    weights, source, target, translation = source_attention(translator, text)
    figure = Figure(figsize=(0.28 * len(source) * len(weights) + 2, 0.28 * len(target) + 1.5), layout="constrained")
    panels = figure.subplots(1, len(weights), sharey=True, squeeze=False)[0]
    for head, (panel, head_weights) in enumerate(zip(panels, weights, strict=True), start=1):
        panel.imshow(head_weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"head {head}", fontsize=9)
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8)
    panels[0].set_yticks(range(len(target)), target, fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return translation
