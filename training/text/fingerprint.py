"""By what a resumed training notices that its text is another one."""

import hashlib
from collections.abc import Iterable
from typing import Any

from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir

# For "train" and "valid": the number of lines, and the SHA-256 of the lines of "source" and of "target".
Fingerprint = dict[str, dict[str, Any]]
_NAMES = {"train": "training", "valid": "validation"}


class TextHash:
    """The fingerprint of a parallel text that is read in chunks."""

    def __init__(self) -> None:
        self._lines = 0
        self._hashes = {"source": hashlib.sha256(), "target": hashlib.sha256()}

    def __len__(self) -> int:
        """The number of lines so far."""
        return self._lines

    def add(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Adds the next lines."""
        for side, lines in zip(self._hashes, (list(sources), list(targets)), strict=True):
            self._hashes[side].update("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
        self._lines += len(lines)

    def fingerprint(self) -> dict[str, Any]:
        """Returns the number of lines, and the SHA-256 of each side."""
        return {"lines": self._lines, **{side: hash_.hexdigest() for side, hash_ in self._hashes.items()}}


def require_same_text(model_dir: ModelDir, before: Fingerprint, now: Fingerprint) -> None:
    """Checks that a resumed training has the text that it began with.

    Args:
        model_dir: ModelDir.
        before: Fingerprint of the text before; what it does not have is not checked.
        now: Fingerprint of the text now.

    Raises:
        ConfigError: The text is another one; the message says what differs.
    """
    differences = [
        f"the {_NAMES[name]} text {difference}"
        for name in before
        if (difference := _difference(before[name], now[name])) is not None
    ]
    if differences:
        raise ConfigError(
            f"{model_dir}: this training began with another text: {'; '.join(differences)}. Give the same text, train "
            "into another --model-dir, or go on with this text by --allow-changed-text"
        )


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    if before == now:
        return None
    if (before["source"], before["target"]) == (now["target"], now["source"]):
        return "has source and target swapped"
    sides = " and ".join(side for side in ("source", "target") if before[side] != now[side])
    lines = f"{now['lines']:,} lines, {before['lines']:,} before"
    return f"has another {sides} ({lines if before['lines'] != now['lines'] else 'as many lines'})"
