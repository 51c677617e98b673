"""The command `translate`."""

import argparse
import contextlib
import logging
import sys
import typing

from ..config.decoding import BeamSize
from ..config.language import Language
from ..config.rules import require
from ..errors import ConfigError
from ..runtime.progress import ProgressBar, counted
from ..runtime.standard_streams import arriving_lines, standard_input, write_lines
from .lines import LINES_PER_BLOCK, log_truncated
from .options import Parser, add_decoding, add_model_dir, add_precision_or_auto
from .trained import load_translator, read_trained

SUMMARY = "Translate standard input, line by line."

_log = logging.getLogger(__name__)


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    add_decoding(parser)
    add_precision_or_auto(parser)
    parser.add_option(
        "--n-best",
        BeamSize,
        metavar="N",
        help="write N lines per sentence: its line number, score and translation, separated by tabs",
    )
    parser.add_argument(
        "--documents",
        action="store_true",
        help="each line is a text of any number of sentences, which are translated one by one",
    )
    parser.add_argument(
        "--language",
        choices=typing.get_args(Language),
        metavar="CODE",
        help="of documents: whose abbreviations end no sentence; one of %(choices)s (those of all languages)",
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    if options.documents and options.n_best is not None:
        raise ConfigError("give either --documents or --n-best")
    if options.language is not None and not options.documents:
        raise ConfigError("--language needs --documents")
    trained = read_trained(options.model_dir, options.beam_size, options.length_penalty)
    n_best = 1 if options.n_best is None else options.n_best
    beam_size = trained.decoding.beam_size
    require(n_best <= beam_size, "--n-best", f"at most the beam size {beam_size}", n_best)
    standard_input()
    translator = load_translator(trained, options.precision)
    bar = ProgressBar("translating", "lines")
    num_lines = 0
    # On a terminal the translations themselves show the progress.
    with contextlib.nullcontext() if sys.stdout.isatty() else bar:
        for block in arriving_lines(LINES_PER_BLOCK):
            # As bytes: the tokenizer decides how to read what is not UTF-8.
            texts = [line.removesuffix(b"\r") for line in block]
            first = num_lines + 1
            if options.documents:
                documents = translator.translate_document(texts, options.language)
                for number, document in enumerate(documents, start=first):
                    if document.was_cut:
                        _log.info(f"line {number}: a part has no translation, because it is too long")
                write_lines(_one_line(document.text) for document in documents)
            else:
                found = translator.translate(texts, n_best)
                log_truncated((each.source_length for each in found), trained.config.model.max_length, first)
                write_lines(
                    _one_line(text) if options.n_best is None else f"{number}\t{score:.4f}\t{_one_line(text)}"
                    for number, each in enumerate(found, start=first)
                    for text, score in each.hypotheses
                )
            num_lines += len(block)
            bar.advance(len(block))
    _log.info(f"translated {counted(num_lines, 'line')}")


def _one_line(text: str) -> str:
    return text.replace("\n", " ")
