"""The command line: chooses a command, and turns errors into one line.

Commands import nothing heavy before their arguments are checked: `--help` and most mistakes are answered at once.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from .. import __version__
from ..errors import Error
from ..runtime.packages import missing_packages_named
from ..runtime.progress import say, show_log
from ..runtime.standard_streams import discard_unwritten, occupy_closed_streams
from . import (
    align,
    augment,
    average,
    backtranslate,
    check_data,
    compare,
    distill,
    evaluate,
    export,
    import_model,
    plot_attention,
    plot_training,
    score,
    serve,
    train,
    translate,
)
from .options import Parser, check_options


class Command(Protocol):
    """A module that is a command."""

    SUMMARY: str

    def add_options(self, parser: Parser, /) -> None: ...

    def run(self, options: argparse.Namespace, /) -> None: ...


_COMMANDS: dict[str, Command] = {
    "train": train,
    "check-data": check_data,
    "translate": translate,
    "evaluate": evaluate,
    "compare": compare,
    "score": score,
    "average": average,
    "backtranslate": backtranslate,
    "distill": distill,
    "augment": augment,
    "align": align,
    "export": export,
    "import": import_model,
    "plot-attention": plot_attention,
    "plot-training": plot_training,
    "serve": serve,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; a user's mistake is one line on standard error, and the exit code 1 or 2.

    Args:
        arguments: list of str, or None for those of the process. Defaults to None.
    """
    occupy_closed_streams()
    show_log()
    options = _parse(arguments)
    # TensorFlow logs its CPU kernels and missing GPUs otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        check_options(options)
        with missing_packages_named():
            _COMMANDS[options.command].run(options)
    except BrokenPipeError:
        # The reader has closed the pipe.
        discard_unwritten()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        say(f"keras-transformer {options.command}: error: {' '.join(message.splitlines())}")
        discard_unwritten()
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command whose name is `command`; `rules` has the rules of their values."""
    parser = Parser(prog="keras-transformer", description="Train, run and export Transformer translators.")
    parser.add_argument("--version", action="version", version=f"keras-transformer {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        command.add_options(subparsers.add_parser(name, help=command.SUMMARY, description=command.SUMMARY))
    return parser.parse_args(arguments)


def _message(error: Exception) -> str | None:
    """What a user is told of an error; None if it is a bug."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, Error | OSError):
        return str(error)
    tensorflow = sys.modules.get("tensorflow")
    if isinstance(error, MemoryError) or (tensorflow and isinstance(error, tensorflow.errors.ResourceExhaustedError)):
        # The other lines say where in TensorFlow it happened.
        first_line = str(error).partition("\n")[0]
        return f"out of memory: {first_line}" if first_line else "out of memory"
    return None
