"""The command `check-data`, and the options for a parallel text, which `train` has too."""

import argparse
import json
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..rules import NotEmpty, Size
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import Fraction, Parser

if TYPE_CHECKING:
    from keras_transformer.training.text.filters import HeldOut
    from keras_transformer.training.text.text_files import Corpus

# Which of --source, --target, --pairs and --tfds are given.
_WAYS_TO_GIVE_A_TEXT = ([True, True, False, False], [False, False, True, False], [False, False, False, True])


def add_check_data_options(parser: Parser) -> None:
    parser.example = "--source train.en --target train.de"
    add_text_options(parser)
    parser.add_json()
    parser.epilog = (
        "The filters are those of the configuration's data section, such as --set data.max_length_ratio=4; if none is "
        "on, the report shows what recommended values would remove."
    )


def run_check_data(options: argparse.Namespace) -> None:
    """Print statistics of a parallel text, and what filters would remove."""
    check_text_options(options)
    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.text.check_data import check_data, report_lines

    data = load_recipe(options.config, options.set).data
    reports = {"training": check_data(train_corpora(options), data, held_out(options))}
    if corpora := valid_corpora(options):
        reports["validation"] = check_data(corpora)
    if options.json:
        write_lines([json.dumps(reports)])
        return
    write_lines(line for name, report in reports.items() for line in report_lines(name, report))


def add_text_options(parser: Parser) -> None:
    """Adds the options for the text and for the configuration, whose filters choose from it."""
    with parser.group("training text", "Give --source and --target, or --pairs, or --tfds."):
        help = "sentences, one per line; .gz, .xz and .zst files are decompressed; a pattern in quotes, such as "
        parser.add_paths("--source", help + "'news-*.en.gz', stands for files that are one corpus")
        parser.add_paths("--target", "their translations, one per line")
        parser.add_paths("--pairs", "files with a sentence, a tab and its translation in each line")
        parser.add_option("--tfds", NotEmpty, "NAME", "a translation dataset of tensorflow-datasets")
    with parser.group("validation text", "In one way as well; --tfds brings its own."):
        parser.add_paths("--valid-source", "sentences, one per line")
        parser.add_paths("--valid-target", "their translations, one per line")
        parser.add_paths("--valid-pairs", "files with a sentence, a tab and its translation in each line")
        help = "hold out this share of the training text, chosen by a hash of each pair"
        parser.add_option("--valid-fraction", Fraction, "F", help)
        parser.add_option("--valid-size", Size, "N", "hold out N pairs of the training text")
    with parser.group("recipe"):
        help = "a .yaml file, or the name of a recipe that comes with the package (default: the paper's base model)"
        parser.add_option("--config", NotEmpty, "RECIPE", help)
        help = "replace values of the recipe, such as model.d_model=256"
        parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="SECTION.KEY=VALUE", help=help)


def check_text_options(options: argparse.Namespace, needs_validation: bool = False) -> None:
    """Raises a ConfigError unless the training text is given in one way, and the validation text in at most one."""
    files = (options.source, options.target, options.pairs, options.tfds)
    if [value is not None for value in files] not in _WAYS_TO_GIVE_A_TEXT:
        raise ConfigError("give the training text in one way: by --source and --target, by --pairs, or by --tfds")
    given = _valid_options(options)
    is_half_given = bool(options.valid_source) != bool(options.valid_target)
    if is_half_given or len(given) > 1 or (needs_validation and not (given or options.tfds)):
        raise ConfigError(
            "give the validation text in one way: by --valid-source and --valid-target, by --valid-pairs, or held out "
            "of the training text by --valid-fraction or --valid-size"
        )


def train_corpora(options: argparse.Namespace) -> "list[Corpus]":
    return _tfds_corpora(options.tfds, "train") or _corpora_of_files(options.source, options.target, options.pairs)


def valid_corpora(options: argparse.Namespace) -> "list[Corpus]":
    """Opens the validation text; none if it is held out of the training text."""
    files = _corpora_of_files(options.valid_source, options.valid_target, options.valid_pairs)
    return files or ([] if _valid_options(options) else _tfds_corpora(options.tfds, "validation"))


def held_out(options: argparse.Namespace) -> "HeldOut | None":
    from keras_transformer.training.text.filters import HeldOut

    if options.valid_fraction or options.valid_size:
        return HeldOut(options.valid_fraction, options.valid_size)
    return None


def _valid_options(options: argparse.Namespace) -> list[str]:
    names = ("valid_source", "valid_pairs", "valid_fraction", "valid_size")
    return [name for name in names if getattr(options, name)]


def _corpora_of_files(sources: list[str] | None, targets: list[str] | None, pairs: list[str] | None) -> "list[Corpus]":
    from keras_transformer.training.text.text_files import paired_corpora, text_corpora

    return text_corpora(sources or [], targets or []) + paired_corpora(pairs or [])


def _tfds_corpora(name: str | None, split: str) -> "list[Corpus]":
    if name is None:
        return []
    with tensorflow_backend():
        from keras_transformer.training.text.text_files import tfds_corpus

        return [tfds_corpus(name, split)]
