"""The command `average`."""

import argparse

from ..config.rules import Size
from ..errors import ConfigError
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import Parser, add_model_dir

SUMMARY = "Average checkpoints, to translate with the average."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option("--last", Size, metavar="N", help="the last N checkpoints (the recipe's average_last)")
    parser.add_option("--best", Size, metavar="N", help="the N checkpoints with the best validation score")


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    model_dir.read_config()
    if options.last and options.best:
        raise ConfigError("give either --last or --best")
    if not model_dir.checkpoints():
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    with tensorflow_backend():
        from keras_transformer.training.run.average import average_checkpoints
    paths = average_checkpoints(model_dir, last=options.last, best=options.best)
    write_lines([f"averaged {', '.join(path.name for path in paths)}"])
