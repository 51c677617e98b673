"""The commands `average`, `import` and `build-shortlist`, which write files of a model directory."""

import argparse

from ..errors import ConfigError
from ..rules import NotEmpty, Size
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import ExistingDirectory, Parser, check_outputs
from .trained import load_translator, read_trained


def add_average_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --last 5"
    parser.add_model_dir()
    parser.add_option("--last", Size, "N", "the last N checkpoints (default: training.average_last of the recipe)")
    parser.add_option("--best", Size, "N", "the N checkpoints with the best validation score")


def run_average(options: argparse.Namespace) -> None:
    """Average the last or the best checkpoints."""
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    model_dir.read_config()
    if options.last and options.best:
        raise ConfigError("give either --last or --best")
    if not model_dir.checkpoints():
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    with tensorflow_backend():
        from keras_transformer.training.run.state import average_checkpoints
    paths = average_checkpoints(model_dir, last=options.last, best=options.best)
    write_lines([f"averaged {', '.join(path.name for path in paths)}"])


def add_import_options(parser: Parser) -> None:
    parser.example = "--from opus-mt-en-de --model-dir models/en-de"
    parser.add_model_dir()
    parser.add_option("--from", ExistingDirectory, "DIR", "the folder that holds the model", required=True)


def run_import(options: argparse.Namespace) -> None:
    """Convert a model of Marian, or of Hugging Face's port of it, to a model directory."""
    with tensorflow_backend():
        from ..pretrained import import_model
    # `from` is a keyword of Python.
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])


def add_shortlist_options(parser: Parser) -> None:
    parser.example = "--source train.en --target train.de --model-dir models/en-de"
    parser.add_model_dir()
    texts = "sentences, one per line, such as those that the model was trained on"
    parser.add_paths("--source", f"{texts}; a pattern in quotes stands for several files", required=True)
    parser.add_paths("--target", "their translations, by people or by the model", required=True)
    parser.add_option(
        "--links",
        NotEmpty,
        "FILE",
        "also write a line for each pair: which of its subwords are translations of each other, such as 0-0 1-2; "
        "by the model's attention if it was trained with training.guided_alignment",
    )
    parser.add_overwrite()
    parser.epilog = (
        "Writes shortlist.npz into the model directory, with which translate, evaluate, export and serve are faster. "
        "If the command was stopped, give it again: it goes on after the last pass over the text that was completed."
    )


def run_build_shortlist(options: argparse.Namespace) -> None:
    """Learn which tokens translate which, to search among fewer tokens."""
    check_outputs(options, [options.links] if options.links else [])
    from keras_transformer.training.text.corpus import read_text
    from keras_transformer.training.text.text_files import text_corpora

    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    is_guided = model_dir.read_config().training.guided_alignment > 0 and options.links is not None
    pairs, _ = read_text(text_corpora(options.source, options.target))
    with tensorflow_backend():
        from keras_transformer.training.alignment.shortlist import build_shortlist
    build_shortlist(model_dir, pairs, None if is_guided else options.links)
    if is_guided:
        from keras_transformer.training.alignment.shortlist import attention_links, write_links

        translator = load_translator(read_trained(options.model_dir, options)._replace(shortlist=False))
        write_links(options.links, len(pairs), attention_links(translator, pairs))
