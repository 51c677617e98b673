"""Command line, which runs a command and prints an error as a single line.

Commands do not import large packages before their arguments are checked, so `--help` and most error
messages appear quickly.
"""

import argparse
import errno
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import __version__
from ..errors import Error
from ..runtime.packages import missing_packages_named
from ..runtime.progress import say, show_log
from ..runtime.standard_streams import discard_unwritten, occupy_closed_streams
from . import evaluate, export, synthesis, train, translate
from .options import Parser, check_options


class Command(NamedTuple):
    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]  # The docstring is the summary in the help.


GROUPS = {
    "Train a model": {
        "train": Command(train.add_train_options, train.run_train),
        "average": Command(train.add_average_options, train.run_average),
        "build-shortlist": Command(train.add_shortlist_options, train.run_build_shortlist),
    },
    "Prepare text": {
        "check-data": Command(train.add_check_data_options, train.run_check_data),
        "synthesize": Command(synthesis.add_synthesize_options, synthesis.run_synthesize),
        "augment": Command(synthesis.add_augment_options, synthesis.run_augment),
    },
    "Translate and evaluate": {
        "translate": Command(translate.add_translate_options, translate.run_translate),
        "evaluate": Command(evaluate.add_evaluate_options, evaluate.run_evaluate),
        "score": Command(evaluate.add_score_options, evaluate.run_score),
        "compare": Command(evaluate.add_compare_options, evaluate.run_compare),
        "plot": Command(translate.add_plot_options, translate.run_plot),
        "serve": Command(translate.add_serve_options, translate.run_serve),
    },
    "Export and import models": {
        "export": Command(export.add_export_options, export.run_export),
        "import": Command(export.add_import_options, export.run_import),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command.

    After a user error, this function prints a line to standard error and exits with code 1 or 2.
    """
    occupy_closed_streams()
    show_log()
    options = _parse(arguments)
    # Otherwise, TensorFlow would log its CPU kernels and missing GPUs.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        check_options(options)
        with missing_packages_named():
            COMMANDS[options.command].run(options)
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
    """Returns the options with the command's name (`command`) and their checks (`checks`)."""
    parser = Parser(
        prog="keras-transformer",
        usage="keras-transformer COMMAND ...",
        description="Train, run and export Transformer translators.",
        epilog=_list_of_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"keras-transformer {__version__}")
    subparsers = parser.add_subparsers(
        prog=parser.prog, dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )
    for name, command in COMMANDS.items():
        command.add_options(subparsers.add_parser(name, description=command.run.__doc__))
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return parser.parse_args(arguments)


def _list_of_commands() -> str:
    """Returns the commands with summaries, by group. argparse itself cannot group commands."""
    lines = []
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, command in commands.items():
            summary = f"  {name:<16}{command.run.__doc__}"
            lines += textwrap.wrap(summary, width=76, subsequent_indent=18 * " ")
    return "\n".join(
        [*lines[1:], "", "keras-transformer COMMAND --help shows the options of a command."]
    )


def _message(error: Exception) -> str | None:
    """Returns the message for an error of the user or the machine, or None for a bug."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, Error | OSError):
        return str(error)
    tensorflow = sys.modules.get("tensorflow")
    if isinstance(error, MemoryError) or (
        tensorflow and isinstance(error, tensorflow.errors.ResourceExhaustedError)
    ):
        # The other lines name the location in TensorFlow.
        first_line = str(error).partition("\n")[0]
        # TensorFlow reports a full disk as an exhausted resource too.
        if os.strerror(errno.ENOSPC) in first_line:
            return f"the disk is full: {first_line}"
        return f"out of memory: {first_line}" if first_line else "out of memory"
    return None
