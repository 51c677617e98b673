"""The command `distill`."""

import argparse
import itertools
from collections.abc import Iterable
from typing import Literal

from ..config.decoding import BeamSize
from ..config.rules import require
from ..errors import ConfigError
from .options import InputText, Parser, add_decoding, add_model_dir
from .synthesis import add_output, add_precision, settings_of
from .trained import load_translator, read_trained

SUMMARY = "Translate a training text with a teacher, to train a smaller model on the pairs."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option(
        "--source",
        InputText,
        nargs="+",
        metavar="FILE",
        required=True,
        help="sentences to translate, one per line; .gz, .xz and .zst files are decompressed; a pattern in quotes "
        "stands for several files",
    )
    parser.add_option(
        "--target",
        InputText,
        nargs="+",
        metavar="FILE",
        help="their translations by people: of the --n-best translations, the one most like them is chosen",
    )
    add_output(parser)
    parser.add_option(
        "--n-best", BeamSize, metavar="N", help="of --target: how many translations to choose from (the beam size)"
    )
    parser.add_argument(
        "--metric",
        choices=("bleu", "chrf"),
        help="of --target: by which sentences are compared, sentence BLEU or chrF (bleu)",
    )
    add_decoding(parser)
    add_precision(parser)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    for name, value in (("--n-best", options.n_best), ("--metric", options.metric)):
        if value is not None and options.target is None:
            raise ConfigError(f"{name} needs --target")
    from keras_transformer.training.text.parallel_text import text_corpora
    from keras_transformer.training.text.text_files import read_texts

    trained = read_trained(options.model_dir, options.beam_size, options.length_penalty, options.tag)
    beam_size = trained.decoding.beam_size
    n_best = 1 if options.target is None else options.n_best or beam_size
    require(n_best <= beam_size, "--n-best", f"at most the beam size {beam_size}", n_best)
    pairs: Iterable[tuple[str, str]]
    if options.target is None:
        pairs = ((source, "") for source in read_texts(options.source))
    else:
        corpora = text_corpora(options.source, options.target)
        pairs = itertools.chain.from_iterable(shard.pairs() for corpus in corpora for shard in corpus.shards)
    translator = load_translator(trained, options.precision, shortlist=not options.no_shortlist)
    from keras_transformer.training.synthesis.distillation import distill

    metric: Literal["bleu", "chrf"] = "chrf" if options.metric == "chrf" else "bleu"
    names = {"source": options.source, "target": options.target}
    settings = settings_of(trained, translator, **names, n_best=n_best, metric=metric)
    distill(translator, pairs, options.output, settings, n_best, metric)
