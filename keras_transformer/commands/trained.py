"""Loads the trained model for a command, and translates or scores lines of text in blocks."""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ..checks import require, shown
from ..config import Config, DecodingConfig
from ..config.sections import MAX_TERMS
from ..config.values import Precision, PrecisionOrAuto, listed
from ..errors import ConfigError, InvalidFileError, naming_source
from ..runtime.packages import tensorflow_backend
from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import LINES_PER_BLOCK

if TYPE_CHECKING:
    from ..model_dir import ModelDir
    from ..translation import Sampling, Translator
    from ..translation.shapes import SearchShapes

Item = TypeVar("Item")

# 5,000 terms of 200 characters each.
_MAX_CHARACTERS = 1_000_000

_log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """A trained model with the options of a command, before TensorFlow is loaded."""

    model_dir: "ModelDir"  # A directory with weights.
    config: Config
    decoding: DecodingConfig  # Search settings, changed by the options of the command.
    precision: PrecisionOrAuto
    shortlist: bool  # Whether to use the shortlist of the model directory, if there is one.


def read_trained(path: str, options: argparse.Namespace) -> Trained:
    """Reads the configuration of a model directory and applies the options of a command.

    Terms from the options are added to the terms in the configuration. Other options replace its
    values.
    """
    from ..model_dir import ModelDir
    from ..model_dir.directory import require_fitting

    model_dir = ModelDir(path)
    config = model_dir.read_config()
    require_fitting(model_dir.weights_path(), config.model)
    given = {name: value for name, value in vars(options).items() if value is not None}
    changes: dict[str, Any] = {
        name: given[name] for name in ("beam_size", "length_penalty", "tag") if name in given
    }
    if "keep" in given:
        if not config.decoding.placeholders:
            raise ConfigError(
                "--keep needs a model that was trained with decoding.placeholders=true"
            )
        keep = [line.strip() for _, line in _numbered_lines(given["keep"], "a term")]
        changes["keep"] = [*(config.decoding.keep or ()), *keep]
    if glossary := glossary_of(options):
        changes["terms"] = {**(config.decoding.terms or {}), **glossary}
    added = [f"--{name}" for name in ("keep", "terms") if name in changes]
    with naming_source(", ".join(added)) if added else contextlib.nullcontext():
        decoding = dataclasses.replace(config.decoding, **changes)
    # For other export formats, the user puts the tag in front of each source.
    uses_tag = given.get("format", "saved-model") == "saved-model"
    if uses_tag and decoding.tag is None and config.data.tags and None not in config.data.tags:
        tags = listed(dict.fromkeys(tag for tag in config.data.tags if tag))
        # Some commands do not have --tag, and in `score` it does not apply to the reverse model.
        needed = (
            "give --tag,"
            if "tag" in vars(options)
            else f"set decoding.tag in {model_dir.config_path} to"
        )
        raise ConfigError(
            f"{model_dir}: the model was trained with tagged sources only; {needed} one of {tags}"
        )
    return Trained(
        model_dir,
        config,
        decoding,
        given.get("precision", "float32"),
        not given.get("no_shortlist", False),
    )


def glossary_of(options: argparse.Namespace) -> dict[str, str] | None:
    """Returns the terms of --terms. The file is read only once, because it may be a pipe."""
    terms = getattr(options, "terms", None)
    if terms is not None and not isinstance(terms, dict):
        options.terms = terms = read_glossary(terms)
    return terms


def read_glossary(path: str) -> dict[str, str]:
    """Reads a glossary file with a term, a tab and its translation in each line.

    Raises:
        InvalidFileError: If a line is invalid.
    """
    glossary: dict[str, str] = {}
    lines_of: dict[str, int] = {}
    for number, line in _numbered_lines(path, "a term, a tab and its translation"):
        columns = [column.strip() for column in line.split("\t")]
        place = f"{path}, line {number}"
        if len(columns) != 2 or not all(columns):
            rule = "a line must have a term, a tab and its translation"
            raise InvalidFileError(f"{place}: {rule}; received {shown(line)}")
        term, translation = columns
        if term in glossary:
            raise InvalidFileError(
                f"{place}: duplicate term {shown(term)}; it is already in line {lines_of[term]}"
            )
        glossary[term], lines_of[term] = translation, number
    return glossary


def _numbered_lines(path: str, content: str) -> list[tuple[int, str]]:
    """Returns the lines of a file that are not blank, with their numbers.

    Raises:
        InvalidFileError: If there are no such lines, or too many.
    """
    from ..text import read_lines_once

    lines = []
    size = 0
    for number, line in enumerate(read_lines_once(path), start=1):
        if line.strip():
            lines.append((number, line))
        size += len(line) + 1
        if len(lines) > MAX_TERMS or size > _MAX_CHARACTERS:
            raise InvalidFileError(
                f"{path}: the file must have at most {MAX_TERMS:,} terms, in "
                f"{_MAX_CHARACTERS:,} characters; it has more"
            )
    if not lines:
        raise InvalidFileError(f"{path}: the file has no terms; each line must have {content}")
    for number, line in lines:
        if "\0" in line:
            raise InvalidFileError(
                f"{path}, line {number}: a line must not have a NUL character; received "
                f"{shown(line)}"
            )
    return lines


def check_n_best(n_best: int, trained: Trained, options: argparse.Namespace) -> None:
    """Raises a ConfigError if `n_best` is greater than the beam size."""
    beam_size = trained.decoding.beam_size
    limit = f"--beam-size={beam_size}"
    if options.beam_size is None:
        limit = f"decoding.beam_size={beam_size} of {trained.model_dir.config_path}"
    require(n_best <= beam_size, "--n-best", f"at most {limit}", n_best)


def load_translator(trained: Trained, language: str | None = None) -> "Translator":
    """Loads TensorFlow and the model, and logs the reason for an automatic precision."""
    with tensorflow_backend():
        from ..runtime.device import choose_precision, divide_cores
        from ..translation.search import PARALLEL_SEARCHES
        from ..translation.translator import Translator

        divide_cores(PARALLEL_SEARCHES)
        precision, reason = trained.precision, ""
        if precision == "auto":
            chosen, reason = choose_precision()
            # float16 is only chosen for training.
            precision = cast(Precision, chosen)
    if reason:
        _log.info(f"precision: {precision}, because {reason}")
    return Translator.load(
        trained.model_dir, trained.decoding, precision, language, trained.shortlist
    )


def search_shapes_of(options: argparse.Namespace) -> "SearchShapes | None":
    """Returns the shapes of the compiled search, or None without `--compile`."""
    from ..translation.shapes import SearchShapes

    if not options.compile:
        return None
    default = SearchShapes()
    return SearchShapes(
        tuple(options.compile_lengths or default.lengths),
        tuple(options.compile_batches or default.batch_sizes),
    )


def sampling_of(options: argparse.Namespace, first_row: int = 0) -> "Sampling | None":
    """Returns the sampling options, or None without `--sample`."""
    from ..translation import Sampling

    if not options.sample:
        return None
    temperature = 1.0 if options.temperature is None else options.temperature
    return Sampling(options.seed or 0, temperature, options.top_k, options.top_p, first_row)


def numbered_blocks(items: Iterable[Item]) -> Iterator[tuple[int, list[Item]]]:
    """Yields blocks of items, each with the number of its first item, from 1."""
    items = iter(items)
    first = 1
    while block := list(itertools.islice(items, LINES_PER_BLOCK)):
        yield first, block
        first += len(block)


def log_truncated(
    translator: "Translator", lengths: Iterable[int], first: int, file: str = ""
) -> None:
    """Logs the lines, numbered from `first`, that have more tokens than the model's limit."""
    max_length = translator.model.config.max_length
    for number, length in enumerate(lengths, start=first):
        if length > max_length:
            place = f"{file}, line {number}" if file else f"line {number}"
            _log.info(f"{place}: too many tokens, truncated to model.max_length={max_length}")


class UnknownCharacters:
    """Logs a warning, only once, if most letters of a text are not in the source vocabulary."""

    def __init__(self, translator: "Translator") -> None:
        from ..tokenizers.normalization import normalize_text

        tokenizer = translator.tokenizers.source
        self._known = frozenset("".join(tokenizer.pieces(range(tokenizer.vocab_size))))
        self._normalized = functools.partial(normalize_text, normalization=tokenizer.normalization)
        self._has_warned = False

    def look_for(self, texts: Iterable[str | bytes], first: int, file: str = "") -> None:
        """Checks texts, numbered from `first`, and logs a warning about the first such text."""
        from ..scripts import main_script, name_of_script

        if self._has_warned:
            return
        for number, text in enumerate(texts, start=first):
            if isinstance(text, bytes):
                text = text.decode(errors="replace")
            letters = [letter for letter in self._normalized(text) if letter.isalpha()]
            num_unknown = sum(
                # A vocabulary may lack some capitals of a supported script.
                not {letter, letter.lower()} & self._known
                for letter in letters
            )
            if 2 * num_unknown > len(letters):
                place = f"{file}, line {number}" if file else f"line {number}"
                script = name_of_script(main_script(letters))
                _log.warning(
                    f"{place}: the model's vocabulary has {len(letters) - num_unknown} of the "
                    f"{len(letters)} letters ({script}); expect a poor translation of such lines"
                )
                self._has_warned = True
                return


def translate_lines(translator: "Translator", texts: list[str], file: str) -> list[str]:
    """Translates the lines of a file, shows progress, and logs truncated lines."""
    translations: list[str] = []
    unknown = UnknownCharacters(translator)
    with ProgressBar("translating", "lines", len(texts)) as bar:
        for first, block in numbered_blocks(texts):
            unknown.look_for(block, first, file)
            results = translator.translate(block)
            log_truncated(translator, (result.source_length for result in results), first, file)
            translations += [result.hypotheses[0][0] for result in bar.count(results)]
    return translations
