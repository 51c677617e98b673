"""The command `compare`."""

import argparse
import pathlib
import time
from typing import TYPE_CHECKING, Annotated

from ..config.rules import Rule
from ..errors import ConfigError
from ..runtime.standard_streams import write_lines
from .backend import tensorflow_backend
from .lines import translate_lines
from .options import (
    Directory,
    ExistingFile,
    NotEmpty,
    Parser,
    add_decoding,
    add_json,
    add_precision_or_auto,
    add_terms,
    add_tokenize,
)
from .trained import load_translator, read_glossary, read_trained

if TYPE_CHECKING:
    from keras_transformer.training.comparison.compare import System
    from keras_transformer.training.comparison.report import Format
    from keras_transformer.training.text.corpus import SentencePairs

    from .trained import Trained

SUMMARY = "Compare translations of several models or files: BLEU and chrF with significance, and their faults."

_FORMATS: dict[str, "Format"] = {".html": "html", ".md": "markdown"}
ReportPath = Annotated[
    NotEmpty, Rule(f"a path that ends in {' or '.join(_FORMATS)}", lambda path: pathlib.Path(path).suffix in _FORMATS)
]


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    parser.add_option("--source", ExistingFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--reference", ExistingFile, metavar="FILE", required=True, help="their translations by people")
    parser.add_option(
        "--model-dir",
        Directory,
        nargs="+",
        default=[],
        metavar="DIR",
        help="model directories, which translate --source",
    )
    parser.add_option(
        "--hypotheses",
        ExistingFile,
        nargs="+",
        default=[],
        metavar="FILE",
        help="translations of --source by anything",
    )
    parser.add_argument(
        "--test",
        choices=("bootstrap", "randomization"),
        default="bootstrap",
        help="paired bootstrap resampling (the default) or approximate randomization",
    )
    add_decoding(parser)
    add_terms(parser)
    add_precision_or_auto(parser)
    add_tokenize(parser)
    parser.add_option("--output", ReportPath, metavar="FILE", help="also write the report to this .html or .md file")
    add_json(parser)
    parser.epilog = (
        "The first system, of the model directories before the files, is the one with which the others are compared."
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    names = [*options.model_dir, *options.hypotheses]
    if not names:
        raise ConfigError("nothing to compare: give --model-dir, --hypotheses or both")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise ConfigError(f"each system must be given once; received {twice[0]} twice")
    from keras_transformer.training.comparison.compare import System, compare
    from keras_transformer.training.comparison.report import write_report
    from keras_transformer.training.text.corpus import read_pairs

    from ..model_dir.files import replacing

    pairs = read_pairs(options.source, options.reference)
    # What is wrong with a system is known before a model has translated for minutes.
    files = [System(path, list(read_pairs(options.source, path).target)) for path in options.hypotheses]
    glossary = None if options.terms is None else read_glossary(options.terms)
    models = [
        read_trained(path, options.beam_size, options.length_penalty, options.tag, terms=options.terms)
        for path in options.model_dir
    ]
    systems = [*(_translated(trained, pairs, options) for trained in models), *files]
    comparison = compare(systems, pairs, options.tokenize, options.test)
    if glossary is not None:
        with tensorflow_backend():
            from keras_transformer.training.comparison.term_use import count_terms
        uses = count_terms(glossary, list(pairs.source), *(system.translations for system in systems))
        results = [result._replace(terms=use) for result, use in zip(comparison.results, uses, strict=True)]
        comparison = comparison._replace(results=results)
    if options.output:
        with replacing(options.output) as temporary:
            report = write_report(comparison, _FORMATS[pathlib.Path(options.output).suffix])
            temporary.write_text(report, "utf-8")
    write_lines(write_report(comparison, "json" if options.json else "text").splitlines())


def _translated(trained: "Trained", pairs: "SentencePairs", options: argparse.Namespace) -> "System":
    from keras_transformer.training.comparison.compare import System

    translator = load_translator(trained, options.precision, shortlist=not options.no_shortlist)
    start = time.perf_counter()
    max_length = trained.config.model.max_length
    translations = translate_lines(translator, list(pairs.source), max_length, options.source)
    return System(str(trained.model_dir.path), translations, time.perf_counter() - start)
