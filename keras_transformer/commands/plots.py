"""The command `plot`."""

import argparse
import typing

from ..config.model import AttentionKind, AttentionView, HeadChoice, LayerChoice
from ..errors import ConfigError
from ..rules import PicturePath
from ..runtime.standard_streams import write_lines
from .options import Directory, Parser, SentenceToTranslate, check_needs, check_outputs
from .trained import load_translator, log_truncated, read_trained


def add_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --text 'Dogs run.' --output attention.svg"
    parser.add_paths("--model-dir", "the model directories, one for --text", rule=Directory, metavar="DIR")
    # The former command plot-training took the directories as plain arguments.
    parser.add_option("model_dirs", Directory, "DIR", argparse.SUPPRESS, nargs="*")
    help = "a .png, .svg or .pdf file; or a .html file, a page that shows numbers and, with --text, every head"
    parser.add_option("--output", PicturePath, "FILE", help, required=True)
    parser.add_overwrite()
    with parser.group("attention"):
        help = "draw what the translation of this sentence attends to"
        parser.add_option("--text", SentenceToTranslate, "SENTENCE", help)
        help = "from the translation to the source, in the encoder, or in the decoder (default: cross)"
        parser.add_argument("--kind", choices=typing.get_args(AttentionKind), help=help)
        parser.add_option("--layer", LayerChoice, "N", "1 is the first, or all (default: last)")
        help = "1 is the first (default: all; with training.guided_alignment, the first, which aligns)"
        parser.add_option("--head", HeadChoice, "N", help)
        parser.add_tag()


def run(options: argparse.Namespace) -> None:
    """Draw the loss, BLEU and learning rate of training runs, or the attention of a translation."""
    model_dirs = [*(options.model_dir or []), *options.model_dirs]
    if not model_dirs:
        raise ConfigError("--model-dir must be given")
    check_outputs(options, [options.output])
    if options.text is not None:
        if len(model_dirs) > 1:
            raise ConfigError(f"--text needs one --model-dir; received {len(model_dirs)}")
        _plot_attention(options, model_dirs[0])
        return
    check_needs(options, ("kind", "layer", "head", "tag"), "text")
    from keras_transformer.training.curves import plot_training

    plot_training(model_dirs, options.output)


def _plot_attention(options: argparse.Namespace, model_dir: str) -> None:
    trained = read_trained(model_dir, options)
    kind: AttentionKind = options.kind or "cross"
    layer = options.layer or "last"
    aligns = kind == "cross" and layer == "last" and trained.config.training.guided_alignment > 0
    view = AttentionView(kind, layer, options.head or ("1" if aligns else "all"))
    # A layer or head that the model does not have is an error before TensorFlow is loaded.
    view.layers(trained.config.model), view.heads(trained.config.model)
    translator = load_translator(trained)
    log_truncated(translator, translator.num_tokens([options.text]), 1, "--text")
    from ..translation.attention import plot_attention

    write_lines([plot_attention(translator, options.text, options.output, view)])
