"""The command line: chooses a command, and turns errors into one line.

Commands import nothing heavy before their arguments are checked: `--help` and most mistakes are answered at once.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import __version__
from ..errors import Error
from ..runtime.packages import missing_packages_named
from ..runtime.progress import say, show_log
from ..runtime.standard_streams import discard_unwritten, occupy_closed_streams
from . import check_data, compare, evaluate, export, model_files, plots, serve, synthesis, train, translate
from .options import Parser, check_options


class Command(NamedTuple):
    summary: str
    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]


COMMANDS = {
    "train": Command("Train a translator from a parallel text.", train.add_options, train.run),
    "check-data": Command(
        "Print how long the sentences of a text are and what filters leave out.",
        check_data.add_check_data_options,
        check_data.run_check_data,
    ),
    "translate": Command("Translate standard input, line by line.", translate.add_options, translate.run),
    "evaluate": Command(
        "Print BLEU and chrF of the translations of a file.", evaluate.add_evaluate_options, evaluate.run_evaluate
    ),
    "compare": Command(
        "Compare translations of several models or files: BLEU and chrF with significance, and their faults.",
        compare.add_options,
        compare.run,
    ),
    "score": Command(
        "Print the log probability of each given translation.", evaluate.add_score_options, evaluate.run_score
    ),
    "average": Command(
        "Average checkpoints, to translate with the average.", model_files.add_average_options, model_files.run_average
    ),
    "backtranslate": Command(
        "Translate text of the target language back, to train on the pairs.",
        synthesis.add_backtranslate_options,
        synthesis.run_backtranslate,
    ),
    "distill": Command(
        "Translate a training text with a teacher, to train a smaller model on the pairs.",
        synthesis.add_distill_options,
        synthesis.run_distill,
    ),
    "augment": Command(
        "Write a text in other shapes, such as UPPER CASE, to test a model on them.",
        synthesis.add_augment_options,
        synthesis.run_augment,
    ),
    "align": Command(
        "Learn from a parallel text which subwords translate which, and search only among these from then on.",
        model_files.add_align_options,
        model_files.run_align,
    ),
    "export": Command(
        "Write a SavedModel for TensorFlow Serving, or a model of CTranslate2 or Hugging Face.",
        export.add_options,
        export.run,
    ),
    "import": Command(
        "Convert a model of Marian, or of Hugging Face's port of it, to a model directory.",
        model_files.add_import_options,
        model_files.run_import,
    ),
    "plot-attention": Command(
        "Draw what a translation attends to: a picture, or a page to point at tokens.",
        plots.add_attention_options,
        plots.run_attention,
    ),
    "plot-training": Command(
        "Draw the loss, perplexity, BLEU and learning rate of training runs.",
        plots.add_training_options,
        plots.run_training,
    ),
    "serve": Command(
        "Try a model in a browser, and by TensorFlow Serving's REST API; not for production.",
        serve.add_options,
        serve.run,
    ),
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
    """The options of the command whose name is `command`; `rules` has the rules of their values."""
    parser = Parser(prog="keras-transformer", description="Train, run and export Transformer translators.")
    parser.add_argument("--version", action="version", version=f"keras-transformer {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_options(subparsers.add_parser(name, help=command.summary, description=command.summary))
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
