"""The scores that `evaluate` measured last, in the model directory, for model cards."""

import hashlib
import json
import logging
import pathlib
from collections.abc import Mapping

from .directory import ModelDir
from .files import replacing

_log = logging.getLogger(__name__)


def write_evaluation(model_dir: ModelDir, text: str, scores: Mapping[str, str]) -> None:
    """Writes the scores of the weights to translate with.

    Args:
        model_dir: ModelDir.
        text: on what they were measured, and how.
        scores: each score as it is printed, and its signature.
    """
    content = {"weights_sha256": _weights_sha256(model_dir), "text": text, "scores": dict(scores)}
    try:
        with replacing(model_dir.evaluation_path) as temporary:
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        _log.warning(f"{error}; model cards will not show the scores")


def read_evaluation(model_dir: ModelDir) -> list[str]:
    """Returns scores with their signatures and what they were measured on; none if they are of other weights."""
    path = pathlib.Path(model_dir.evaluation_path)
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["weights_sha256"] != _weights_sha256(model_dir):
            return []
        return [f"{score} ({signature}), {content['text']}" for score, signature in content["scores"].items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        _log.warning(f"{path}: not a file that evaluate wrote; the model card does not show its scores")
        return []


def _weights_sha256(model_dir: ModelDir) -> str:
    with open(model_dir.weights_path(), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
