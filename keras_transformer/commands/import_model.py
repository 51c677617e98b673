"""The command `import`."""

import argparse

from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import ExistingDirectory, Parser, add_model_dir

SUMMARY = "Convert a model of Marian, or of Hugging Face's port of it, to a model directory."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option("--from", ExistingDirectory, metavar="DIR", required=True, help="the folder that holds the model")


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    with tensorflow_backend():
        from ..pretrained import import_model
    # `from` is a keyword of Python.
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])
