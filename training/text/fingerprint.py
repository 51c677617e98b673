"""Fingerprints of texts, by which a resumed training run notices that its text has changed."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypedDict

from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir

from .corpus import in_chunks
from .filters import Pair


class TextFingerprint(TypedDict):
    """The number of lines of a text, and the SHA-256 of the lines of each side."""

    lines: int
    source: str
    target: str


# By the name of the text, "train" or "valid".
Fingerprint = dict[str, TextFingerprint]

_NAMES = {"train": "training", "valid": "validation"}


class TextHash:
    """The fingerprint of a parallel text that is read in chunks."""

    def __init__(self) -> None:
        self._num_lines = 0
        self._source, self._target = hashlib.sha256(), hashlib.sha256()

    def add(self, sources: Iterable[str], targets: Sequence[str]) -> None:
        for hash_, lines in ((self._source, sources), (self._target, targets)):
            hash_.update("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
        self._num_lines += len(targets)

    def fingerprint(self) -> TextFingerprint:
        return {"lines": self._num_lines, "source": self._source.hexdigest(), "target": self._target.hexdigest()}


def fingerprint_of(pairs: Iterable[Pair]) -> TextFingerprint:
    text = TextHash()
    for chunk in in_chunks(iter(pairs)):
        text.add(*zip(*chunk))
    return text.fingerprint()


def require_same_text(model_dir: ModelDir, before: Fingerprint, now: Fingerprint) -> None:
    """Raises a ConfigError that says how a text of `before`, with which a run was started, has changed."""
    differences = [
        f"the {_NAMES[name]} text {difference}"
        for name in before
        if (difference := _difference(before[name], now[name])) is not None
    ]
    if differences:
        raise ConfigError(
            f"{model_dir}: this training run started with another text: {'; '.join(differences)}. Use the "
            "same text, train in another --model-dir, or continue with this text: --allow-changed-text"
        )


def _difference(before: TextFingerprint, now: TextFingerprint) -> str | None:
    if before == now:
        return None
    if (before["source"], before["target"]) == (now["target"], now["source"]):
        return "has source and target swapped"
    changed = {"source": before["source"] != now["source"], "target": before["target"] != now["target"]}
    sides = " and ".join(side for side, is_changed in changed.items() if is_changed)
    lines = f"{now['lines']:,} lines, {before['lines']:,} before"
    return f"has another {sides} ({lines if before['lines'] != now['lines'] else 'as many lines'})"
