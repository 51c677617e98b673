"""A picture of the attention from a translation to its source (as in the paper's appendix)."""

import pathlib

import numpy as np

from .files import replacing
from .masks import padding_mask
from .translator import Translator

_SUFFIXES = (".png", ".svg", ".pdf")


def source_attention(translator, text):
    """Translates a text, and gives what the decoder's last layer looked at.

    Args:
        translator: a `Translator`.
        text: a string that is not blank.

    Returns:
        The weights, (num_heads, target length, source length), the source's pieces and those of the translation, end
        tokens included. Row `t` is what piece `t` was chosen from.

    Raises:
        ValueError: the text is blank.
    """
    if not text.strip():
        raise ValueError(f"text must not be blank; received {text!r}")
    model, tokenizer = translator.model, translator.tokenizer
    source = translator.token_ids([text])
    labels = translator.token_ids(translator([text]))
    target = np.concatenate([[[tokenizer.start_id]], labels[:, :-1]], axis=1)
    source_mask = padding_mask(source)
    encoded = model.encoder(model.source_embedding(source), mask=source_mask)
    hidden = model.target_embedding(target)
    *before, last = model.decoder.layers
    for layer in before:
        hidden = layer(hidden, encoded, source_mask=source_mask)
    weights = last.source_attention_scores(hidden, encoded, source_mask=source_mask)
    return np.array(weights)[0], tokenizer.pieces(source[0]), tokenizer.pieces(labels[0])


def plot_attention(translator, text, path):
    """Draws `source_attention`, a panel for each head.

    Args:
        translator: a `Translator`.
        text: a string that is not blank.
        path: where the picture is written, a .png, .svg or .pdf file.

    Returns:
        The translation.

    Raises:
        ValueError: the text is blank, or the file's suffix is none of the three.
    """
    path = pathlib.Path(path)
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"output must end in one of {', '.join(_SUFFIXES)}; received {str(path)!r}")
    from matplotlib.figure import Figure

    weights, source, target = source_attention(translator, text)
    figure = Figure(
        figsize=(0.28 * len(source) * len(weights) + 2, 0.28 * len(target) + 1.5), layout="constrained"
    )
    panels = figure.subplots(1, len(weights), sharey=True, squeeze=False)[0]
    for head, (panel, of_head) in enumerate(zip(panels, weights), start=1):
        panel.imshow(of_head, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"head {head}", fontsize=9)
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8)
    panels[0].set_yticks(range(len(target)), target, fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
    return translator([text])[0]
