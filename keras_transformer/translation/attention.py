"""Attention weights of all layers and heads for a translation, as arrays, a plot or a web page."""

import contextlib
import json
import os
import pathlib
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import numpy as np
import tensorflow as tf

from ..checks import picture_path, text_not_blank
from ..config.model import AttentionKind, AttentionView
from ..model_dir.files import replacing
from ..models import Transformer
from ..runtime.fonts import font_families
from ..tensors import Tensor
from .translator import Translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The page stores weights as integers in units of 1/10,000.
WEIGHT_UNIT = 10_000
# Limits the resolution of pictures with many layers and heads and a long sentence.
_MOST_PIXELS = 5e7
# Matches a byte piece, which encodes a byte of a character that is not in the vocabulary.
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_PAGE = pathlib.Path(__file__).with_name("attention_page.html")


class Attention(NamedTuple):
    """Attention weights of a stack of layers for a sentence.

    Attributes:
        weights: attention weights. Each row sums to 1.
        queries: tokens that attend, one for each row. In the decoder, each row contains the
            attention weights of the step that predicted its token.
        keys: tokens that are attended to, one for each column. In the decoder's self-attention,
            they start with the start token and do not include the last query.
    """

    weights: Annotated[
        np.ndarray, "float32 (num_layers, num_heads, number of queries, number of keys)"
    ]
    queries: list[str]
    keys: list[str]


class TranslationAttention(NamedTuple):
    """A text with its translation and attention weights.

    Attributes:
        text: source text.
        translation: translation of the text.
        by_kind: attention weights, with the keys "cross", "encoder" and "decoder".
    """

    text: str
    translation: str
    by_kind: dict[AttentionKind, Attention]


def translate_with_attention(translator: Translator, text: str) -> TranslationAttention:
    """Translates a text and returns the attention weights of all layers and heads.

    Args:
        translator: translator with a `Transformer`.
        text: text that is not blank.

    Raises:
        ConfigError: If the text is blank or contains a lone surrogate.
    """
    text_not_blank("text", text)
    model = cast(Transformer, translator.model)
    tokenizers = translator.tokenizers
    source = translator.token_ids([text])
    translations = translator.graph.search(tf.constant([text]))
    token_ids = np.asarray(translations.token_ids)[0, 0]
    labels = token_ids[token_ids != tokenizers.target.pad_id]
    target = np.concatenate([[tokenizers.target.start_id], labels[:-1]])[None, :]
    source_pieces = tokenizers.source.pieces(source[0])
    written = tokenizers.target.pieces(labels)
    before = tokenizers.target.pieces(target[0])

    encoded, source_mask = model.encode(source)
    _, encoder_weights = model.encoder(
        model.source_embedding(source), mask=source_mask, return_attention_scores=True
    )
    _, decoder_weights, cross_weights = model.decoder(
        model.target_embedding(target),
        encoded,
        source_mask=source_mask,
        return_attention_scores=True,
    )
    by_kind: dict[AttentionKind, Attention] = {
        "cross": Attention(_stacked(cross_weights), written, source_pieces),
        "encoder": Attention(_stacked(encoder_weights), source_pieces, source_pieces),
        "decoder": Attention(_stacked(decoder_weights), written, before),
    }
    return TranslationAttention(text, np.asarray(translations.texts)[0, 0].decode(), by_kind)


def plot_attention(
    translator: Translator,
    text: str,
    path: str | os.PathLike[str],
    view: AttentionView | None = None,
) -> str:
    """Plots the attention of a model while it translates a text.

    Args:
        translator: translator with a `Transformer`.
        text: text that is not blank.
        path: .png, .svg or .pdf file for a picture with a panel for each layer and head, or .html
            file for an interactive page, which shows the attention of the selected token for every
            kind of attention, layer and head.
        view: layers and heads in the picture, or in the initial view of the page. Defaults to the
            decoder's attention to the source in the last layer.

    Returns:
        The translation.

    Raises:
        ConfigError: If the text is blank, the path has another suffix, or the model does not have
            the layer or head.
    """
    path = os.fspath(path)
    view = view or AttentionView()
    picture_path("output", path)
    config = translator.model.config
    layers, heads = view.layers(config), view.heads(config)
    attention = translate_with_attention(translator, text)
    with replacing(path) as temporary:
        if path.lower().endswith(".html"):
            page = attention_page(attention, view.kind, layers[-1], heads)
            temporary.write_text(page, encoding="utf-8")
        else:
            figure = attention_figure(attention.by_kind[view.kind], layers, heads)
            width, height = figure.get_size_inches()
            figure.savefig(temporary, dpi=min(150, (_MOST_PIXELS / width / height) ** 0.5))
    return attention.translation


def attention_figure(attention: Attention, layers: list[int], heads: list[int]) -> "Figure":
    """Plots a row of panels for each layer, with a panel for each head.

    Layers and heads are numbered from 0.
    """
    from matplotlib.figure import Figure

    weights, queries, keys = attention
    width = 0.28 * len(keys) * len(heads) + 2
    height = (0.28 * len(queries) + 1.5) * len(layers)
    figure = Figure(figsize=(width, height), layout="constrained")
    font = {"fontsize": 8, "parse_math": False, "family": font_families([*keys, *queries])}
    panels = figure.subplots(len(layers), len(heads), sharex=True, sharey=True, squeeze=False)
    for layer, row in zip(layers, panels, strict=True):
        for head, panel in zip(heads, row, strict=True):
            panel.imshow(weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
            panel.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            # `parse_math=False` keeps "$" in a token from starting a formula.
            panel.set_xticks(range(len(keys)), keys, rotation=90, **font)
            panel.set_yticks(range(len(queries)), queries, **font)
    return figure


def attention_page(
    attention: TranslationAttention, kind: AttentionKind, layer: int, heads: Sequence[int]
) -> str:
    """Returns a self-contained HTML page, which needs no other files and no network.

    Args:
        attention: text with its translation and attention weights.
        kind: kind of attention in the initial view.
        layer: layer in the initial view, from 0.
        heads: heads in the initial view, from 0. If there are several, the initial view shows the
            mean of all heads.
    """
    source, target = _direction(attention.text), _direction(attention.translation)
    directions = {
        "cross": (target, source),
        "encoder": (source, source),
        "decoder": (target, target),
    }
    data = {
        "text": attention.text,
        "translation": attention.translation,
        "directions": [source, target],
        "unit": WEIGHT_UNIT,
        "shown": {"kind": kind, "layer": layer, "head": heads[0] if len(heads) == 1 else None},
        "attention": {
            name: {
                "queries": readable(queries),
                "keys": readable(keys),
                "directions": directions[name],
                "weights": np.rint(weights * WEIGHT_UNIT).astype(int).tolist(),
            }
            for name, (weights, queries, keys) in attention.by_kind.items()
        },
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Escape text, so that it cannot close the script element.
    text = text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return _PAGE.read_text(encoding="utf-8").replace("{{data}}", text)


def readable(pieces: Sequence[str]) -> list[str]:
    """Replaces byte pieces with the characters that they encode.

    Example:
        >>> readable(["▁", "<0xC3>", "<0xA9>", "<0x24>"])
        ['▁', 'é 1/2', 'é 2/2', '$']
    """
    labels = list(pieces)
    # A character has one to four bytes. An incomplete character cannot be decoded.
    for length in range(1, 5):
        for start in range(len(pieces) - length + 1):
            matches = [_BYTE.fullmatch(piece) for piece in pieces[start : start + length]]
            encoded = bytes(int(byte[1], 16) for byte in matches if byte)
            with contextlib.suppress(UnicodeDecodeError):
                if len(encoded) == length and len(character := encoded.decode()) == 1:
                    parts = [f"{character} {part}/{length}" for part in range(1, length + 1)]
                    labels[start : start + length] = [character] if length == 1 else parts
    return labels


def _direction(text: str) -> str:
    """Returns the writing direction of a text, "ltr" or "rtl", by its first directional letter."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction == "L":
            return "ltr"
        if direction in ("R", "AL"):
            return "rtl"
    return "ltr"


def _stacked(
    weights: list[Annotated[Tensor, "(1, num_heads, number of queries, number of keys)"]],
) -> np.ndarray:
    return np.stack([np.asarray(layer_weights, "float32")[0] for layer_weights in weights])
