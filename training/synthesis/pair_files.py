"""Files of pairs that a model makes, written so that a run that was stopped goes on after its last block.

    NAME.source, NAME.target    the pairs, to train on
    NAME.json                   the settings that they were made with, and how many were left out
    NAME.unfinished             until then: a line for the settings, and one for each block of the text

All of them are lines of text; the first three appear when everything is made.
"""

import collections
import hashlib
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.model_dir.files import locked, naming_errors, remove_leftovers, replacing
from keras_transformer.rules import shown
from keras_transformer.runtime.progress import ProgressBar, counted

from ..text.corpus import Texts, in_chunks
from ..text.filters import Pair

# What is lost when a run is killed.
LINES_PER_BLOCK = 1024
_REASONS = {"empty": "empty", "too_long": "too long"}

Settings = Mapping[str, object]

_log = logging.getLogger(__name__)


class Made(NamedTuple):
    """What a model makes of a block of lines."""

    pairs: list[Pair]
    num_empty: int  # lines left out because they or their translations are blank
    num_too_long: int  # lines left out because the model would read only their beginnings


def made_of(pairs: Iterable[Pair], is_too_long: Sequence[bool]) -> Made:
    """Leaves out pairs that are too long or blank on one side; what a line must not contain becomes a space."""
    read = [pair for pair, is_left_out in zip(pairs, is_too_long, strict=True) if not is_left_out]
    filled = [(source, target) for source, target in read if source.strip() and target.strip()]
    lines = [(source.replace("\n", " "), target.replace("\n", " ")) for source, target in filled]
    return Made(lines, len(read) - len(filled), sum(is_too_long))


def write_pairs(
    output: str | os.PathLike[str], settings: Settings, lines: Iterator[Texts], make: Callable[[int, list[Texts]], Made]
) -> None:
    """Writes the pairs that are made of the lines of a text; if this was stopped before, it goes on.

    Args:
        output: the beginning of the files' names.
        settings: all that decides about the pairs, except for the text; JSON can hold it.
        lines: a line of each of the files that are read side by side.
        make: takes the number of lines before a block, and its lines.

    Raises:
        ConfigError: What was written before was made with other settings, or of another text; or no pair is left.
        InvalidFileError: The text is empty, or `NAME.unfinished` holds something else.
        LockedError: Another process writes these files.
    """
    output = pathlib.Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(settings))
    with locked(_named(output, "lock"), "another process writes these pairs"):
        remove_leftovers(output.parent)
        finished, unfinished = _named(output, "json"), _named(output, "unfinished")
        if finished.is_file():
            _require_same(finished, settings)
            unfinished.unlink(missing_ok=True)
            _log.info(f"{finished}: these pairs are complete")
            return
        _make_blocks(unfinished, settings, lines, make)
        _finish(output, unfinished, settings)


def _named(output: pathlib.Path, ending: str) -> pathlib.Path:
    return output.with_name(f"{output.name}.{ending}")


def _blocks_before(unfinished: pathlib.Path, settings: Settings) -> list[str]:
    """Returns the hashes of the lines of the blocks that a run before has made."""
    if not unfinished.is_file():
        return []
    _require_same(unfinished, settings)
    with naming_errors(unfinished), open(unfinished, "rb+") as file:
        # A run that is killed may leave a part of a line.
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
    with open(unfinished, encoding="utf-8") as text:
        return [_read(unfinished, line, "lines") for line in itertools.islice(text, 1, None)]


def _require_same(path: pathlib.Path, settings: Settings) -> None:
    """Checks that the first line of a file has these settings."""
    with open(path, encoding="utf-8") as file:
        before = _read(path, file.readline(), "settings")
    for name in [*settings, *before]:
        if before.get(name) != settings.get(name):
            raise ConfigError(
                f"{path}: these pairs were made with {name}={shown(before.get(name))}; received "
                f"{name}={shown(settings.get(name))}. Give the same options, or another --output"
            )


def _read(path: pathlib.Path, line: str, key: str) -> Any:
    try:
        return json.loads(line)[key]
    except (ValueError, LookupError, TypeError):
        raise InvalidFileError(f"{path}: not a file of pairs that are made; received {shown(line)}") from None


def _make_blocks(
    unfinished: pathlib.Path, settings: Settings, lines: Iterator[Texts], make: Callable[[int, list[Texts]], Made]
) -> None:
    """Adds what is missing; what is there must be of the same lines."""
    hashes = _blocks_before(unfinished, settings)
    first = number = 0
    with ProgressBar("translating", "lines") as bar:
        for number, block in enumerate(in_chunks(lines, LINES_PER_BLOCK), start=1):
            hash_ = hashlib.sha256(json.dumps(block).encode()).hexdigest()
            if number > len(hashes):
                _add(unfinished, settings, {"lines": hash_, **make(first, block)._asdict()})
            elif hashes[number - 1] != hash_:
                raise ConfigError(
                    f"{unfinished}: the text has changed after line {first:,}; give the same one, or another --output"
                )
            first += len(block)
            bar.advance(len(block))
    if not number:
        raise InvalidFileError("the text is empty")
    if number < len(hashes):
        raise ConfigError(
            f"{unfinished}: the text ends after line {first:,}, earlier than before; give the same one, or another "
            "--output"
        )


def _add(unfinished: pathlib.Path, settings: Settings, block: Mapping[str, object]) -> None:
    if not unfinished.is_file():
        with replacing(unfinished) as temporary:
            temporary.write_text(f"{json.dumps({'settings': settings})}\n")
    with naming_errors(unfinished), open(unfinished, "a", encoding="utf-8") as file:
        file.write(f"{json.dumps(block, ensure_ascii=False)}\n")
        file.flush()
        os.fsync(file.fileno())


def _finish(output: pathlib.Path, unfinished: pathlib.Path, settings: Settings) -> None:
    counts = collections.Counter[str]()
    source_path, target_path, finished = (_named(output, ending) for ending in ("source", "target", "json"))
    with (
        open(unfinished, encoding="utf-8") as file,
        replacing(source_path) as temporary_source,
        replacing(target_path) as temporary_target,
        open(temporary_source, "w", encoding="utf-8", newline="\n") as sources,
        open(temporary_target, "w", encoding="utf-8", newline="\n") as targets,
    ):
        for line in itertools.islice(file, 1, None):
            made = Made(*(_read(unfinished, line, key) for key in Made._fields))
            counts.update(pairs=len(made.pairs), empty=made.num_empty, too_long=made.num_too_long)
            for source, target in made.pairs:
                sources.write(f"{source}\n")
                targets.write(f"{target}\n")
        if not counts["pairs"]:
            raise ConfigError(
                f"{output}: no pair is left: {counts['empty']:,} are empty on one side, {counts['too_long']:,} are "
                "longer than the model reads"
            )
    with replacing(finished) as temporary:
        temporary.write_text(f"{json.dumps({'settings': settings, **counts})}\n")
    unfinished.unlink()
    left_out = [f"{counts[reason]:,} {name}" for reason, name in _REASONS.items() if counts[reason]]
    remark = f" (left out: {', '.join(left_out)})" if left_out else ""
    _log.info(f"{source_path}, {target_path}: {counted(counts['pairs'], 'sentence pair')}{remark}")
