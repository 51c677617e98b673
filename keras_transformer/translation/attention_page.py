"""A page in one file, which shows where each token looks, in any layer and head."""

import contextlib
import json
import pathlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from ..config.attention_view import AttentionKind
from .attention import TranslationAttention

# The page has whole numbers in place of weights: one is 10,000.
WEIGHT_UNIT = 10_000
# A piece that is a byte of a character: the vocabulary lacks the character.
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_TEMPLATE = pathlib.Path(__file__).with_name("attention_page.html")


def attention_page(found: TranslationAttention, kind: AttentionKind, layer: int, heads: Sequence[int]) -> str:
    """Returns the page as HTML, which needs no other file and no network.

    Args:
        found: TranslationAttention.
        kind: which attention is shown at first.
        layer: the layer that is shown at first, counted from 0.
        heads: the heads that are shown at first: one, counted from 0, or several for the mean of all.
    """
    source, target = _direction(found.text), _direction(found.translation)
    directions = {"cross": (target, source), "encoder": (source, source), "decoder": (target, target)}
    data = {
        "text": found.text,
        "translation": found.translation,
        "directions": [source, target],
        "unit": WEIGHT_UNIT,
        "shown": {"kind": kind, "layer": layer, "head": heads[0] if len(heads) == 1 else None},
        "attention": {
            name: {
                "queries": readable(attention.queries),
                "keys": readable(attention.keys),
                "directions": directions[name],
                "weights": np.rint(attention.weights * WEIGHT_UNIT).astype(int).tolist(),
            }
            for name, attention in found.by_kind.items()
        },
    }
    return _TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", _script_json(data))


def readable(pieces: Sequence[str]) -> list[str]:
    """Returns pieces with characters in place of their bytes.

    Example:
        >>> readable(["▁", "<0xC3>", "<0xA9>", "<0x24>"])
        ['▁', 'é 1/2', 'é 2/2', '$']
    """
    labels = list(pieces)
    # The bytes of a character are one to four; a part of them is no character.
    for length in range(1, 5):
        for start in range(len(pieces) - length + 1):
            found = [_BYTE.fullmatch(piece) for piece in pieces[start : start + length]]
            encoded = bytes(int(byte[1], 16) for byte in found if byte)
            with contextlib.suppress(UnicodeDecodeError):
                if len(encoded) == length and len(character := encoded.decode()) == 1:
                    parts = [f"{character} {part}/{length}" for part in range(1, length + 1)]
                    labels[start : start + length] = [character] if length == 1 else parts
    return labels


def _script_json(data: object) -> str:
    """JSON that cannot end the script element that it stands in: without "<", ">" and "&"."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _direction(text: str) -> str:
    """The direction of a text, that of its first letter that has one: "ltr" or "rtl"."""
    classes = (unicodedata.bidirectional(character) for character in text)
    return "rtl" if next((each for each in classes if each in ("L", "R", "AL")), "L") != "L" else "ltr"
