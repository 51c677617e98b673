"""The command `align`."""

import argparse

from ..runtime.backend import tensorflow_backend
from .options import NotEmpty, Parser, add_model_dir, add_paths
from .trained import load_translator, read_trained


def add_options(parser: Parser) -> None:
    add_model_dir(parser)
    add_paths(
        parser,
        "--source",
        "sentences, one per line, such as those that the model was trained on; a pattern in quotes stands for several "
        "files",
        required=True,
    )
    add_paths(parser, "--target", "their translations, by people or by the model", required=True)
    parser.add_option(
        "--links",
        NotEmpty,
        metavar="FILE",
        help="also write a line for each pair: which of its subwords are translations of each other, such as 0-0 1-2; "
        "by the model's attention if it was trained with training.guided_alignment",
    )
    parser.epilog = (
        "Writes shortlist.npz into the model directory, with which translate, evaluate, export and serve are faster. "
        "If the command was stopped, give it again: it goes on after the last pass over the text that was completed."
    )


def run(options: argparse.Namespace) -> None:
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
    is_guided = config.training.guided_alignment > 0 and options.links is not None
    build_shortlist(model_dir, pairs, tokenizers, config.model.max_length, None if is_guided else options.links)
    if is_guided:
        from keras_transformer.training.alignment.shortlist import attention_links, write_links

        translator = load_translator(read_trained(options.model_dir, options)._replace(shortlist=False))
        write_links(options.links, len(pairs), attention_links(translator, pairs))
