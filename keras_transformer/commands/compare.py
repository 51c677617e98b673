"""The command `compare`."""

import argparse
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ..errors import ConfigError
from ..rules import NotEmpty, Rule
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import Directory, ExistingFile, Parser, check_outputs
from .trained import glossary_of, load_translator, read_trained, translate_lines

if TYPE_CHECKING:
    from keras_transformer.training.comparison.compare import Comparison, System
    from keras_transformer.training.comparison.report import Format
    from keras_transformer.training.text.corpus import SentencePairs

    from .trained import Trained

_FORMATS: dict[str, "Format"] = {".html": "html", ".md": "markdown"}
ReportPath = Annotated[
    NotEmpty, Rule(f"a path that ends in {' or '.join(_FORMATS)}", lambda path: pathlib.Path(path).suffix in _FORMATS)
]


def add_options(parser: Parser) -> None:
    parser.example = "--source test.en --reference test.de --model-dir models/a models/b"
    help = "sentences, one per line: a file for each test set"
    parser.add_paths("--source", help, required=True, rule=ExistingFile)
    help = "their translations by people, in the same order of test sets"
    parser.add_paths("--reference", help, required=True, rule=ExistingFile)
    help = "model directories, which translate --source"
    parser.add_paths("--model-dir", help, rule=Directory, metavar="DIR")
    help = "translations of --source by anything: for each system a file for each test set, in the same order"
    parser.add_paths("--hypotheses", help, rule=ExistingFile)
    help = "paired bootstrap resampling or approximate randomization (default: bootstrap)"
    parser.add_argument("--test", choices=("bootstrap", "randomization"), default="bootstrap", help=help)
    parser.add_tokenize()
    parser.add_option("--output", ReportPath, "FILE", "also write the report to this .html or .md file")
    parser.add_overwrite()
    parser.add_json()
    parser.add_precision_or_auto()
    parser.add_search()
    parser.add_terms()
    parser.epilog = (
        "The first system, of the model directories before the files, is the one with which the others are compared. "
        "Two systems on two test sets: --source val.en test.en --reference val.de test.de --hypotheses a.val.de "
        "a.test.de b.val.de b.test.de."
    )


def run(options: argparse.Namespace) -> None:
    """Compare translations of several models or files: BLEU and chrF with significance, and common errors."""
    model_dirs, hypotheses = options.model_dir or [], options.hypotheses or []
    if not (model_dirs or hypotheses):
        raise ConfigError("nothing to compare: give --model-dir, --hypotheses or both")
    check_outputs(options, [options.output] if options.output else [])
    _refuse_twice("system", [*model_dirs, *hypotheses])
    _refuse_twice("test set", options.source)
    number = len(options.source)
    if len(options.reference) != number:
        raise ConfigError(
            "--source and --reference must be given the same number of files; "
            f"received {number} and {len(options.reference)}"
        )
    if len(hypotheses) % number:
        raise ConfigError(
            "--hypotheses must be given, for each system, a file for each test set: "
            f"a multiple of {number} files; received {len(hypotheses)}"
        )
    from keras_transformer.training.comparison.compare import System, compare, require_comparable
    from keras_transformer.training.comparison.report import write_reports
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import Shard, read_lines

    from ..model_dir.files import replacing

    test_sets = {
        source: read_pairs(source, reference)
        for source, reference in zip(options.source, options.reference, strict=True)
    }
    # What is wrong with a system or a test set is known before a model has translated for minutes.
    for pairs in test_sets.values():
        require_comparable(pairs)
    files = [
        [
            # Do not read the sources again: they may come through a pipe.
            System(path, [target for _, target in Shard(pairs.source, read_lines(path), source, path).pairs()])
            for (source, pairs), path in zip(test_sets.items(), hypotheses[first : first + number], strict=True)
        ]
        for first in range(0, len(hypotheses), number)
    ]
    glossary = glossary_of(options)
    models = [read_trained(path, options) for path in model_dirs]
    # Each system has its translations of every test set.
    systems = [*(_translated(trained, test_sets) for trained in models), *files]
    comparisons = {}
    for (source, pairs), translated in zip(test_sets.items(), zip(*systems, strict=True), strict=True):
        comparison = compare(translated, pairs, options.tokenize, options.test)
        comparisons[source] = comparison if glossary is None else _with_terms(comparison, glossary, pairs, translated)
    if options.output:
        with replacing(options.output) as temporary:
            report = write_reports(comparisons, _FORMATS[pathlib.Path(options.output).suffix])
            # The name of a file need not be UTF-8, the report must be.
            temporary.write_text(report, "utf-8", errors="replace")
    write_lines(write_reports(comparisons, "json" if options.json else "text").rstrip("\n").split("\n"))


def _refuse_twice(what: str, names: list[str]) -> None:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ConfigError(f"each {what} must be given once; received {twice[0]} twice")


def _translated(trained: "Trained", test_sets: "dict[str, SentencePairs]") -> "list[System]":
    from keras_transformer.training.comparison.compare import System

    translator = load_translator(trained)
    systems = []
    for source, pairs in test_sets.items():
        start = time.perf_counter()
        translations = translate_lines(translator, list(pairs.source), source)
        systems.append(System(str(trained.model_dir.path), translations, time.perf_counter() - start))
    return systems


def _with_terms(
    comparison: "Comparison", glossary: dict[str, str], pairs: "SentencePairs", systems: "Sequence[System]"
) -> "Comparison":
    with tensorflow_backend():
        from keras_transformer.training.evaluate import count_terms

    uses = count_terms(glossary, list(pairs.source), *(system.translations for system in systems))
    results = [result._replace(terms=use) for result, use in zip(comparison.results, uses, strict=True)]
    return comparison._replace(results=results)
