"""The commands `backtranslate` and `distill`, which write pairs that a model makes."""

import argparse
import dataclasses
import typing
from typing import TYPE_CHECKING, Literal

from ..config.decoding import BeamSize
from ..config.values import Precision
from ..errors import ConfigError
from ..rules import require
from .options import (
    ONE_PER_LINE,
    OutputName,
    Parser,
    add_decoding,
    add_model_dir,
    add_paths,
    add_sampling,
    check_sampling,
)
from .trained import Trained, load_translator, read_trained, sampling_of

if TYPE_CHECKING:
    from ..translation import Translator


def add_backtranslate_options(parser: Parser) -> None:
    add_model_dir(parser)
    help = "sentences of the language that is translated into later, which this model translates from; " + ONE_PER_LINE
    add_paths(parser, "--target", help, required=True)
    _add_common_options(parser)
    add_sampling(parser)


def add_distill_options(parser: Parser) -> None:
    add_model_dir(parser)
    add_paths(parser, "--source", f"sentences to translate, {ONE_PER_LINE}", required=True)
    add_paths(
        parser,
        "--target",
        "their translations by people: of the --n-best translations, the one most like them is chosen",
    )
    parser.add_option(
        "--n-best", BeamSize, metavar="N", help="of --target: how many translations to choose from (the beam size)"
    )
    parser.add_argument(
        "--metric",
        choices=("bleu", "chrf"),
        help="of --target: by which sentences are compared, sentence BLEU or chrF (bleu)",
    )
    _add_common_options(parser)


def _add_common_options(parser: Parser) -> None:
    parser.add_option(
        "--output",
        OutputName,
        metavar="NAME",
        required=True,
        help="write the pairs to NAME.source and NAME.target, to train on, and how they were made to NAME.json",
    )
    add_decoding(parser)
    # It is not chosen by a measurement: a run that is resumed must have the same.
    parser.add_argument(
        "--precision",
        choices=typing.get_args(Precision),
        default="float32",
        help="bfloat16 is faster on processors with instructions for it (float32)",
    )
    parser.epilog = (
        "If the command was stopped, give it again: it goes on with NAME.unfinished, and writes what it would have "
        "written without the interruption."
    )


def run_backtranslate(options: argparse.Namespace) -> None:
    check_sampling(options)
    from keras_transformer.training.text.text_files import read_texts

    trained = read_trained(options.model_dir, options)
    targets = read_texts(options.target)
    translator = load_translator(trained)
    from keras_transformer.training.synthesis.translated_pairs import backtranslate

    sampling = sampling_of(options)
    settings = _settings(trained, translator, target=options.target, **(sampling._asdict() if sampling else {}))
    backtranslate(translator, targets, options.output, settings, sampling)


def run_distill(options: argparse.Namespace) -> None:
    for name, value in (("--n-best", options.n_best), ("--metric", options.metric)):
        if value is not None and options.target is None:
            raise ConfigError(f"{name} needs --target")
    from keras_transformer.training.text.parallel_text import read_lines_or_pairs

    trained = read_trained(options.model_dir, options)
    beam_size = trained.decoding.beam_size
    n_best = 1 if options.target is None else options.n_best or beam_size
    require(n_best <= beam_size, "--n-best", f"at most the beam size {beam_size}", n_best)
    pairs = read_lines_or_pairs(options.source, options.target)
    translator = load_translator(trained)
    from keras_transformer.training.synthesis.translated_pairs import distill

    metric: Literal["bleu", "chrf"] = "chrf" if options.metric == "chrf" else "bleu"
    names = {"source": options.source, "target": options.target}
    settings = _settings(trained, translator, **names, n_best=n_best, metric=metric)
    distill(translator, pairs, options.output, settings, n_best, metric)


def _settings(trained: Trained, translator: "Translator", **others: object) -> dict[str, object]:
    """Returns what decides about the pairs, except for their text."""
    return {
        "model_dir": str(trained.model_dir.path),
        "weights": trained.model_dir.weights_sha256(),
        "precision": translator.precision,
        **dataclasses.asdict(trained.decoding),
        "shortlist": translator.candidates is not None,
        **others,
    }
