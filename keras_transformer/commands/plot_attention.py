"""The command `plot-attention`."""

import argparse

from ..config.rules import PicturePath
from ..runtime.standard_streams import write_lines
from .options import Parser, SentenceToTranslate, add_model_dir
from .trained import load_translator, read_trained

SUMMARY = "Draw which source tokens a translation attends to."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option("--text", SentenceToTranslate, required=True, help="the sentence to translate")
    parser.add_option("--output", PicturePath, metavar="FILE", required=True, help="a .png, .svg or .pdf file")


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    translator = load_translator(read_trained(options.model_dir))
    from ..translation.attention_plot import plot_attention

    write_lines([plot_attention(translator, options.text, options.output)])
