"""The commands `plot-attention` and `plot-training`."""

import argparse
import typing

from ..config.attention_view import AttentionKind, AttentionView, HeadChoice, LayerChoice
from ..rules import PicturePath
from ..runtime.standard_streams import write_lines
from .options import (
    Directory,
    Parser,
    SentenceToTranslate,
    add_model_dir,
    add_overwrite,
    add_tag,
    check_outputs,
)
from .trained import load_translator, log_truncated, read_trained


def _add_output(parser: Parser, page: str) -> None:
    help = f"a .png, .svg or .pdf file; or a .html file, a page {page}"
    parser.add_option("--output", PicturePath, metavar="FILE", required=True, help=help)
    add_overwrite(parser)


def add_attention_options(parser: Parser) -> None:
    add_model_dir(parser)
    add_tag(parser)
    parser.add_option("--text", SentenceToTranslate, required=True, help="the sentence to translate")
    _add_output(parser, "that shows every kind of attention, layer and head")
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


def run_attention(options: argparse.Namespace) -> None:
    """Draw what a translation attends to: a picture, or a page to point at tokens."""
    check_outputs(options, [options.output])
    trained = read_trained(options.model_dir, options)
    aligns = options.kind == "cross" and options.layer == "last" and trained.config.training.guided_alignment > 0
    view = AttentionView(options.kind, options.layer, options.head or ("1" if aligns else "all"))
    # A layer or head that the model does not have is an error before TensorFlow is loaded.
    view.layers(trained.config.model), view.heads(trained.config.model)
    translator = load_translator(trained)
    log_truncated(translator.num_tokens([options.text]), translator.model.config.max_length, 1, "--text")
    from ..translation.attention import plot_attention

    write_lines([plot_attention(translator, options.text, options.output, view)])


def add_training_options(parser: Parser) -> None:
    parser.add_option("model_dirs", Directory, metavar="DIR", nargs="+", help="the model directory of a run")
    _add_output(parser, "whose numbers can be read")


def run_training(options: argparse.Namespace) -> None:
    """Draw the loss, perplexity, BLEU and learning rate of training runs."""
    check_outputs(options, [options.output])
    from keras_transformer.training.curves import plot_training

    plot_training(options.model_dirs, options.output)
