"""The command line: chooses a command, and turns errors into one line.

Commands import nothing heavy before their arguments are checked: `--help` and most mistakes are answered at once.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence

from .. import __version__
from ..errors import Error
from ..runtime.packages import missing_packages_named
from ..runtime.progress import say, show_log
from ..runtime.standard_streams import discard_unwritten, occupy_closed_streams
from . import check_data, compare, evaluate, export, model_files, plots, serve, synthesis, train, translate
from .options import Parser, check_options

# Each command has a function that adds its options, and one that runs it, whose docstring is its summary.
COMMANDS: dict[str, tuple[Callable[[Parser], None], Callable[[argparse.Namespace], None]]] = {
    "train": (train.add_options, train.run),
    "check-data": (check_data.add_check_data_options, check_data.run_check_data),
    "translate": (translate.add_options, translate.run),
    "evaluate": (evaluate.add_evaluate_options, evaluate.run_evaluate),
    "compare": (compare.add_options, compare.run),
    "score": (evaluate.add_score_options, evaluate.run_score),
    "average": (model_files.add_average_options, model_files.run_average),
    "backtranslate": (synthesis.add_backtranslate_options, synthesis.run_backtranslate),
    "distill": (synthesis.add_distill_options, synthesis.run_distill),
    "augment": (synthesis.add_augment_options, synthesis.run_augment),
    "align": (model_files.add_align_options, model_files.run_align),
    "export": (export.add_options, export.run),
    "import": (model_files.add_import_options, model_files.run_import),
    "plot-attention": (plots.add_attention_options, plots.run_attention),
    "plot-training": (plots.add_training_options, plots.run_training),
    "serve": (serve.add_options, serve.run),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; a user's mistake is one line on standard error, and the exit code 1 or 2."""
    occupy_closed_streams()
    show_log()
    options = _parse(arguments)
    # TensorFlow logs its CPU kernels and missing GPUs otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        check_options(options)
        with missing_packages_named():
            _, run = COMMANDS[options.command]
            run(options)
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
    for name, (add_options, run) in COMMANDS.items():
        add_options(subparsers.add_parser(name, help=run.__doc__, description=run.__doc__))
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
        # TensorFlow counts the disk among its resources.
        if os.strerror(errno.ENOSPC) in first_line:
            return f"the disk is full: {first_line}"
        return f"out of memory: {first_line}" if first_line else "out of memory"
    return None
