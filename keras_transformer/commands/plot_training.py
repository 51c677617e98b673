"""The command `plot-training`."""

import argparse

from ..config.rules import PicturePath
from .options import Directory, Parser

SUMMARY = "Draw the loss, perplexity, BLEU and learning rate of training runs."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    parser.add_option("model_dirs", Directory, metavar="DIR", nargs="+", help="the model directory of a run")
    parser.add_option(
        "--output",
        PicturePath,
        metavar="FILE",
        required=True,
        help="a .png, .svg or .pdf file; or a .html file, a page whose numbers can be read",
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.curves import plot_training

    plot_training(options.model_dirs, options.output)
