"""The commands `average` and `import`, which write a model's weights."""

import argparse

from ..errors import ConfigError
from ..rules import Size
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import ExistingDirectory, Parser, add_model_dir


def add_average_options(parser: Parser) -> None:
    add_model_dir(parser)
    parser.add_option("--last", Size, metavar="N", help="the last N checkpoints (the recipe's average_last)")
    parser.add_option("--best", Size, metavar="N", help="the N checkpoints with the best validation score")


def run_average(options: argparse.Namespace) -> None:
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    model_dir.read_config()
    if options.last and options.best:
        raise ConfigError("give either --last or --best")
    if not model_dir.checkpoints():
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    with tensorflow_backend():
        from keras_transformer.training.run.checkpoints import average_checkpoints
    paths = average_checkpoints(model_dir, last=options.last, best=options.best)
    write_lines([f"averaged {', '.join(path.name for path in paths)}"])


def add_import_options(parser: Parser) -> None:
    add_model_dir(parser)
    parser.add_option("--from", ExistingDirectory, metavar="DIR", required=True, help="the folder that holds the model")


def run_import(options: argparse.Namespace) -> None:
    with tensorflow_backend():
        from ..pretrained import import_model
    # `from` is a keyword of Python.
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])
