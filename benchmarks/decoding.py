"""Decoding speed compared with other libraries: sentences per second, from text to text.

    python -m benchmarks.decoding --model-dir models/en-de --data multi30k --json decoding.json

The test text, the longest sentence first, is sent in requests of 32 sentences, after a warm-up that
sends all of them once. Each request is sent when the previous one has been answered, and may use
all cores; with "at once", as many requests as there are cores are in flight at the same time and
share the cores. The last table sends every 5th sentence as a request of its own, and also searches
greedily. With `--isa avx2`, bfloat16 is left out.

    SavedModel      the model that `keras-transformer export` writes (contenders/saved_model.py);
                    "compiled": with `--compile`, in float32
    CTranslate2     the same weights and search settings (contenders/ctranslate2.py)
    Marian          the same, if the model was imported from Marian (contenders/marian.py);
                    `--marian` names the Python of an environment with pymarian, and the folder that
                    the model was imported from

`--tables float32 best greedy single` chooses tables; without it, all four are measured.

If the directory has a shortlist, the first two are measured with it as well. CTranslate2 is given
the same lists.

The searches have the settings of the model's directory, but a length penalty of 0, with which the
formulas of all engines agree. CTranslate2 may write translations of up to `max_length` tokens. No
translation of a trained model should be as long as an engine's limit.
"""

import functools
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, prepare
from benchmarks.machine import NO_BFLOAT16, is_limited_to_avx2
from benchmarks.processes import Contender, Report, contender, skipped
from benchmarks.text import GENERATED, add_data_option, sentence_pairs
from keras_transformer.checks import require
from keras_transformer.config.values import Precision
from keras_transformer.errors import Error
from keras_transformer.model_dir import ModelDir
from keras_transformer.runtime.packages import missing_packages_named

# Takes options of an engine's module, and returns the contender.
Engine = Callable[..., Contender]

# Precisions of the SavedModel; the last is the fastest.
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
# CTranslate2's types that may be its fastest.
COMPUTE_TYPES = ("float32", "int16", "int8", "bfloat16")
SAVED_MODEL, CTRANSLATE2, MARIAN = "SavedModel", "CTranslate2", "Marian"
COMPILED = f"{SAVED_MODEL}, compiled"
# The comparisons, in their order.
TABLES = ("float32", "best", "greedy", "single")


def usable_precisions() -> tuple[Precision, ...]:
    """Returns the precisions that a SavedModel can be run in; the last is the fastest."""
    return ("float32",) if is_limited_to_avx2() else PRECISIONS


def comparisons(
    task_path: str, marian: Sequence[str] | None = None, shortlist: bool = False
) -> list[Comparison]:
    """Returns all comparisons, in the order of `TABLES`.

    Args:
        task_path: the directory of a `DecodingTask`.
        marian: the two values of `--marian`, or None.
        shortlist: whether the model has a shortlist, with which the engines that can use it are
            measured as well.

    Raises:
        ConfigError: There is no Marian model in the folder, or not one that segments text itself.
    """
    import ctranslate2

    saved_model = functools.partial(contender, "saved_model", task_path)
    translator = functools.partial(contender, "ctranslate2", task_path)
    engines = {SAVED_MODEL: saved_model, CTRANSLATE2: translator}
    lists: dict[str, tuple[str, ...]] = {"": ()}
    if shortlist:
        lists[", shortlist"] = ("--shortlist",)
        for name, engine in list(engines.items()):
            engines[f"{name}, shortlist"] = functools.partial(engine, "--shortlist")
    for name, engine in list(engines.items()):
        if name.startswith(SAVED_MODEL):
            compiled = name.replace(SAVED_MODEL, COMPILED)
            engines[compiled] = functools.partial(engine, "--compile")
    without_marian = dict(engines)
    if marian:
        engines[MARIAN] = _marian(task_path, *marian)
    float32: dict[str, Contender] = {}
    for name, engine in engines.items():
        float32 |= _cases(name, engine, "--answers", name)
    best: dict[str, Contender] = {}
    for precision, (suffix, options) in itertools.product(usable_precisions(), lists.items()):
        name = f"{SAVED_MODEL}, {precision}{suffix}"
        best |= _cases(name, saved_model, "--precision", precision, *options)
    compute_types = ctranslate2.get_supported_compute_types("cpu")
    if is_limited_to_avx2():
        best[f"{SAVED_MODEL}, bfloat16"] = skipped(NO_BFLOAT16)
        compute_types.discard("bfloat16")
    for compute_type, (suffix, options) in itertools.product(COMPUTE_TYPES, lists.items()):
        if compute_type in compute_types:
            name = f"{CTRANSLATE2}, {compute_type}{suffix}"
            best |= _cases(name, translator, "--compute-type", compute_type, *options)
    greedy: dict[str, Contender] = {}
    for name, engine in without_marian.items():
        greedy |= _cases(name, engine, "--beam-size", 1)
    single: dict[str, Contender] = {}
    for name, engine in engines.items():
        for threads in _numbers_of_threads(name):
            suffix = f", {threads} threads" if threads > 1 else ""
            single[name + suffix] = _latency(engine, "--threads", threads, "--beam-size", BEAM_SIZE)
    for name, engine in without_marian.items():
        for threads in _numbers_of_threads(name):
            suffix = f", {threads} threads" if threads > 1 else ""
            single[f"{name}{suffix}, greedy"] = _latency(
                engine, "--threads", threads, "--beam-size", 1
            )
    speed = "sentences/s"
    latency = "ms per sentence, lower is better"
    search = f"beam {BEAM_SIZE}, batch {REQUEST_SIZE}"
    greedy_search = f"greedy, batch {REQUEST_SIZE}"
    fastest = f"{SAVED_MODEL}, {usable_precisions()[-1]}"
    return [
        Comparison(f"decoding, float32, {search}", speed, float32, SAVED_MODEL),
        Comparison(f"decoding, best precision, {search}", speed, best, fastest),
        Comparison(f"decoding, float32, {greedy_search}", speed, greedy, SAVED_MODEL),
        Comparison("decoding, float32, batch 1", latency, single, SAVED_MODEL),
    ]


def _numbers_of_threads(name: str) -> list[int]:
    # Marian's threads do not share a sentence.
    return [1] if name == MARIAN else sorted({1, _num_cores()})


def _marian(task_path: str, python: str, folder: str) -> Engine:
    from keras_transformer.pretrained.marian import find_files

    model, vocabularies, *_ = find_files(pathlib.Path(folder))
    rule = "a folder with vocabularies in .spm files"
    for path in vocabularies:
        require(path.suffix == ".spm", "--marian", rule, path.name)
    paths = [path.resolve() for path in (model, *vocabularies)]
    # pymarian joins its arguments by spaces.
    rule = "a folder of files without spaces in their paths"
    for path in paths:
        require(" " not in str(path), "--marian", rule, str(path))
    options = ("--model", paths[0], "--vocabs", *paths[1:])
    return functools.partial(contender, "marian", task_path, *options, python=python)


def _cases(name: str, engine: Engine, *options: object) -> dict[str, Contender]:
    """An engine that answers one request at a time, or several."""
    contenders = {name: engine(*options)}
    cores = _num_cores()
    if cores > 1:
        contenders[f"{name}, {cores} at once"] = engine(*options, "--at-once", cores)
    return contenders


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _latency(engine: Engine, *options: object) -> Contender:
    run = engine("--request-size", 1, "--every", 5, *options)

    def run_once() -> Report:
        report = run()
        return {**report, "value": 1000 / report["value"]}

    return run_once


def agreement(first: Sequence[Any], second: Sequence[Any]) -> dict[str, Any]:
    """Compares the translations of two engines.

    Args:
        first: `[translation, log probability]` for each sentence.
        second: likewise.

    Returns:
        How many "sentences" there are and how many translations are "equal", the largest
        "score_difference" of these, None without any, and in "others" the two scores of each pair
        of different translations.
    """
    pairs = list(zip(first, second, strict=True))
    differences = [abs(a[1] - b[1]) for a, b in pairs if a[0] == b[0]]
    return {
        "sentences": len(pairs),
        "equal": len(differences),
        "score_difference": max(differences, default=None),
        "others": [[a[1], b[1]] for a, b in pairs if a[0] != b[0]],
    }


def agreement_lines(engine: str, found: dict[str, Any]) -> Iterator[str]:
    """Describes what `agreement` returned for the SavedModel and another engine."""
    yield (
        f"{found['equal']:,} of {found['sentences']:,} translations "
        f"of {SAVED_MODEL} and {engine} are equal"
    )
    if found["equal"]:
        yield f"    their log probabilities differ by {found['score_difference']:.1e} at most"
    for first, second in found["others"]:
        yield f"    different translations: log probability {first:.4f} against {second:.4f}"


def bleu_lines(tables: Sequence[Comparison], num_sentences: int) -> Iterator[str]:
    """Gives the BLEU of contenders that translated all sentences."""
    for table in tables:
        for name, (report, *_) in table.reports.items():
            if "bleu" in report and report["sentences"] == num_sentences:
                yield f"BLEU {report['bleu']:.2f}: {table.title}: {name}"


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.decoding", __doc__)
    parser.add_argument(
        "--model-dir", metavar="DIR", required=True, help="directory of a trained model"
    )
    add_data_option(parser)
    parser.add_argument(
        "--marian",
        nargs=2,
        metavar=("PYTHON", "DIR"),
        help="the Python interpreter of an environment with pymarian, and the folder that the "
        "model was imported from",
    )
    parser.add_argument(
        "--tables", nargs="+", choices=TABLES, default=TABLES, help="comparisons (default: all)"
    )
    parser.add_argument(
        "--sentences", type=int, metavar="N", help="translate the first N sentences only"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as path:
        try:
            with missing_packages_named():
                from keras_transformer.export.ctranslate2 import export_ctranslate2
            has_shortlist = ModelDir(options.model_dir).shortlist_path.is_file()
            every = zip(TABLES, comparisons(path, options.marian, has_shortlist), strict=True)
            tables = [table for name, table in every if name in options.tables]
            pairs = sentence_pairs(options.data, "test", options.sentences)
            task, translator = prepare(
                path,
                options.model_dir,
                pairs,
                usable_precisions(),
                beam_sizes=(BEAM_SIZE, 1),
                length_penalty=0.0,
                compiled=True,
            )
            export_ctranslate2(translator, task.path / "ctranslate2")
        except Error as error:
            parser.error(str(error))
        measure(tables, options.repeats)
        ours = task.read_answers(SAVED_MODEL)
        agreements = {}
        for name in (CTRANSLATE2, MARIAN):
            theirs = task.read_answers(name)
            if ours and theirs:
                agreements[name] = agreement(ours, theirs)
    publish(
        options.json,
        tables,
        data=options.data or GENERATED,
        sentences=len(pairs),
        agreement=agreements,
    )
    print("", *bleu_lines(tables, len(pairs)), sep="\n")
    for name, counts in agreements.items():
        print(*agreement_lines(name, counts), sep="\n")


if __name__ == "__main__":
    main()
