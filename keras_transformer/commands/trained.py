"""The trained model that a command translates with."""

import dataclasses
import logging
import pathlib
from typing import TYPE_CHECKING, NamedTuple, cast

from ..config import Config, DecodingConfig
from ..config.rules import shown
from ..config.values import Language, Precision, PrecisionOrAuto, listed
from ..errors import ConfigError, InvalidFileError
from ..runtime.backend import tensorflow_backend

if TYPE_CHECKING:
    from ..model_dir import ModelDir
    from ..translation import Translator

_log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """What is known of a trained model before TensorFlow is loaded.

    Attributes:
        model_dir: ModelDir. It has weights.
        config: Config.
        decoding: DecodingConfig. Unlike `config.decoding`, it may be changed.
    """

    model_dir: "ModelDir"
    config: Config
    decoding: DecodingConfig


def read_trained(
    path: str,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    tag: str | None = None,
    keep: str | None = None,
    terms: str | None = None,
) -> Trained:
    """Reads the configuration of a model directory.

    Args:
        path: str. The path of the directory.
        beam_size: int or None. Replaces that of the configuration. Defaults to None: it does not.
        length_penalty: float or None. Replaces that of the configuration. Defaults to None: it does not.
        tag: str or None. Replaces that of the configuration. Defaults to None: it does not.
        keep: str or None. The path of a file of terms, one per line, that stay as they are, beside those of the
            configuration. Defaults to None: there are no others.
        terms: str or None. The path of a glossary, see `read_glossary`, beside that of the configuration, before which
            it goes. Defaults to None: there is no other.

    Raises:
        ConfigError: It is not a model directory, it has no weights, a value breaks its rule, or no tag is given for a
            model that knows tagged sources only.
        InvalidFileError: A file of terms is not as it must be.
    """
    from ..model_dir import ModelDir

    model_dir = ModelDir(path)
    config = model_dir.read_config()
    model_dir.require_weights()
    decoding = config.decoding
    if beam_size is not None:
        decoding = dataclasses.replace(decoding, beam_size=beam_size)
    if length_penalty is not None:
        decoding = dataclasses.replace(decoding, length_penalty=length_penalty)
    if tag is not None:
        decoding = dataclasses.replace(decoding, tag=tag)
    trained_with = config.data.tags or [None]
    if decoding.tag is None and None not in trained_with:
        raise ConfigError(
            f"{model_dir}: the model was trained with tagged sources only; give --tag, one of "
            f"{listed(dict.fromkeys(tag for tag in trained_with if tag))}"
        )
    if keep is not None:
        if not decoding.placeholders:
            raise ConfigError("--keep needs a model that was trained with decoding.placeholders=true")
        decoding = dataclasses.replace(decoding, keep=[*(decoding.keep or ()), *_terms(keep)])
    if terms is not None:
        decoding = dataclasses.replace(decoding, terms={**(decoding.terms or {}), **read_glossary(terms)})
    return Trained(model_dir, config, decoding)


def read_glossary(path: str) -> dict[str, str]:
    """Reads the translations of terms from a file with a term, a tab and its translation in each line.

    Raises:
        InvalidFileError: The file is not text, has no term, or a line is not as it must be.
    """
    glossary: dict[str, str] = {}
    lines_of: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            rule = "a line must have a term, a tab and its translation"
            raise InvalidFileError(f"{path}, line {number}: {rule}; received {shown(line)}")
        term, translation = columns
        if term in glossary:
            before = f"which line {lines_of[term]} has already"
            raise InvalidFileError(
                f"{path}, line {number}: a term must be given once; received {shown(term)}, {before}"
            )
        glossary[term], lines_of[term] = translation, number
    if not glossary:
        raise InvalidFileError(f"{path}: the file must have a term, a tab and its translation in a line")
    return glossary


def _lines(path: str) -> list[str]:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidFileError(f"{path}: the file must be text in UTF-8") from None


def _terms(path: str) -> list[str]:
    lines = _lines(path)
    if not (terms := [line.strip() for line in lines if line.strip()]):
        raise InvalidFileError(f"{path}: the file must have a term in a line")
    return terms


def load_translator(
    trained: Trained,
    precision: PrecisionOrAuto = "float32",
    language: Language | None = None,
    shortlist: bool = True,
) -> "Translator":
    """Loads TensorFlow and the model. The log says why a precision was chosen."""
    with tensorflow_backend():
        from ..runtime.device import choose_precision, divide_cores
        from ..translation.search import PARALLEL_SEARCHES, TOKENS_PER_STEP
        from ..translation.translator import Translator

        divide_cores(PARALLEL_SEARCHES)
        chosen = choose_precision(trained.config.model, TOKENS_PER_STEP) if precision == "auto" else None
    if chosen is not None:
        _log.info(f"precision: {chosen.precision}, because {chosen.reason}")
        precision = cast(Precision, chosen.precision)  # float16 is chosen for training only.
    precision = cast(Precision, precision)
    return Translator.from_config(trained.model_dir, trained.config, trained.decoding, precision, language, shortlist)
