"""The command `train`."""

import argparse
import os
from typing import TYPE_CHECKING

from ..config import DataConfig
from ..errors import ConfigError
from ..rules import require
from ..runtime.packages import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .check_data import add_text_options, check_text_options, held_out, train_corpora, valid_corpora
from .options import Directory, ExistingDirectory, NumDevices, Parser

if TYPE_CHECKING:
    from keras_transformer.training.run.interruption import Interruption
    from keras_transformer.training.text.corpus import SentencePairs

    from ..model_dir import ModelDir


def add_options(parser: Parser) -> None:
    parser.example = "--source train.en --target train.de --valid-fraction 0.01 --model-dir models/en-de"
    add_text_options(parser)
    with parser.group("training run"):
        parser.add_option("--model-dir", Directory, "DIR", "the model directory; required for training")
        help = "start from the model in this directory: weights, tokenizers, and sections model, tokenizer and decoding"
        parser.add_option("--init-from", ExistingDirectory, "DIR", help)
        help = "number of GPUs, or of parts of the CPU, at most 64 (default: all GPUs, or one CPU)"
        parser.add_option("--devices", NumDevices, "N", help)
        parser.add_flag("--allow-changed-text", "resume a training run although its text has changed")
        parser.add_flag("--print-config", "print the recipe with every key, and do not train")
    parser.epilog = (
        "To resume a training run that was stopped, give the same command again. Ctrl-C (SIGINT) and SIGTERM stop it "
        "after the current step, which is saved; a second one stops it at once. Exit codes: 0 if training is complete, "
        "1 after an error, 2 for a wrong option, 130 after SIGINT, 143 after SIGTERM."
    )


def run(options: argparse.Namespace) -> None:
    """Train a translator from a parallel text."""
    if options.print_config:
        from keras_transformer.training.recipe import load_recipe, recipe_of

        config = load_recipe(options.config, options.set, _init_from(options.init_from, options.model_dir))
        write_lines(recipe_of(config).splitlines())
        return
    if options.model_dir is None:
        raise ConfigError("--model-dir must be given")
    from keras_transformer.training.run.interruption import Interruption

    with Interruption() as interruption:
        _train(options, interruption)


def _train(options: argparse.Namespace, interruption: "Interruption") -> None:
    check_text_options(options, needs_validation=True)
    # Training is faster with oneDNN, which TensorFlow leaves off on processors without instructions for int8.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    from keras_transformer.training.recipe import load_recipe

    init_from = _init_from(options.init_from, options.model_dir)
    config = load_recipe(options.config, options.set, init_from)
    if init_from is not None:
        init_from.weights_path()
    # Errors in files are found before TensorFlow is loaded.
    text = None if options.tfds else _read_text(options, config.data)
    with tensorflow_backend():
        import keras

        from keras_transformer.training.run.devices import TOKENS_PER_PART, make_strategy
        from keras_transformer.training.run.trainer import train

        from ..runtime.device import divide_cores, log_device

        parallel_parts = divide_cores(config.training.tokens_per_batch // TOKENS_PER_PART)
    # After the block, in which nothing can be logged.
    strategy = make_strategy(options.devices)
    log_device()
    keras.utils.set_random_seed(config.training.seed)
    train_pairs, valid_pairs = text or _read_text(options, config.data)
    train(
        config,
        train_pairs,
        valid_pairs,
        options.model_dir,
        strategy,
        parallel_parts=parallel_parts,
        allow_changed_text=options.allow_changed_text,
        interruption=interruption,
        init_from=init_from,
    )


def _init_from(path: str | None, model_dir: str | None) -> "ModelDir | None":
    if path is None:
        return None
    from ..model_dir import ModelDir

    is_same = model_dir is not None and os.path.realpath(path) == os.path.realpath(model_dir)
    require(not is_same, "--init-from", "another directory than --model-dir", path)
    return ModelDir(path)


def _read_text(options: argparse.Namespace, data: DataConfig) -> "tuple[SentencePairs, SentencePairs]":
    from keras_transformer.training.text.corpus import read_text, read_valid_text

    train_pairs, valid_pairs = read_text(train_corpora(options), data, held_out(options))
    return train_pairs, valid_pairs or read_valid_text(valid_corpora(options), data)
