"""The command `translate`."""

import argparse
import contextlib
import itertools
import logging
import sys
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..config.sections import BeamSize
from ..config.values import Language
from ..errors import ConfigError
from ..rules import require
from ..runtime.progress import ProgressBar, counted
from ..runtime.standard_streams import arriving_lines, standard_input, write_lines
from .options import SAMPLING, ExistingFile, Parser, check_needs
from .trained import LINES_PER_BLOCK, load_translator, log_truncated, read_trained, sampling_of

if TYPE_CHECKING:
    from ..translation import Translator

_log = logging.getLogger(__name__)


class _Block(NamedTuple):
    """Lines that are translated together, and the number of the first."""

    texts: list[bytes]
    first: int


def add_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de < test.en > test.de"
    parser.add_model_dir()
    help = "write N lines per sentence: its line number, score and translation, separated by tabs"
    parser.add_option("--n-best", BeamSize, "N", help)
    parser.add_option("--prefix", ExistingFile, "FILE", "the beginnings of the translations, one per line")
    parser.add_flag("--documents", "translate the sentences of each line one by one")
    parser.add_argument(
        "--language",
        choices=typing.get_args(Language),
        metavar="CODE",
        help="the language of --documents, whose abbreviations end no sentence; one of %(choices)s (default: "
        "those of all languages that are hardly words of others)",
    )
    parser.add_precision_or_auto()
    parser.add_search()
    parser.add_terms(keep=True)
    parser.add_sampling()


def run(options: argparse.Namespace) -> None:
    """Translate standard input, line by line."""
    _check_combinations(options)
    trained = read_trained(options.model_dir, options)
    beam_size = trained.decoding.beam_size
    require((options.n_best or 1) <= beam_size, "--n-best", f"at most the beam size {beam_size}", options.n_best)
    standard_input()
    translator = load_translator(trained)
    bar = ProgressBar("translating", "lines")
    num_lines = 0
    with contextlib.ExitStack() as stack:
        prefixes: Iterator[bytes] | None = None
        if options.prefix is not None:
            file = stack.enter_context(open(options.prefix, "rb"))
            prefixes = (line.removesuffix(b"\n").removesuffix(b"\r") for line in file)
        if not sys.stdout.isatty():
            # On a terminal the translations themselves show the progress.
            stack.enter_context(bar)
        for lines in arriving_lines(LINES_PER_BLOCK):
            # As bytes: the tokenizer decides how to read what is not UTF-8.
            block = _Block([line.removesuffix(b"\r") for line in lines], num_lines + 1)
            if options.documents:
                write_lines(_translate_documents(translator, block, options.language))
            else:
                write_lines(_translate(translator, block, options, prefixes))
            num_lines += len(lines)
            bar.advance(len(lines))
        if prefixes is not None and next(prefixes, None) is not None:
            raise ConfigError(f"{options.prefix}: there must be as many lines as in standard input; it has more")
    _log.info(f"translated {counted(num_lines, 'line')}")


def _check_combinations(options: argparse.Namespace) -> None:
    check_needs(options, SAMPLING, "sample")
    check_needs(options, ["language"], "documents")
    if options.sample and (options.n_best or 1) > 1:
        raise ConfigError("give either --sample or --n-best")
    if options.documents and (options.sample or options.n_best is not None or options.prefix is not None):
        raise ConfigError("--documents cannot be combined with --sample, --n-best or --prefix")


def _translate(
    translator: "Translator", block: _Block, options: argparse.Namespace, prefixes: Iterator[bytes] | None
) -> Iterator[str]:
    block_prefixes = None if prefixes is None else list(itertools.islice(prefixes, len(block.texts)))
    if block_prefixes is not None and len(block_prefixes) < len(block.texts):
        num_lines = block.first - 1 + len(block_prefixes)
        raise ConfigError(
            f"{options.prefix}: there must be as many lines as in standard input; it has {num_lines}, which has more"
        )
    sampling = sampling_of(options, block.first - 1)
    translations = translator.translate(block.texts, options.n_best or 1, prefixes=block_prefixes, sampling=sampling)
    log_truncated(translator, (translation.source_length for translation in translations), block.first)
    for number, translation in enumerate(translations, start=block.first):
        for text, score in translation.hypotheses:
            line = _one_line(text)
            yield line if options.n_best is None else f"{number}\t{score:.4f}\t{line}"


def _translate_documents(translator: "Translator", block: _Block, language: Language | None) -> Iterator[str]:
    from ..translation.documents import MAX_SENTENCES, MAX_TOKENS

    for number, document in enumerate(translator.translate_document(block.texts, language), start=block.first):
        if document.was_cut:
            _log.info(
                f"line {number}: a part has no translation: a document may have {MAX_SENTENCES} sentences and "
                f"{MAX_TOKENS:,} tokens, and a word the model's {translator.model.config.max_length} tokens"
            )
        yield _one_line(document.text)


def _one_line(text: str) -> str:
    return text.replace("\n", " ")
