"""The command `align`."""

import argparse

from .backend import tensorflow_backend
from .options import InputText, NotEmpty, Parser, add_model_dir

SUMMARY = "Learn from a parallel text which subwords translate which, and search only among these from then on."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    for name, help in (
        (
            "--source",
            "sentences, one per line, such as those that the model was trained on; a pattern in quotes stands "
            "for several files",
        ),
        ("--target", "their translations, by people or by the model"),
    ):
        parser.add_option(name, InputText, nargs="+", action="extend", metavar="FILE", required=True, help=help)
    parser.add_option(
        "--links",
        NotEmpty,
        metavar="FILE",
        help="also write a line for each pair: which of its subwords are translations of each other, such as 0-0 1-2",
    )
    parser.epilog = (
        "Writes shortlist.npz into the model directory, with which translate, evaluate, export and serve are faster. "
        "If the command was stopped, give it again: it goes on after the last pass over the text that was completed."
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.text.corpus import read_text
    from keras_transformer.training.text.parallel_text import text_corpora

    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    config = model_dir.read_config()
    pairs, _ = read_text(text_corpora(options.source, options.target))
    with tensorflow_backend():
        from keras_transformer.training.alignment.shortlist import build_shortlist

        from ..tokenizers import load_tokenizers
    tokenizers = load_tokenizers(model_dir.path, config.tokenizer)
    build_shortlist(model_dir, pairs, tokenizers, config.model.max_length, options.links)
