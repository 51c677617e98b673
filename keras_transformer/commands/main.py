"""The command `keras-transformer`: imports what a command needs, and calls it.

Nothing heavy is imported before the arguments are checked: `--help` and most mistakes are answered at once.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ..config import Config, DataConfig, DecodingConfig
from ..config.rules import check, require
from ..errors import ConfigError, Error
from ..runtime.log import show_log
from ..runtime.native_log import silenced
from ..runtime.packages import missing_packages_named
from ..runtime.progress import ProgressBar, counted, say
from ..runtime.standard_streams import (
    arriving_lines,
    discard_unwritten,
    occupy_closed_streams,
    standard_input,
    write_lines,
)
from .options import ServablePath, check_options, parse_options

if TYPE_CHECKING:
    from keras_transformer.training.run.interruption import Interruption
    from keras_transformer.training.text.corpus import SentencePairs
    from keras_transformer.training.text.held_out import HeldOut
    from keras_transformer.training.text.parallel_text import Corpus

    from ..model_dir import ModelDir
    from ..translation import Translator

_log = logging.getLogger(__name__)

Item = TypeVar("Item")

# Which of --source, --target, --pairs and --tfds are given.
_WAYS_TO_GIVE_A_TEXT = ([True, True, False, False], [False, False, True, False], [False, False, False, True])
_GIVE_VALIDATION_TEXT = (
    "give the validation text in one way: by --valid-source and --valid-target, by --valid-pairs, or held out of the "
    "training text by --valid-fraction or --valid-size"
)
# Lines that are translated at a time.
_LINES_PER_BLOCK = 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; exits with 1 and one line on standard error for a user's mistake."""
    occupy_closed_streams()
    show_log()
    options = parse_options(arguments)
    # TensorFlow logs its CPU kernels and missing GPUs otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        check_options(options)
        with missing_packages_named():
            _COMMANDS[options.command](options)
    except BrokenPipeError:
        # The reader has closed the pipe.
        discard_unwritten()
        sys.exit(1)
    except (Error, ValueError, OSError, FloatingPointError) as error:
        say(f"keras-transformer {options.command}: error: {_on_one_line(error)}")
        discard_unwritten()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _on_one_line(error: Exception) -> str:
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(message.splitlines())


def _train(options: argparse.Namespace) -> None:
    from keras_transformer.training.run.interruption import Interruption

    with Interruption() as interruption:
        _train_until(interruption, options)


def _train_until(interruption: "Interruption", options: argparse.Namespace) -> None:
    _check_text_options(options)
    if not (options.tfds or _valid_options(options)):
        raise ConfigError(_GIVE_VALIDATION_TEXT)
    # Training is faster with oneDNN, which TensorFlow leaves off on processors without instructions for int8.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    from keras_transformer.training.recipe import load_recipe

    init_from = _init_from(options)
    config = load_recipe(options.config, options.set, init_from)
    if init_from is not None:
        # There are weights.
        init_from.weights_path()
    # Errors in files are found before TensorFlow is loaded.
    text = None if options.tfds else _read_text(options, config.data)
    with _tensorflow():
        import keras

        from keras_transformer.training.run.devices import TOKENS_PER_PART, make_strategy
        from keras_transformer.training.run.trainer import train

        from ..runtime.cores import divide_cores

        parallel_parts = divide_cores(config.training.tokens_per_batch // TOKENS_PER_PART)
    # It says so if it waits for other workers.
    strategy = make_strategy(options.devices)
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


def _init_from(options: argparse.Namespace) -> "ModelDir | None":
    if options.init_from is None:
        return None
    from ..model_dir import ModelDir

    is_same = os.path.realpath(options.init_from) == os.path.realpath(options.model_dir)
    require(not is_same, "--init-from", "another directory than --model-dir", options.init_from)
    return ModelDir(options.init_from)


def _check_text_options(options: argparse.Namespace) -> None:
    """Checks that a text to train on is given in one way, and one to validate on in at most one."""
    files = (options.source, options.target, options.pairs, options.tfds)
    if [value is not None for value in files] not in _WAYS_TO_GIVE_A_TEXT:
        raise ConfigError("give the training text in one way: by --source and --target, by --pairs, or by --tfds")
    is_half_given = bool(options.valid_source) != bool(options.valid_target)
    if is_half_given or len(_valid_options(options)) > 1:
        raise ConfigError(_GIVE_VALIDATION_TEXT)


def _valid_options(options: argparse.Namespace) -> list[str]:
    names = ("--valid-source", "--valid-pairs", "--valid-fraction", "--valid-size")
    return [name for name in names if getattr(options, name.removeprefix("--").replace("-", "_"))]


def _read_text(options: argparse.Namespace, data: DataConfig) -> "tuple[SentencePairs, SentencePairs]":
    from keras_transformer.training.text.corpus import read_text

    train_pairs, valid_pairs = read_text(_train_corpora(options), data, _held_out(options))
    return train_pairs, valid_pairs or read_text(_valid_corpora(options))[0]


def _train_corpora(options: argparse.Namespace) -> "list[Corpus]":
    return _tfds_corpora(options.tfds, "train") or _corpora_of_files(options.source, options.target, options.pairs)


def _valid_corpora(options: argparse.Namespace) -> "list[Corpus]":
    """The text that is given to validate on; none if it is held out of another."""
    files = _corpora_of_files(options.valid_source, options.valid_target, options.valid_pairs)
    return files or ([] if _valid_options(options) else _tfds_corpora(options.tfds, "validation"))


def _corpora_of_files(sources: list[str] | None, targets: list[str] | None, pairs: list[str] | None) -> "list[Corpus]":
    from keras_transformer.training.text.parallel_text import paired_corpora, text_corpora

    return text_corpora(sources or [], targets or []) + paired_corpora(pairs or [])


def _tfds_corpora(name: str | None, split: str) -> "list[Corpus]":
    if name is None:
        return []
    with _tensorflow():
        from keras_transformer.training.text.tfds_corpus import tfds_corpus

        return [tfds_corpus(name, split)]


def _held_out(options: argparse.Namespace) -> "HeldOut | None":
    from keras_transformer.training.text.held_out import HeldOut

    if options.valid_fraction or options.valid_size:
        return HeldOut(options.valid_fraction, options.valid_size)
    return None


def _check_data(options: argparse.Namespace) -> None:
    _check_text_options(options)
    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.text.check_data import check_data, report_lines

    data = load_recipe(options.config, options.set).data
    reports = {"training": check_data(_train_corpora(options), data, _held_out(options))}
    if valid_corpora := _valid_corpora(options):
        reports["validation"] = check_data(valid_corpora)
    if options.json:
        write_lines([json.dumps(reports)])
        return
    write_lines(line for name, report in reports.items() for line in report_lines(name, report))


def _translate(options: argparse.Namespace) -> None:
    trained = _read_trained(options)
    n_best = 1 if options.n_best is None else options.n_best
    beam_size = trained.decoding.beam_size
    require(n_best <= beam_size, "--n-best", f"at most the beam size {beam_size}", n_best)
    standard_input()
    translator = _load_translator(options, trained)
    bar = ProgressBar("translating", "lines")
    num_lines = 0
    # On a terminal the translations show the progress themselves.
    with contextlib.nullcontext() if sys.stdout.isatty() else bar:
        for block in arriving_lines(_LINES_PER_BLOCK):
            # As bytes: what is not UTF-8 is the tokenizer's business.
            lines = [line.removesuffix(b"\r") for line in block]
            first = num_lines + 1
            answers: list[str] = []
            _warn_of_truncation(translator, lines, first)
            for number, found in enumerate(translator.n_best(lines, n_best), start=first):
                # Always one line each.
                texts = [text.replace("\n", " ") for text, _ in found]
                if options.n_best is not None:
                    texts = [f"{number}\t{score:.4f}\t{text}" for text, (_, score) in zip(texts, found, strict=True)]
                answers += texts
            write_lines(answers)
            num_lines += len(lines)
            bar.advance(len(lines))
    _log.info(f"translated {counted(num_lines, 'line')}")


def _warn_of_truncation(
    translator: "Translator",
    texts: Sequence[str | bytes],
    first: int,
    file: str = "",
    side: Literal["source", "target"] = "source",
) -> None:
    """Says which lines are longer than the model takes.

    Args:
        translator: Translator.
        texts: the lines.
        first: int. The number of the first.
        file: str. The file that they are from. Defaults to "": the only one.
        side: "source" or "target". Defaults to "source".
    """
    max_length = translator.model.config.max_length
    for number, num_tokens in enumerate(translator.num_tokens(texts, side), start=first):
        if num_tokens > max_length:
            place = f"{file}, line {number}" if file else f"line {number}"
            _log.info(f"{place}: {num_tokens:,} tokens, truncated to model.max_length={max_length}")


def _blocks(items: Iterable[Item]) -> Iterator[tuple[int, list[Item]]]:
    """Divides items into blocks, each with the number of its first item."""
    items = iter(items)
    first = 1
    while block := list(itertools.islice(items, _LINES_PER_BLOCK)):
        yield first, block
        first += len(block)


def _evaluate(options: argparse.Namespace) -> None:
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = _read_trained(options)
    pairs = read_pairs(options.source, options.reference)
    translator = _load_translator(options, trained)
    from keras_transformer.training.evaluate import evaluate

    def translate(texts: list[str]) -> list[str]:
        translations: list[str] = []
        with ProgressBar("translating", "lines", len(texts)) as bar:
            for first, block in _blocks(texts):
                _warn_of_truncation(translator, block, first, name_of(options.source))
                translations += bar.count(translator(block))
        return translations

    result = evaluate(translate, pairs, options.tokenize)
    scores = {"bleu": result.bleu, "chrf": result.chrf}
    if options.json:
        write_lines([json.dumps({name: score._asdict() for name, score in scores.items()})])
        return
    write_lines(f"{score.text}\n  {score.signature}" for score in scores.values())


def _score(options: argparse.Namespace) -> None:
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = _read_trained(options)
    pairs = read_pairs(options.source, options.target)
    translator = _load_translator(options, trained)
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for first, block in _blocks(zip(pairs.source, pairs.target, strict=True)):
            source, target = zip(*block, strict=True)
            _warn_of_truncation(translator, source, first, name_of(options.source))
            _warn_of_truncation(translator, target, first, name_of(options.target), "target")
            write_lines(f"{score:.4f}" for score in bar.count(translator.score(source, target)))


def _average(options: argparse.Namespace) -> None:
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    model_dir.read_config()
    if options.last and options.best:
        raise ConfigError("give either --last or --best")
    if not model_dir.checkpoints():
        raise ConfigError(f"{model_dir}: no checkpoints to average")
    with _tensorflow():
        from keras_transformer.training.run.average import average_checkpoints
    paths = average_checkpoints(model_dir, last=options.last, best=options.best)
    write_lines([f"averaged {', '.join(path.name for path in paths)}"])


def _export(options: argparse.Namespace) -> None:
    if options.format == "ctranslate2":
        _check_ctranslate2_options(options)
    else:
        check("--output", options.output, ServablePath)
    translator = _load_translator(options, _read_trained(options))
    if options.format == "ctranslate2":
        from keras_transformer.export.ctranslate2 import export_ctranslate2 as export
    else:
        from keras_transformer.export.servable import export_servable as export
    write_lines([str(export(translator, options.output))])


def _check_ctranslate2_options(options: argparse.Namespace) -> None:
    if options.precision != "float32":
        raise ConfigError(
            "--precision must not be given with --format ctranslate2: CTranslate2 loads float32 weights in the type "
            "that its compute_type names"
        )
    if (options.beam_size, options.length_penalty) != (None, None):
        raise ConfigError(
            "--beam-size and --length-penalty must not be given with --format ctranslate2: its models hold no search "
            "settings, its translate_batch takes them"
        )
    if importlib.util.find_spec("ctranslate2") is None:
        raise ConfigError("--format ctranslate2 needs the package ctranslate2: pip install 'ctranslate2>=4.8.5,<4.9'")


def _import(options: argparse.Namespace) -> None:
    with _tensorflow():
        from ..pretrained import import_model
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])


def _plot_attention(options: argparse.Namespace) -> None:
    translator = _load_translator(options, _read_trained(options))
    from ..translation.attention_plot import plot_attention

    write_lines([plot_attention(translator, options.text, options.output)])


class _Trained(NamedTuple):
    """What is known of a trained translator before TensorFlow is loaded."""

    model_dir: "ModelDir"
    config: Config
    decoding: DecodingConfig


def _read_trained(options: argparse.Namespace) -> _Trained:
    from ..model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    config = model_dir.read_config()
    # There are weights.
    model_dir.weights_path()
    return _Trained(model_dir, config, _with_options(config.decoding, options))


def _load_translator(options: argparse.Namespace, trained: _Trained) -> "Translator":
    model_dir, config, decoding = trained
    precision: Any = getattr(options, "precision", "float32")
    reason = None
    with _tensorflow():
        from ..runtime.cores import divide_cores
        from ..runtime.precision import choose_precision
        from ..translation.translator import PARALLEL_SEARCHES, TOKENS_PER_STEP, Translator

        divide_cores(PARALLEL_SEARCHES)
        if precision == "auto":
            precision, reason = choose_precision(config.model, TOKENS_PER_STEP)
    if reason:
        _log.info(f"precision: {precision}, because {reason}")
    return Translator.from_config(model_dir, config, decoding, precision)


def _with_options(decoding: DecodingConfig, options: argparse.Namespace) -> DecodingConfig:
    given = {name: getattr(options, name, None) for name in ("beam_size", "length_penalty")}
    return dataclasses.replace(decoding, **{name: value for name, value in given.items() if value is not None})


@contextlib.contextmanager
def _tensorflow() -> Iterator[None]:
    """In this block TensorFlow may be imported, and Keras on it, whatever the user's settings of Keras are.

    They (`KERAS_...`, `~/.keras/keras.json`) are for other programs: commands need TensorFlow and float32.
    """
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    # A directory in which Keras finds no settings, nor writes any.
    os.environ.update(KERAS_BACKEND="tensorflow", KERAS_HOME=os.devnull)
    with silenced():
        yield


_COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "train": _train,
    "check-data": _check_data,
    "translate": _translate,
    "evaluate": _evaluate,
    "score": _score,
    "average": _average,
    "export": _export,
    "import": _import,
    "plot-attention": _plot_attention,
}
