"""Makes sentence pairs with a model: back-translation and distillation.

An interrupted run resumes after its last complete block. A run writes these text files:

    NAME.source, NAME.target    the pairs to train on
    NAME.json                   the settings and the text that the pairs were made with, the numbers
                                of pairs that were left out, and checksums
    NAME.unfinished             until all pairs are made: a line for the settings, and a line for
                                each block of the text

The first three files appear when all pairs are complete.
"""

import collections
import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import sacrebleu

from keras_transformer.checks import shown
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.model_dir.files import locked, naming_errors, replacing
from keras_transformer.runtime.progress import ProgressBar, counted
from keras_transformer.runtime.standard_streams import LINES_PER_BLOCK
from keras_transformer.text import Reread

from ..bleu import choose_tokenizer, make_bleu
from ..text.corpus import TextHash, fingerprint_of, in_chunks
from ..text.filters import Pair

if TYPE_CHECKING:
    from keras_transformer.translation import Sampling, Translator

# An upper limit for the length of the settings or the checksums of a file.
_MAX_RECORD_BYTES = 2**24
_REASONS = {"empty": "empty", "too_long": "too long"}

Metric = Literal["bleu", "chrf"]
Settings = Mapping[str, object]
Value = TypeVar("Value")

_log = logging.getLogger(__name__)


def backtranslate(
    translator: "Translator",
    targets: Iterable[str],
    output: str | os.PathLike[str],
    settings: Settings,
    sampling: "Sampling | None" = None,
) -> None:
    r"""Translates target-language text into the source language, and writes the pairs.

    See Sennrich et al. 2016, arXiv 1511.06709.

    Args:
        translator: Translator. Translates from the target language into the source language.
        targets: iterable of str. The sentences of the text, which are read twice.
        output: str or path. The beginning of the file names. See `write_pairs`, also for the
            errors.
        settings: mapping. Everything that determines the pairs. A run can be resumed only with the
            same settings.
        sampling: Sampling or None. How to draw translations at random, which helps if there is a
            lot of text (Edunov et al. 2018, arXiv 1808.09381). Defaults to None, which searches for
            the best translations.

    Example:
        >>> translator = Translator.load("models/en-de")
        >>> backtranslate(translator, ["Anna sees a tree.", " "], "bt", settings={})
        >>> with open("bt.target") as file:
        ...     file.read()
        'Anna sees a tree.\n'
    """
    max_length = translator.model.config.max_length

    def make(first: int, lines: list[Pair]) -> Made:
        texts = [text for _, text in lines]
        block_sampling = None if sampling is None else sampling._replace(first_row=first)
        results = translator.translate(texts, sampling=block_sampling)
        sources = [result.hypotheses[0][0] for result in results]
        is_too_long = [result.source_length > max_length for result in results]
        return made_of(zip(sources, texts, strict=True), is_too_long)

    write_pairs(output, settings, Reread(lambda: (("", text) for text in targets)), make)


def distill(
    translator: "Translator",
    pairs: Iterable[Pair],
    output: str | os.PathLike[str],
    settings: Settings,
    n_best: int = 1,
    metric: Metric = "bleu",
    tokenize: str | None = None,
) -> None:
    r"""Writes pairs of sources and a teacher's translations (Kim and Rush 2016, arXiv 1606.07947).

    With references, it chooses the translation among the `n_best` that is most similar to the
    reference (sequence-level interpolation in the paper). Ties go to the more probable translation.
    Without references, it uses the best translation.

    Args:
        translator: Translator. The teacher.
        pairs: iterable of (source, reference). The pairs are read twice. Empty references are
            ignored.
        output: str or path. The beginning of the file names. See `write_pairs`, also for the
            errors.
        settings: mapping. Everything that determines the pairs. A run can be resumed only with the
            same settings.
        n_best: int. Number of translations to compare with the reference, at most the beam size.
            Defaults to 1.
        metric: "bleu" or "chrf". The sentence score from sacreBLEU that measures similarity.
            Defaults to "bleu".
        tokenize: str or None. sacreBLEU's tokenizer for BLEU, one of `BLEU_TOKENIZERS`. Defaults to
            None, which chooses the tokenizer for the script of the references.

    Example:
        >>> teacher = Translator.load("models/en-de")
        >>> pairs = [("Anna sees a tree.", "Anna sieht einen Baum.")]
        >>> distill(teacher, pairs, "distilled", settings={}, n_best=4)
        >>> with open("distilled.source") as file:
        ...     file.read()
        'Anna sees a tree.\n'
    """
    max_length = translator.model.config.max_length
    score = sacrebleu.metrics.CHRF()
    if metric == "bleu" and n_best > 1:
        # With effective order, BLEU ignores n-grams that are longer than a short sentence.
        tokenize = tokenize or choose_tokenizer(reference for _, reference in pairs)
        score = make_bleu(tokenize, effective_order=True)

    def make(_: int, lines: list[Pair]) -> Made:
        results = translator.translate([source for source, _ in lines], n_best)
        chosen = []
        for result, (source, reference) in zip(results, lines, strict=True):
            translations = [text for text, _ in result.hypotheses]
            chosen.append((source, most_like(reference, translations, score)))
        is_too_long = [result.source_length > max_length for result in results]
        return made_of(chosen, is_too_long)

    write_pairs(output, settings, pairs, make)


def most_like(
    reference: str, translations: list[str], score: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF
) -> str:
    """Returns the translation with the highest score.

    Ties go to the first translation. A blank reference also selects the first translation.

    Example:
        >>> from sacrebleu.metrics import CHRF
        >>> most_like("a dog runs", ["the cat sits", "a dog ran", "a dog"], CHRF())
        'a dog ran'
    """
    if len(translations) == 1 or not reference.strip():
        return translations[0]
    return max(translations, key=lambda text: score.sentence_score(text, [reference]).score)


class Made(NamedTuple):
    """The pairs that a model makes from a block of lines."""

    pairs: list[Pair]
    num_empty: int  # lines left out because they or their translations are blank
    num_too_long: int  # lines left out because they are longer than the model's maximum length


def made_of(pairs: Iterable[Pair], is_too_long: Sequence[bool]) -> Made:
    """Drops pairs that are too long or blank on one side, and replaces line ends with spaces."""
    read = [pair for pair, is_left_out in zip(pairs, is_too_long, strict=True) if not is_left_out]
    filled = [(source, target) for source, target in read if source.strip() and target.strip()]
    lines = [(source.replace("\n", " "), target.replace("\n", " ")) for source, target in filled]
    return Made(lines, len(read) - len(filled), sum(is_too_long))


def write_pairs(
    output: str | os.PathLike[str],
    settings: Settings,
    pairs: Iterable[Pair],
    make: Callable[[int, list[Pair]], Made],
) -> None:
    """Makes pairs from the lines of a text, and writes them to files.

    An interrupted run resumes where it stopped.

    Args:
        output: The beginning of the file names.
        settings: Everything that determines the pairs, except for the text. The values must be
            JSON-serializable.
        pairs: The lines of the text, in both languages or with an empty side. They are read twice.
        make: Function that accepts the number of lines before a block and the lines of the block,
            and returns `Made`.

    Raises:
        ConfigError: Existing files were made with other settings or from another text, or no pair
            is left.
        InvalidFileError: The text is empty, `NAME.unfinished` contains something else, or files
            that were complete are missing or changed.
        LockedError: Another process is writing these files.
    """
    output = pathlib.Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with locked(output.with_name(f".{output.name}.lock"), "another process is writing these pairs"):
        text = fingerprint_of(pairs)
        settings = json.loads(json.dumps({**settings, "text": text}))
        if not text["lines"]:
            raise InvalidFileError("the text is empty")
        finished = _named(output, "json")
        unfinished = _named(output, "unfinished")
        if finished.is_file():
            _require_same(finished, settings)
            _require_whole(output, finished)
            unfinished.unlink(missing_ok=True)
            _log.info(f"{finished}: these pairs are complete")
            return
        _make_blocks(unfinished, settings, pairs, make)
        _finish(output, unfinished, settings)


def _named(output: pathlib.Path, ending: str) -> pathlib.Path:
    return output.with_name(f"{output.name}.{ending}")


def _require_same(path: pathlib.Path, settings: Settings) -> None:
    """Checks that the first line of a file contains these settings."""
    with open(path, "rb") as file:
        before = _read(path, file.readline(_MAX_RECORD_BYTES), "settings", dict)
    for name in [*settings, *before]:
        if before.get(name) != settings.get(name):
            difference = f"with {name}={shown(before.get(name))}"
            difference += f"; received {name}={shown(settings.get(name))}"
            if name == "text":
                difference = "of another text"
            raise ConfigError(
                f"{path}: these pairs were made {difference}. "
                "Give the same text and options, or another --output"
            )


def _require_whole(output: pathlib.Path, finished: pathlib.Path) -> None:
    """Checks that the files of complete pairs exist and have not changed."""
    with open(finished, "rb") as record:
        checksums = _read(finished, record.readline(_MAX_RECORD_BYTES), "files", dict)
    for side in ("source", "target"):
        path = _named(output, side)
        checksum = None
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum != checksums.get(side):
            state = "is missing" if checksum is None else "has changed since it was written"
            raise InvalidFileError(
                f"{path}: the file {state}; "
                f"to make the pairs again, remove {finished} and give --overwrite"
            )


def _read(path: pathlib.Path, line: bytes, key: str, kind: type[Value]) -> Value:
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        value = json.loads(line)[key]
        if isinstance(value, kind):
            return value
    text = shown(line.decode(errors="replace"))
    raise InvalidFileError(f"{path}: not a record of translated pairs; received {text}")


def _start_or_resume(unfinished: pathlib.Path, settings: Settings) -> int:
    """Starts or resumes a run, and returns the number of blocks that are already complete."""
    if not unfinished.is_file():
        with replacing(unfinished) as temporary:
            temporary.write_text(f"{json.dumps({'settings': settings})}\n")
        return 0
    _require_same(unfinished, settings)
    num_lines = size = 0
    with naming_errors(unfinished), open(unfinished, "rb+") as file:
        # A run that was killed may have left an incomplete line.
        for line in itertools.takewhile(lambda line: line.endswith(b"\n"), file):
            if num_lines:
                _read(unfinished, line, "pairs", list)
            num_lines += 1
            size += len(line)
        file.truncate(size)
    return num_lines - 1


def _make_blocks(
    unfinished: pathlib.Path,
    settings: Settings,
    pairs: Iterable[Pair],
    make: Callable[[int, list[Pair]], Made],
) -> None:
    """Makes the missing blocks, and appends them to the file."""
    num_before = _start_or_resume(unfinished, settings)
    text = TextHash()
    first = 0
    with ProgressBar("translating", "lines") as bar:
        for number, block in enumerate(in_chunks(iter(pairs), LINES_PER_BLOCK), start=1):
            text.add(*zip(*block))
            if number > num_before:
                line = json.dumps(make(first, block)._asdict(), ensure_ascii=False)
                with naming_errors(unfinished), open(unfinished, "a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
                    file.flush()
                    os.fsync(file.fileno())
            first += len(block)
            bar.advance(len(block))
    if text.fingerprint() != settings["text"]:
        unfinished.unlink()
        raise ConfigError("the text has changed while it was translated; give the command again")


def _finish(output: pathlib.Path, unfinished: pathlib.Path, settings: Settings) -> None:
    counts = collections.Counter[str]()
    written = TextHash()
    source_path = _named(output, "source")
    target_path = _named(output, "target")
    finished = _named(output, "json")
    with (
        open(unfinished, "rb") as file,
        replacing(source_path) as temporary_source,
        replacing(target_path) as temporary_target,
        open(temporary_source, "w", encoding="utf-8", newline="\n") as sources,
        open(temporary_target, "w", encoding="utf-8", newline="\n") as targets,
    ):
        for line in itertools.islice(file, 1, None):
            pairs = _read(unfinished, line, "pairs", list)
            for reason in _REASONS:
                counts[reason] += _read(unfinished, line, f"num_{reason}", int)
            for source, target in pairs:
                sources.write(f"{source}\n")
                targets.write(f"{target}\n")
                written.add([source], [target])
        fingerprint = written.fingerprint()
        if not fingerprint["lines"]:
            raise ConfigError(
                f"{output}: no pair is left: {counts['empty']:,} are empty on one side, "
                f"{counts['too_long']:,} are longer than the model reads"
            )
    with replacing(finished) as temporary:
        record = {
            "settings": settings,
            "pairs": fingerprint["lines"],
            **counts,
            "files": fingerprint,
        }
        temporary.write_text(f"{json.dumps(record)}\n")
    unfinished.unlink()
    left_out = [f"{counts[reason]:,} {name}" for reason, name in _REASONS.items() if counts[reason]]
    remark = f" (left out: {', '.join(left_out)})" if left_out else ""
    _log.info(
        f"{source_path}, {target_path}: {counted(fingerprint['lines'], 'sentence pair')}{remark}"
    )
