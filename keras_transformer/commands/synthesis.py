"""The commands that write pairs to train on, or to test with: `backtranslate`, `distill` and `augment`."""

import argparse
import contextlib
import dataclasses
import typing
from typing import TYPE_CHECKING, Literal

from ..config.data import AugmentConfig
from ..config.decoding import BeamSize
from ..config.values import Precision
from ..errors import ConfigError, InvalidFileError
from ..rules import Probability, require
from ..runtime.backend import tensorflow_backend
from .options import (
    ONE_PER_LINE,
    OutputName,
    Parser,
    Seed,
    add_decoding,
    add_model_dir,
    add_overwrite,
    add_paths,
    add_sampling,
    check_outputs,
    check_sampling,
)
from .trained import Trained, load_translator, read_trained, sampling_of

if TYPE_CHECKING:
    from ..translation import Translator

_SHARES = {
    "upper_case": "UPPER CASE, on both sides",
    "title_case": "Title Case, on both sides",
    "lower_case": "lower case, in the source",
    "no_final_punctuation": "no punctuation at the end, on both sides",
    "typos": "typing errors in the source, in one of ten words",
    "spaces": "doubled and missing spaces in the source, one of ten",
    "emoji": "the same emoji on both sides",
}


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
    add_overwrite(parser)
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


def _check_pair_files(options: argparse.Namespace) -> None:
    source, target, *state = (f"{options.output}.{ending}" for ending in ("source", "target", "json", "unfinished"))
    check_outputs(options, [source, target], state)


def run_backtranslate(options: argparse.Namespace) -> None:
    """Translate text of the target language back, to train on the pairs."""
    check_sampling(options)
    _check_pair_files(options)
    from keras_transformer.training.text.text_files import read_texts

    trained = read_trained(options.model_dir, options)
    targets = read_texts(options.target)
    translator = load_translator(trained)
    from keras_transformer.training.synthesis.translated_pairs import backtranslate

    sampling = sampling_of(options)
    settings = _settings(trained, translator, target=options.target, **(sampling._asdict() if sampling else {}))
    backtranslate(translator, targets, options.output, settings, sampling)


def run_distill(options: argparse.Namespace) -> None:
    """Translate a training text with a teacher, to train a smaller model on the pairs."""
    for name, value in (("--n-best", options.n_best), ("--metric", options.metric)):
        if value is not None and options.target is None:
            raise ConfigError(f"{name} needs --target")
    _check_pair_files(options)
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


def add_augment_options(parser: Parser) -> None:
    add_paths(parser, "--source", f"sentences, {ONE_PER_LINE}", required=True)
    add_paths(parser, "--target", "their translations, one per line")
    parser.add_option(
        "--output",
        OutputName,
        metavar="NAME",
        required=True,
        help="write as many lines to NAME.source and, with --target, NAME.target",
    )
    add_overwrite(parser)
    for name, help in _SHARES.items():
        parser.add_option(f"--{name.replace('_', '-')}", Probability, default=0.0, metavar="SHARE", help=help)
    parser.add_option("--seed", Seed, default=1, metavar="N", help="another choice for another N (1)")
    parser.epilog = (
        "A share of the lines, from 0 to 1, is changed in each of these ways, as data.augment does in training. URLs, "
        "e-mail addresses, {names}, formats such as %s, and <tags> stay as they are."
    )


def run_augment(options: argparse.Namespace) -> None:
    """Write a text in other shapes, such as UPPER CASE, to test a model on them."""
    config = AugmentConfig(**{name: getattr(options, name) for name in _SHARES})
    if not config:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _SHARES)
        raise ConfigError(f"nothing to change: give a share above 0 by {names}")
    sides = ("source",) if options.target is None else ("source", "target")
    paths = [f"{options.output}.{side}" for side in sides]
    check_outputs(options, paths)
    from keras_transformer.training.text.parallel_text import read_lines_or_pairs

    from ..model_dir.files import replacing
    from ..runtime.progress import ProgressBar

    pairs = read_lines_or_pairs(options.source, options.target)
    with tensorflow_backend():
        from keras_transformer.training.batches.augmentation import Augmentation

        from ..tokenizers.placeholders import SpanFinder
    augmentation = Augmentation(config, options.seed, SpanFinder())
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in paths]
        # Closed before they get their names.
        files = [stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n")) for temporary in temporaries]
        with ProgressBar("augmenting", "lines") as bar:
            for pair in bar.count(augmentation.pairs(pairs, epoch=0)):
                for file, text in zip(files, pair):
                    file.write(f"{text}\n")
        if not files[0].tell():
            raise InvalidFileError("the text is empty")
