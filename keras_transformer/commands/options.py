"""Option parser, checks of option values, and options that several commands share."""

import argparse
import contextlib
import functools
import glob
import os
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from ..checks import (
    non_negative_int,
    positive_int,
    require,
    text,
    text_not_blank,
    text_not_empty,
    utf_8,
)
from ..config import search_options
from ..config.values import BLEU_TOKENIZERS, Precision, PrecisionOrAuto, tag
from ..errors import ConfigError, StreamError

# A function that accepts the name and the value of an option, and returns the value or raises a
# ConfigError.
Check = Callable[[str, Any], Any]

# NumPy seeds have at most 32 bits.
seed = functools.partial(non_negative_int, at_most=2**32 - 1)


def input_file(name: str, path: str) -> str:
    rule = "a file that exists, or - for standard input"
    require(path == "-" or _is_file(path), name, rule, path)
    return path


def existing_file(name: str, path: str) -> str:
    require(_is_file(path), name, "a file that exists", path)
    return path


def input_text(name: str, path: str) -> str:
    """Checks a path of text: a file, a pattern for several files, or standard input."""
    rule = "a file that exists, a pattern of files such as 'news-*.en.gz', or - for standard input"
    require(path == "-" or _is_file(path) or glob.has_magic(path), name, rule, path)
    return path


def directory(name: str, path: str) -> str:
    """Checks the path of a directory, which does not have to exist."""
    text_not_empty(name, path)
    require(os.path.isdir(path) or not os.path.exists(path), name, "a directory", path)
    return path


def writable_directory(name: str, path: str) -> str:
    """Checks the path of a directory that exists and can be written to, or can be created."""
    directory(name, path)
    # Missing folders will be created, so check the first folder that exists.
    folder = os.path.abspath(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    is_writable = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    require(is_writable, name, "a directory that can be written to", path)
    return path


def existing_directory(name: str, path: str) -> str:
    require(os.path.isdir(text_not_empty(name, path)), name, "a directory that exists", path)
    return path


def output_directory(name: str, path: str) -> str:
    return utf_8(name, directory(name, path))


def servable_path(name: str, path: str) -> str:
    """Checks that the path of a SavedModel has no wildcards, which TensorFlow would expand."""
    is_literal = not set("*?[\\") & set(directory(name, path))
    require(is_literal, name, "a path without any of * ? [ \\", path)
    return path


def output_name(name: str, path: str) -> str:
    """Checks the common prefix of the paths of several files."""
    has_name = os.path.basename(text_not_empty(name, path)) != ""
    require(has_name, name, "a path that ends in a name", path)
    return path


def sentence_to_translate(name: str, value: str) -> str:
    return utf_8(name, text_not_blank(name, value))


def languages(name: str, value: str) -> str:
    """Checks a pair of languages, such as en-de."""
    is_valid = re.fullmatch(r"\w{2,3}(_\w+)?-\w{2,3}(_\w+)?", value) is not None
    require(is_valid, name, "two languages, such as en-de", value)
    return value


# Help for options with text files.
ONE_PER_LINE = (
    "one per line; .gz, .xz and .zst files are decompressed; a pattern in quotes matches several "
    "files"
)
# Options that need --sample.
SAMPLING = ("temperature", "top_k", "top_p", "seed")
# Options that need --compile.
SEARCH_SHAPES = ("compile_lengths", "compile_batches")
# Limits for compiled shapes. Every batch is padded to its shape. A search divides requests of up to
# 32 texts into batches of up to 16.
_MAX_COMPILED_LENGTH = 1024
_MAX_COMPILED_BATCH = 16


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


class Parser(argparse.ArgumentParser):
    """Argument parser with checks of option values, option groups and an example in the help."""

    example = ""  # Arguments in the example at the end of a command's help.
    _group: argparse._ArgumentGroup | None = None

    def __init__(self, **arguments: Any) -> None:
        # Reject abbreviated options, which may be typos or become ambiguous later.
        super().__init__(**arguments, allow_abbrev=False)
        self.checks: dict[str, Check] = {}
        self.set_defaults(checks=self.checks)

    @contextlib.contextmanager
    def group(self, title: str, description: str | None = None) -> Iterator[None]:
        """Lists the options that are added in the block under a title in the help."""
        self._group = self.add_argument_group(title, description)
        yield
        self._group = None

    def add_argument(self, *names: str, **arguments: Any) -> argparse.Action:
        if self._group is not None:
            return self._group.add_argument(*names, **arguments)
        return super().add_argument(*names, **arguments)

    def add_option(
        self,
        name: str,
        check: Check,
        metavar: str,
        help: str,
        type: Callable[[str], Any] = str,
        **arguments: Any,
    ) -> None:
        """Adds an option with a value.

        Args:
            name: name of the option, such as "--model-dir".
            check: function that accepts the name and the value of the option, such as
                `positive_int`. `check_options` calls it after all options are parsed.
            metavar: name of the value in the help.
            help: description of the option.
            type: type of the value: `str`, `int` or `float`. Defaults to `str`.
            **arguments: additional arguments of `add_argument`.
        """
        self.checks[name] = check
        self.add_argument(name, type=type, metavar=metavar, help=help, **arguments)

    def add_flag(self, name: str, help: str) -> None:
        self.add_argument(name, action="store_true", help=help)

    def format_help(self) -> str:
        if not self.example:
            return super().format_help()
        # The example is not in the epilog, because argparse would break the command at hyphens.
        example = f"{self.prog} {self.example}"
        lines = textwrap.wrap(example, width=76, subsequent_indent="    ", break_on_hyphens=False)
        return super().format_help() + "\nexample:\n  " + " \\\n  ".join(lines) + "\n"

    def error(self, message: str) -> NoReturn:
        self.exit(
            2, f"{self.prog}: error: {' '.join(message.splitlines())} (see {self.prog} --help)\n"
        )

    # Options that several commands share.

    def add_model_dir(self) -> None:
        self.add_option("--model-dir", directory, "DIR", "the model directory", required=True)

    def add_paths(
        self,
        name: str,
        help: str,
        required: bool = False,
        check: Check = input_text,
        metavar: str = "FILE",
    ) -> None:
        """Adds an option for one or more paths, by default of text files. It can be repeated."""
        self.add_option(name, check, metavar, help, nargs="+", action="extend", required=required)

    def add_json(self) -> None:
        self.add_flag("--json", "print a JSON object")

    def add_search(self) -> None:
        with self.group("search"):
            help = (
                "number of hypotheses, at most 1,000; 1 is greedy search (default: the model's "
                "decoding.beam_size)"
            )
            self.add_option("--beam-size", search_options.beam_size, "N", help, type=int)
            help = (
                "0 to 5; higher values lead to longer translations (default: the model's "
                "decoding.length_penalty)"
            )
            self.add_option(
                "--length-penalty", search_options.length_penalty, "ALPHA", help, type=float
            )
            self.add_flag(
                "--no-shortlist", "search all tokens even if the model directory has a shortlist"
            )
            self.add_tag()

    def add_search_shapes(self) -> None:
        """Adds the options for the shapes of a compiled search, besides `--compile`."""
        length = functools.partial(positive_int, at_most=_MAX_COMPILED_LENGTH)
        batch = functools.partial(positive_int, at_most=_MAX_COMPILED_BATCH)
        help = (
            "source lengths for --compile, in tokens; texts are padded to the next length "
            "(default: 16 24 32 48 64)"
        )
        self.add_option("--compile-lengths", length, "N", help, type=int, nargs="+")
        help = (
            "batch sizes for --compile, up to 16 texts; batches are padded to the next size "
            "(default: 1)"
        )
        self.add_option("--compile-batches", batch, "N", help, type=int, nargs="+")

    def add_tag(self) -> None:
        default = "the model's decoding.tag"
        help = (
            f"tag in front of every source, such as '>>de<<'; it must be in the vocabulary "
            f"(default: {default})"
        )
        self.add_option("--tag", tag, "TAG", help)

    def add_terms(self, keep: bool = False) -> None:
        with self.group("terms"):
            if keep:
                help = (
                    "terms to copy to the translation unchanged, one per line; needs a model that "
                    "was trained with decoding.placeholders=true"
                )
                self.add_option("--keep", existing_file, "FILE", help)
            help = (
                "glossary with one entry per line: a term, a tab and its translation; needs a "
                "model that was trained with data.terms"
            )
            self.add_option("--terms", existing_file, "FILE", help)

    def add_overwrite(self) -> None:
        self.add_flag("--overwrite", "overwrite existing files")

    def add_tokenize(self) -> None:
        help = (
            "sacreBLEU tokenizer for BLEU; none for files that are already tokenized (default: "
            "chosen by the script of the references, 13a for scripts with spaces between words)"
        )
        self.add_argument("--tokenize", choices=BLEU_TOKENIZERS, help=help)

    def add_precision(self, help: str | None = None) -> None:
        """Adds `--precision`. It defaults to "auto", or to "float32" if `help` is given."""
        help_for_auto = (
            "auto is bfloat16 on CPUs with AMX and on GPUs of compute capability 8.0 and later, "
            "otherwise float32; "
            "int8-weights computes in "
            "float32 with rounded weights, like a SavedModel of this precision (default: auto)"
        )
        self.add_argument(
            "--precision",
            choices=typing.get_args(Precision if help else PrecisionOrAuto),
            default="float32" if help else "auto",
            help=help or help_for_auto,
        )

    def add_sampling(self) -> None:
        with self.group(
            "sampling", "Sample translations at random instead of searching for the best."
        ):
            self.add_flag("--sample", "sample translations; required for the options below")
            help = "values above 1 increase variety, values below 1 reduce it (default: 1)"
            self.add_option("--temperature", search_options.temperature, "T", help, type=float)
            help = "sample from the K most probable tokens (default: all)"
            self.add_option("--top-k", search_options.top_k, "K", help, type=int)
            help = (
                "sample from the most probable tokens with a cumulative probability of P "
                "(default: 1)"
            )
            self.add_option("--top-p", search_options.top_p, "P", help, type=float)
            help = "random seed (default: 0)"
            self.add_option("--seed", seed, "N", help, type=int)


def check_outputs(
    options: argparse.Namespace, paths: Iterable[str], state: Iterable[str] = ()
) -> None:
    """Checks that a command does not overwrite inputs, model directories or existing files.

    Existing files are allowed with --overwrite, or if a file in `state` exists. State files contain
    the settings of the command that wrote them.
    """
    from ..model_dir import ModelDir

    paths, state = list(paths), list(state)
    given_dirs = getattr(options, "model_dir", None) or []
    model_dirs = [given_dirs] if isinstance(given_dirs, str) else list(given_dirs)
    for path in (*paths, *state):
        for model_dir in model_dirs:
            if ModelDir(model_dir).has_as_file(path):
                raise ConfigError(
                    f"{path}: this file belongs to the model directory {model_dir}; "
                    "choose another output file"
                )
        _require_writable(path)
    is_resumed = any(map(os.path.exists, state))
    inputs = [
        (name, file)
        for name, path in _given(options)
        if options.checks[name] in (input_file, existing_file, input_text)
        for file in (path, *glob.glob(path))
        if os.path.exists(file)
    ]
    for path in filter(os.path.exists, (*paths, *state)):
        for name, file in inputs:
            if os.path.samefile(path, file):
                raise ConfigError(
                    f"{path}: this file is read as {name}; choose another output file"
                )
    for path in filter(os.path.lexists, paths):
        if not (options.overwrite or is_resumed):
            raise ConfigError(
                f"{path}: the file exists already; write to another one, or give --overwrite"
            )


def _require_writable(path: str) -> None:
    """Raises a ConfigError if a file cannot be written, before any work is done."""
    if os.path.isdir(path):
        raise ConfigError(f"{path}: this is a directory; give the path of a file")
    folder = os.path.dirname(os.path.abspath(path))
    # Missing folders will be created, so check the first folder that exists.
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise ConfigError(f"{path}: {folder} is not a directory; write to another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{path}: the directory {folder} is not writable; write to another path")


def check_needs(options: argparse.Namespace, names: Iterable[str], needed: str) -> None:
    """Raises a ConfigError if any of the options `names` is given without the option `needed`."""
    for name in names:
        if getattr(options, name) is not None and not getattr(options, needed):
            raise ConfigError(f"--{name.replace('_', '-')} needs --{needed}")


def check_options(options: argparse.Namespace) -> None:
    """Checks the values of options and the use of standard input and output.

    Standard input can be read only once, and standard output must not be closed.
    """
    # Check for invalid text first, because the operating system does not accept it in paths.
    for name, values in vars(options).items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str):
                text(f"--{name.replace('_', '-')}", value)
    given = _given(options)
    for name, value in given:
        options.checks[name](name, value)
    from_input = [
        f"{name} -"
        for name, value in given
        if value == "-" and options.checks[name] in (input_file, input_text)
    ]
    if len(from_input) > 1:
        raise ConfigError(f"standard input can be read only once; received {', '.join(from_input)}")
    # Training writes nothing to standard output.
    if sys.stdout is None and (options.command != "train" or options.print_config):
        raise StreamError("standard output is closed")


def _given(options: argparse.Namespace) -> list[tuple[str, Any]]:
    """Returns pairs of name and value for the given options that have checks."""
    values = {
        name: getattr(options, name.removeprefix("--").replace("-", "_")) for name in options.checks
    }
    return [
        (name, item)
        for name, value in values.items()
        if value is not None
        for item in (value if isinstance(value, list) else [value])
    ]
