"""The options of the command `keras-transformer`, and the rules for their values."""

import argparse
import glob
import os
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from .. import __version__
from ..config.decoding import BeamSize, LengthPenalty
from ..config.precision import Precision, PrecisionOrAuto
from ..config.rules import PicturePath, Rule, Sentence, Size, at_most, check
from ..errors import ConfigError

NotEmpty = Annotated[str, Rule("a text that is not empty", bool)]
InputFile = Annotated[
    str, Rule("a file that exists, or - for standard input", lambda path: path == "-" or _is_file(path))
]
InputText = Annotated[
    str,
    Rule(
        "a file that exists, a pattern of files such as 'news-*.en.gz', or - for standard input",
        lambda path: path == "-" or _is_file(path) or glob.has_magic(path),
    ),
]
Fraction = Annotated[float, Rule("above 0 and below 1", lambda value: 0 < value < 1)]
Directory = Annotated[NotEmpty, Rule("a directory", lambda path: os.path.isdir(path) or not os.path.exists(path))]
# TensorFlow reads the path of a SavedModel as a pattern.
ServablePath = Annotated[Directory, Rule("a path without any of * ? [ \\", lambda path: not set("*?[\\") & set(path))]
ExistingDirectory = Annotated[NotEmpty, Rule("a directory that exists", os.path.isdir)]
NumDevices = Annotated[Size, at_most(64)]


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


class _Parser(argparse.ArgumentParser):
    """A parser whose options have rules, as the fields of a configuration do."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rules: dict[str, Any] = {}
        self.set_defaults(rules=self.rules)

    def add_option(self, name: str, rule: Any, **arguments: Any) -> None:
        self.rules[name] = rule
        self.add_argument(name, type=rule.__origin__, **arguments)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.splitlines())} (see {self.prog} --help)\n")


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line; exits with 2 and one line on standard error if it is not that of a command.

    Args:
        arguments: list of str, or None for the process' own.

    Returns:
        The options of the command, whose name is `command`. `rules` has the rule of each option that has one.
    """
    parser = _Parser(prog="keras-transformer", description="Train, run and export Transformer translators.")
    parser.add_argument("--version", action="version", version=f"keras-transformer {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, uses_model: bool = True) -> _Parser:
        subparser = commands.add_parser(name, help=help, description=help)
        if uses_model:
            subparser.add_option("--model-dir", Directory, metavar="DIR", required=True, help="the model directory")
        return subparser

    _add_train_options(command("train", "Train a translator from a parallel text."))
    _add_check_data_options(
        command("check-data", "Print how long a text is and what filters leave out.", uses_model=False)
    )
    _add_translate_options(command("translate", "Translate standard input, line by line."))
    _add_evaluate_options(command("evaluate", "Print BLEU and chrF of the translations of a file."))
    _add_score_options(command("score", "Print the log probability of each given translation."))
    _add_average_options(command("average", "Average checkpoints, to translate with the average."))
    _add_export_options(command("export", "Write a SavedModel for TensorFlow Serving, or a CTranslate2 model."))
    _add_import_options(
        command("import", "Convert a model of Marian, or of Hugging Face's port of it, to a model directory.")
    )
    _add_plot_options(command("plot-attention", "Draw which source tokens a translation attends to."))
    return parser.parse_args(arguments)


def _add_text_options(parser: _Parser) -> None:
    def add_files(name: str, help: str) -> None:
        parser.add_option(name, InputText, nargs="+", action="extend", metavar="FILE", help=help)

    add_files(
        "--source",
        "sentences to train on, one per line; .gz, .xz and .zst are read too; a pattern in quotes, such as "
        "'news-*.en.gz', stands for files that are one corpus",
    )
    add_files("--target", "their translations, line by line")
    add_files("--pairs", "instead: a sentence, a tab and its translation in each line")
    parser.add_option("--tfds", NotEmpty, metavar="NAME", help="instead: a translation dataset of tensorflow-datasets")
    add_files("--valid-source", "sentences to validate on")
    add_files("--valid-target", "their translations")
    add_files("--valid-pairs", "instead: a sentence, a tab and its translation in each line")
    parser.add_option(
        "--valid-fraction",
        Fraction,
        metavar="F",
        help="instead: hold this share of the training text out, chosen by a hash of each pair",
    )
    parser.add_option("--valid-size", Size, metavar="N", help="instead: hold this number of pairs out")
    parser.add_option(
        "--config", NotEmpty, metavar="RECIPE", help="a .yaml file, or the name of a recipe that comes with the package"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="replace values of the recipe, such as model.d_model=256",
    )


def _add_train_options(parser: _Parser) -> None:
    _add_text_options(parser)
    parser.add_option(
        "--init-from",
        ExistingDirectory,
        metavar="DIR",
        help="start from the model in this directory: its weights, tokenizers and sections model, tokenizer and "
        "decoding",
    )
    parser.add_option(
        "--devices",
        NumDevices,
        metavar="N",
        help="number of GPUs, or of parts of the CPU, at most 64 (all GPUs, or one CPU)",
    )
    parser.add_argument(
        "--allow-changed-text", action="store_true", help="resume a training although its text has changed"
    )
    parser.epilog = (
        "To resume a training that was stopped, give the same command again. Ctrl-C (SIGINT) and SIGTERM stop it after "
        "the current step, which is saved; a second one stops it at once. Exit codes: 0 if the training is done, 1 "
        "after an error, 2 for a wrong option, 130 after SIGINT, 143 after SIGTERM."
    )


def _add_check_data_options(parser: _Parser) -> None:
    _add_text_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = (
        "The filters are those of the section data of the configuration, such as --set data.max_length_ratio=4; if "
        "none is on, the report says what recommended values would leave out."
    )


def _add_translate_options(parser: _Parser) -> None:
    _add_decoding(parser)
    _add_precision_or_auto(parser)
    parser.add_option(
        "--n-best",
        BeamSize,
        metavar="N",
        help="write N lines per sentence: its line number, score and translation, separated by tabs",
    )


def _add_evaluate_options(parser: _Parser) -> None:
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--reference", InputFile, metavar="FILE", required=True, help="their translations")
    _add_decoding(parser)
    _add_precision_or_auto(parser)
    parser.add_argument(
        "--tokenize",
        choices=("13a", "none", "intl", "char"),
        default="13a",
        help="sacreBLEU's tokenization for BLEU (13a); none for files that are tokenized already",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_score_options(parser: _Parser) -> None:
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--target", InputFile, metavar="FILE", required=True, help="their translations")


def _add_average_options(parser: _Parser) -> None:
    parser.add_option("--last", Size, metavar="N", help="the last N checkpoints (the recipe's average_last)")
    parser.add_option("--best", Size, metavar="N", help="the N checkpoints with the best validation score")


def _add_export_options(parser: _Parser) -> None:
    parser.add_option(
        "--output", Directory, metavar="DIR", required=True, help="the directory in which the next version is written"
    )
    parser.add_argument(
        "--format", choices=("saved-model", "ctranslate2"), default="saved-model", help="what to write (saved-model)"
    )
    _add_decoding(parser)
    parser.add_argument(
        "--precision",
        choices=typing.get_args(Precision),
        default="float32",
        help="bfloat16 halves the weights' size, and is faster on processors with instructions for it (float32)",
    )


def _add_import_options(parser: _Parser) -> None:
    parser.add_option("--from", ExistingDirectory, metavar="DIR", required=True, help="the folder that holds the model")


def _add_plot_options(parser: _Parser) -> None:
    parser.add_option("--text", Sentence, required=True, help="the sentence to translate")
    parser.add_option("--output", PicturePath, metavar="FILE", required=True, help="a .png, .svg or .pdf file")


def _add_decoding(parser: _Parser) -> None:
    parser.add_option(
        "--beam-size", BeamSize, metavar="N", help="hypotheses kept at each step, at most 1,000; 1 is greedy search"
    )
    parser.add_option(
        "--length-penalty", LengthPenalty, metavar="ALPHA", help="0 to 5; the higher, the longer the translations"
    )


def _add_precision_or_auto(parser: _Parser) -> None:
    parser.add_argument(
        "--precision",
        choices=typing.get_args(PrecisionOrAuto),
        default="auto",
        help="auto takes bfloat16 where the device multiplies it faster, else float32 (auto)",
    )


def check_options(options: argparse.Namespace) -> None:
    """Checks the values of options against their rules.

    Raises:
        ConfigError: A value breaks its rule, standard input is to be read twice, or standard output is closed.
    """
    values = {name: getattr(options, name.removeprefix("--").replace("-", "_")) for name in options.rules}
    given = [
        (name, item)
        for name, value in values.items()
        if value is not None
        for item in (value if isinstance(value, list) else [value])
    ]
    for name, value in given:
        check(name, value, options.rules[name])
    from_input = [
        f"{name} -" for name, value in given if value == "-" and options.rules[name] in (InputFile, InputText)
    ]
    if len(from_input) > 1:
        raise ConfigError(f"standard input can be read only once; received {', '.join(from_input)}")
    if sys.stdout is None and options.command != "train":
        raise ConfigError("standard output is closed")
