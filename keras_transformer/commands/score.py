"""The command `score`."""

import argparse

from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import write_lines
from .lines import log_truncated, numbered_blocks
from .options import InputFile, Parser, add_model_dir, add_tag
from .trained import load_translator, read_trained

SUMMARY = "Print the log probability of each given translation."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    add_tag(parser)
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--target", InputFile, metavar="FILE", required=True, help="their translations")


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(options.model_dir, tag=options.tag)
    pairs = read_pairs(options.source, options.target)
    translator = load_translator(trained)
    max_length = trained.config.model.max_length
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for first, block in numbered_blocks(zip(pairs.source, pairs.target, strict=True)):
            sources, targets = zip(*block, strict=True)
            scores = translator.score_with_lengths(sources, targets)
            log_truncated(scores.source_lengths, max_length, first, name_of(options.source))
            log_truncated(scores.target_lengths, max_length, first, name_of(options.target))
            write_lines(f"{score:.4f}" for score in bar.count(scores.log_probs))
