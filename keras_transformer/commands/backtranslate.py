"""The command `backtranslate`."""

import argparse

from .options import InputText, Parser, add_decoding, add_model_dir
from .sampling import add_sampling, check_sampling, sampling_of
from .synthesis import add_output, add_precision, settings_of
from .trained import load_translator, read_trained

SUMMARY = "Translate text of the target language back, to train on the pairs."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option(
        "--target",
        InputText,
        nargs="+",
        metavar="FILE",
        required=True,
        help="sentences of the language that is translated into later, which this model translates from; one per "
        "line; .gz, .xz and .zst files are decompressed; a pattern in quotes stands for several files",
    )
    add_output(parser)
    add_decoding(parser)
    add_precision(parser)
    add_sampling(parser)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    check_sampling(options)
    from keras_transformer.training.text.text_files import read_texts

    trained = read_trained(options.model_dir, options.beam_size, options.length_penalty, options.tag)
    targets = read_texts(options.target)
    translator = load_translator(trained, options.precision, shortlist=not options.no_shortlist)
    from keras_transformer.training.synthesis.backtranslation import backtranslate

    sampling = sampling_of(options)
    drawn = {} if sampling is None else {**sampling._asdict()}
    settings = settings_of(trained, translator, target=options.target, **drawn)
    backtranslate(translator, targets, options.output, settings, sampling)
