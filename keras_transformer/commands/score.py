"""The command `score`."""

import argparse

from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import write_lines
from .lines import log_truncated, numbered_blocks
from .options import Directory, InputFile, Parser, add_model_dir, add_tag
from .trained import load_translator, read_trained

SUMMARY = "Print the log probability of each given translation."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    add_tag(parser)
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--target", InputFile, metavar="FILE", required=True, help="their translations")
    parser.add_option(
        "--reverse-model-dir",
        Directory,
        metavar="DIR",
        help="a model of the opposite direction: print instead how well both models agree that the pair is a "
        "translation, by dual conditional cross-entropy; above 0 and at most 1",
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(options.model_dir, tag=options.tag)
    reverse_trained = None if options.reverse_model_dir is None else read_trained(options.reverse_model_dir)
    pairs = read_pairs(options.source, options.target)
    translator = load_translator(trained)
    reverse = None if reverse_trained is None else load_translator(reverse_trained)
    max_length = trained.config.model.max_length
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for first, block in numbered_blocks(zip(pairs.source, pairs.target, strict=True)):
            sources, targets = zip(*block, strict=True)
            scores = translator.score_with_lengths(sources, targets)
            log_truncated(scores.source_lengths, max_length, first, name_of(options.source))
            log_truncated(scores.target_lengths, max_length, first, name_of(options.target))
            values = scores.log_probs
            if reverse is not None:
                from ..translation.results import dual_scores

                values = dual_scores(scores, reverse.score_with_lengths(targets, sources))
            write_lines(f"{value:.4f}" for value in bar.count(values))
