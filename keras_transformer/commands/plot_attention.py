"""The command `plot-attention`."""

import argparse
import typing

from ..config.attention_view import AttentionKind, AttentionView, HeadChoice, LayerChoice
from ..config.rules import PicturePath
from ..runtime.standard_streams import write_lines
from .options import Parser, SentenceToTranslate, add_model_dir, add_tag
from .trained import load_translator, read_trained

SUMMARY = "Draw what a translation attends to: a picture, or a page to point at tokens."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    add_tag(parser)
    parser.add_option("--text", SentenceToTranslate, required=True, help="the sentence to translate")
    parser.add_option(
        "--output",
        PicturePath,
        metavar="FILE",
        required=True,
        help="a .png, .svg or .pdf file; or a .html file, a page that shows every kind of attention, layer and head",
    )
    parser.add_argument(
        "--kind",
        choices=typing.get_args(AttentionKind),
        default="cross",
        help="from the translation to the source, in the encoder, or in the decoder (cross)",
    )
    parser.add_option("--layer", LayerChoice, metavar="N", default="last", help="1 is the first, or all (last)")
    parser.add_option(
        "--head",
        HeadChoice,
        metavar="N",
        help="1 is the first (all; of a model with training.guided_alignment, the first, which aligns)",
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    trained = read_trained(options.model_dir, tag=options.tag)
    aligns = options.kind == "cross" and options.layer == "last" and trained.config.training.guided_alignment > 0
    view = AttentionView(options.kind, options.layer, options.head or ("1" if aligns else "all"))
    # Before TensorFlow is loaded.
    view.layers(trained.config.model), view.heads(trained.config.model)
    translator = load_translator(trained)
    from ..translation.attention import plot_attention

    write_lines([plot_attention(translator, options.text, options.output, view)])
