"""The commands for training: `check-data`, `train`, `average` and `build-shortlist`."""

import argparse
import functools
import json
import os
from typing import TYPE_CHECKING, Literal, cast

from ..checks import number, positive_int, require, text_not_empty
from ..config import Config, DataConfig
from ..errors import ConfigError
from ..runtime.packages import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import (
    ONE_PER_LINE,
    Parser,
    check_outputs,
    directory,
    existing_directory,
    writable_directory,
)
from .parallel_text import TRAINING_TEXT, VALIDATION_TEXT
from .trained import load_translator, read_trained

if TYPE_CHECKING:
    from keras_transformer.training.run.interruption import Interruption
    from keras_transformer.training.text.corpus import SentencePairs
    from keras_transformer.training.text.filters import HeldOut

    from ..model_dir import ModelDir
    from ..text import Corpus


# The number is limited, because TensorFlow takes a while to set up each virtual CPU.
_num_devices = functools.partial(positive_int, at_most=64)


def _valid_fraction(name: str, value: float) -> float:
    require(0 < number(name, value) < 1, name, "above 0 and below 1", value)
    return value


def _add_text_options(parser: Parser) -> None:
    """Adds options for the text and for the configuration, which contains filters for the text."""
    with parser.group("training text", "Use --source and --target, or --pairs, or --tfds."):
        help = (
            "sentences, one per line; .gz, .xz and .zst files are decompressed; a pattern in "
            "quotes, such as "
        )
        TRAINING_TEXT.add_to(parser, help + "'news-*.en.gz', matches files of the same corpus")
        parser.add_option(
            "--tfds", text_not_empty, "NAME", "a translation dataset from tensorflow-datasets"
        )
    with parser.group(
        "validation text",
        "Use --valid-source and --valid-target, or --valid-pairs, or --valid-fraction, or "
        "--valid-size. A --tfds dataset has its own validation text.",
    ):
        VALIDATION_TEXT.add_to(parser)
        help = "hold out this share of the training text, selected by a hash of each pair"
        parser.add_option("--valid-fraction", _valid_fraction, "F", help, type=float)
        help = "hold out N pairs of the training text"
        parser.add_option("--valid-size", positive_int, "N", help, type=int)
    with parser.group("recipe"):
        help = (
            "a .yaml file, or the name of a recipe in the package (default: the paper's base model)"
        )
        parser.add_option("--config", text_not_empty, "RECIPE", help)
        help = "override values of the recipe, such as model.d_model=256"
        parser.add_argument(
            "--set", nargs="+", action="extend", default=[], metavar="SECTION.KEY=VALUE", help=help
        )


def check_text_options(options: argparse.Namespace, needs_validation: bool = False) -> None:
    """Raises a ConfigError if the training text is missing or a text is given in several ways."""
    TRAINING_TEXT.check(options, "training text", {"by --tfds": options.tfds})
    held_out = "held out of the training text by --valid-fraction or --valid-size"
    if options.valid_fraction and options.valid_size:
        raise ConfigError("give either --valid-fraction or --valid-size")
    VALIDATION_TEXT.check(
        options,
        "validation text",
        {held_out: options.valid_fraction or options.valid_size},
        required=needs_validation and not options.tfds,
    )


def _corpora(options: argparse.Namespace, split: Literal["train", "validation"]) -> "list[Corpus]":
    """Opens the text of a split, or returns [] if the split is held out of the training text."""
    text = TRAINING_TEXT if split == "train" else VALIDATION_TEXT
    corpora = text.open(options)
    if corpora or options.tfds is None or (split == "validation" and _held_out(options)):
        return corpora
    with tensorflow_backend():
        from ..text.tfds import tfds_corpus

        return [tfds_corpus(options.tfds, split)]


def _held_out(options: argparse.Namespace) -> "HeldOut | None":
    from keras_transformer.training.text.filters import HeldOut

    if options.valid_fraction or options.valid_size:
        return HeldOut(options.valid_fraction, options.valid_size)
    return None


def add_check_data_options(parser: Parser) -> None:
    parser.example = "--source train.en --target train.de"
    _add_text_options(parser)
    parser.add_json()
    parser.epilog = (
        "Set filters in the recipe's data section, for example with --set "
        "data.max_length_ratio=4. Without "
        "filters, the report shows how many pairs the recommended values would remove."
    )


def run_check_data(options: argparse.Namespace) -> None:
    """Print statistics of a parallel text, and the number of pairs that filters would remove."""
    check_text_options(options)
    from keras_transformer.training.recipe import load_recipe, naming_origins
    from keras_transformer.training.text.check_data import check_data, report_lines

    recipe = load_recipe(options.config, options.set)
    corpora = _corpora(options, "validation")
    with naming_origins(options.config, options.set):
        spans = None
        if recipe.decoding.placeholders:
            with tensorflow_backend():
                from ..tokenizers.placeholders import SpanFinder

            spans = SpanFinder.of(recipe.decoding)
        text = _corpora(options, "train")
        reports = {"training": check_data(text, recipe.data, _held_out(options), spans)}
    if corpora:
        reports["validation"] = check_data(corpora, spans=spans)
    if options.json:
        write_lines([json.dumps(reports)])
        return
    write_lines(line for name, report in reports.items() for line in report_lines(name, report))


def add_train_options(parser: Parser) -> None:
    parser.example = (
        "--source train.en --target train.de --valid-fraction 0.01 --model-dir models/en-de "
        "--config demo"
    )
    _add_text_options(parser)
    with parser.group("training run"):
        parser.add_option(
            "--model-dir", directory, "DIR", "the model directory; required for training"
        )
        help = (
            "start from the model in this directory: its weights and tokenizers, and the sections "
            "model, tokenizer and decoding of its configuration"
        )
        parser.add_option("--init-from", existing_directory, "DIR", help)
        help = (
            "number of GPUs, or of virtual devices on the CPU, at most 64 (default: all GPUs, or "
            "one CPU)"
        )
        parser.add_option("--devices", _num_devices, "N", help, type=int)
        help = (
            "keep the tokenized text in this directory, which several training runs may share, so "
            "that later starts are faster (default: the folder tokens of the model directory)"
        )
        parser.add_option("--token-cache", writable_directory, "DIR", help)
        parser.add_flag("--no-token-cache", "remove the tokenized text when training ends")
        parser.add_flag(
            "--allow-changed-text", "resume a training run even if its text has changed"
        )
        help = "print the recipe with all keys, each with a comment, and exit"
        parser.add_flag("--print-config", help)
    parser.epilog = (
        "The example trains a small model in minutes, even on a laptop. Without --config, the "
        "command trains the paper's base model, which takes days without a GPU. "
        "To resume a training run that was stopped, run the same command again. Ctrl-C (SIGINT) "
        "and SIGTERM stop it "
        "after the current step and save its state; a second signal stops it immediately. Exit "
        "codes: 0 if training is complete, "
        "1 after an error, 2 for a wrong option, 130 after SIGINT, 143 after SIGTERM."
    )


def run_train(options: argparse.Namespace) -> None:
    """Train a translator from a parallel text."""
    from keras_transformer.training.run.interruption import Interruption

    with Interruption() as interruption:
        _train(options, interruption)


def _train(options: argparse.Namespace, interruption: "Interruption") -> None:
    if not options.print_config:
        if options.model_dir is None:
            raise ConfigError("--model-dir must be given")
        check_text_options(options, needs_validation=True)
    if options.no_token_cache and options.token_cache is not None:
        raise ConfigError("give either --token-cache or --no-token-cache")
    # Enable oneDNN, which makes training faster. By default, TensorFlow only uses it on processors
    # with int8 instructions.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    from keras_transformer.training.recipe import annotated_recipe_of, load_recipe, naming_origins
    from keras_transformer.training.run.cluster import trains_alone
    from keras_transformer.training.run.earlier_run import require_possible

    from ..model_dir import ModelDir

    init_from = None
    if options.init_from is not None:
        init_from = ModelDir(options.init_from)
        is_same = options.model_dir and os.path.realpath(options.model_dir) == os.path.realpath(
            options.init_from
        )
        require(not is_same, "--init-from", "another directory than --model-dir", options.init_from)
    config = load_recipe(options.config, options.set, init_from)
    if options.print_config:
        write_lines(annotated_recipe_of(config).splitlines())
        return
    if init_from is not None:
        init_from.weights_path()
    model_dir = ModelDir(options.model_dir)
    # Check the lock before reading the text, because training acquires it later. With several
    # workers, the chief of the same run may already hold it.
    if trains_alone() and os.path.lexists(model_dir.lock_path):
        with model_dir.lock_for_training():
            pass
    # Report the origin of values that do not match the model directory or the text.
    with naming_origins(options.config, options.set, init_from):
        require_possible(model_dir, config, init_from)
        _train_as(config, options, interruption, init_from)


def _train_as(
    config: Config,
    options: argparse.Namespace,
    interruption: "Interruption",
    init_from: "ModelDir | None",
) -> None:
    # Read the files first, so that errors are reported before TensorFlow is loaded.
    text = None if options.tfds else _read_text(options, config.data)
    with tensorflow_backend():
        import keras

        from keras_transformer.training.run.devices import TOKENS_PER_PART, make_strategy
        from keras_transformer.training.run.trainer import train

        from ..runtime.device import divide_cores, log_device

        parallel_parts = divide_cores(config.training.tokens_per_batch // TOKENS_PER_PART)
    # Log the device after the block, which discards standard error.
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
        token_cache=options.token_cache or not options.no_token_cache,
    )


def _read_text(
    options: argparse.Namespace, data: DataConfig
) -> "tuple[SentencePairs, SentencePairs]":
    from keras_transformer.training.text.corpus import (
        read_text,
        read_valid_text,
        require_one_for_each,
    )

    corpora = _corpora(options, "train")
    require_one_for_each(corpora, data)
    # Read the small validation text first, so that its errors are reported early.
    valid_corpora = _corpora(options, "validation")
    valid_pairs = read_valid_text(valid_corpora, data) if valid_corpora else None
    train_pairs, held_out = read_text(corpora, data, _held_out(options))
    return train_pairs, cast("SentencePairs", valid_pairs or held_out)


def add_average_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --last 5 --valid-source val.en --valid-target val.de"
    parser.add_model_dir()
    help = "average the last N checkpoints (default: the recipe's training.average_last)"
    parser.add_option("--last", positive_int, "N", help, type=int)
    help = "average the N checkpoints with the best validation scores"
    parser.add_option("--best", positive_int, "N", help, type=int)
    with parser.group(
        "validation text",
        "With a validation text, the average is compared with the best checkpoint by the recipe's "
        "training.validate_by, and the better of the two is used for translation. Without a "
        "validation text, the average is used.",
    ):
        VALIDATION_TEXT.add_to(parser)


def run_average(options: argparse.Namespace) -> None:
    """Average the last or the best checkpoints."""
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    config = model_dir.read_config()
    if options.last and options.best:
        raise ConfigError("give either --last or --best")
    VALIDATION_TEXT.check(options, "validation text", required=False)
    if not model_dir.checkpoints():
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    from keras_transformer.training.text.corpus import read_valid_text

    corpora = VALIDATION_TEXT.open(options)
    # Read the files first, so that errors are reported before TensorFlow is loaded.
    pairs = read_valid_text(corpora, config.data) if corpora else None
    with tensorflow_backend():
        from keras_transformer.training.run.selection import average_if_better
        from keras_transformer.training.run.state import average_checkpoints
    if pairs is None:
        paths = average_checkpoints(model_dir, last=options.last, best=options.best)
    else:
        paths = average_if_better(model_dir, pairs, last=options.last, best=options.best)
    write_lines([f"averaged {', '.join(path.name for path in paths)}"])


def add_shortlist_options(parser: Parser) -> None:
    parser.example = "--source train.en --target train.de --model-dir models/en-de"
    parser.add_model_dir()
    with parser.group(
        "text", "Use --source and --target, or --pairs. Translations may be by humans or the model."
    ):
        TRAINING_TEXT.add_to(parser, f"sentences, {ONE_PER_LINE}, such as the training text")
    parser.add_option(
        "--links",
        text_not_empty,
        "FILE",
        "also write the alignment of each pair's subwords to this file, such as 0-0 1-2; if the "
        "model was trained with training.guided_alignment, "
        "the alignments are from its attention",
    )
    parser.add_overwrite()
    parser.epilog = (
        "The command writes shortlist.npz to the model directory, which makes translate, "
        "evaluate, export and serve faster. To "
        "resume a command that was stopped, run the same command again. It continues after the "
        "last complete pass over the text."
    )


def run_build_shortlist(options: argparse.Namespace) -> None:
    """Build a shortlist of target tokens for each source token, which makes translation faster."""
    TRAINING_TEXT.check(options, "text")
    check_outputs(options, [options.links] if options.links else [])
    from keras_transformer.training.text.corpus import read_text

    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    is_guided = model_dir.read_config().training.guided_alignment > 0 and options.links is not None
    # Check the model before aligning the text.
    trained = (
        read_trained(options.model_dir, options)._replace(shortlist=False) if is_guided else None
    )
    pairs, _ = read_text(TRAINING_TEXT.open(options))
    with tensorflow_backend():
        from keras_transformer.training.alignment.shortlist import (
            attention_links,
            build_shortlist,
            write_links,
        )
    build_shortlist(model_dir, pairs, None if is_guided else options.links)
    if trained is not None:
        write_links(options.links, len(pairs), attention_links(load_translator(trained), pairs))
