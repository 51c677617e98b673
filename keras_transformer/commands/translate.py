"""The command `translate`."""

import argparse
import contextlib
import logging
import sys

from ..config.decoding import BeamSize
from ..config.rules import require
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


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
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
            found = translator.translate([line.removesuffix(b"\r") for line in block], n_best)
            first = num_lines + 1
            log_truncated((each.source_length for each in found), trained.config.model.max_length, first)
            answers: list[str] = []
            for number, each in enumerate(found, start=first):
                for text, score in each.hypotheses:
                    # Always one line each.
                    line = text.replace("\n", " ")
                    answers.append(line if options.n_best is None else f"{number}\t{score:.4f}\t{line}")
            write_lines(answers)
            num_lines += len(block)
            bar.advance(len(block))
    _log.info(f"translated {counted(num_lines, 'line')}")
