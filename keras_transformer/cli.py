"""The command `keras-transformer`: parses the command line, imports what a command needs, and calls it.

Nothing heavy is imported before the arguments are checked: `--help` and most mistakes are answered at once.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .config import DecodingConfig, Precision, PrecisionOrAuto
from .native_log import silenced
from .progress import ProgressBar, say
from .rules import ConfigError, require

if TYPE_CHECKING:
    from keras_transformer.training.interruption import Interruption

    from .translator import Translator

Line = TypeVar("Line")

# Lines that are translated at a time.
_LINES_PER_BLOCK = 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; exits with 1 and one line on standard error for a user's mistake."""
    options = _parser().parse_args(arguments)
    # TensorFlow logs its CPU kernels and missing GPUs otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError, FloatingPointError) as error:
        say(f"keras-transformer {options.command}: error: {_message(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="keras-transformer", description="Train, run and export Transformer translators.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Any], None], help: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=help, description=help)
        subparser.set_defaults(run=run)
        subparser.add_argument("--model-dir", metavar="DIR", required=True, help="the model directory")
        return subparser

    _add_train_options(command("train", _train, "Train a translator from two text files."))
    _add_translate_options(command("translate", _translate, "Translate standard input, line by line."))
    _add_evaluate_options(command("evaluate", _evaluate, "Print BLEU and chrF of the translations of a file."))
    _add_score_options(command("score", _score, "Print the log probability of each given translation."))
    _add_average_options(command("average", _average, "Average checkpoints, to translate with the average."))
    _add_export_options(
        command("export", _export, "Write a SavedModel for TensorFlow Serving, or a CTranslate2 model.")
    )
    _add_plot_options(command("plot-attention", _plot_attention, "Draw which source tokens a translation attends to."))
    return parser


def _add_train_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", metavar="FILE", help="sentences to train on, one per line (.gz is read too)")
    parser.add_argument("--target", metavar="FILE", help="their translations, line by line")
    parser.add_argument("--valid-source", metavar="FILE", help="sentences to validate on")
    parser.add_argument("--valid-target", metavar="FILE", help="their translations")
    parser.add_argument("--tfds", metavar="NAME", help="a tensorflow-datasets translation dataset instead of files")
    parser.add_argument(
        "--config", metavar="RECIPE", help="a .yaml file, or the name of a recipe that comes with the package"
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help="number of GPUs, or of parts of the CPU (all GPUs, or one CPU)"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="replace values of the recipe, such as model.d_model=256",
    )
    parser.add_argument(
        "--allow-changed-text", action="store_true", help="resume a training although its text is another one now"
    )
    parser.epilog = (
        "The same command resumes a training that was stopped. Ctrl-C (SIGINT) and SIGTERM stop it after the current "
        "step, which is saved; a second one stops it at once. Exit codes: 0 if the training is done, 1 after an error, "
        "2 for a wrong option, 130 after SIGINT, 143 after SIGTERM."
    )


def _add_translate_options(parser: argparse.ArgumentParser) -> None:
    _add_decoding(parser)
    _add_precision_or_auto(parser)
    parser.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="write N lines per sentence: its line number, score and translation, separated by tabs",
    )


def _add_evaluate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", metavar="FILE", required=True, help="sentences, one per line")
    parser.add_argument("--reference", metavar="FILE", required=True, help="their translations")
    _add_decoding(parser)
    _add_precision_or_auto(parser)
    parser.add_argument(
        "--tokenize",
        choices=("13a", "none", "intl", "char"),
        default="13a",
        help="sacreBLEU's tokenization for BLEU (13a); none for files that are tokenized already",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_score_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", metavar="FILE", required=True, help="sentences, one per line")
    parser.add_argument("--target", metavar="FILE", required=True, help="their translations")


def _add_average_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=int, metavar="N", help="the last N checkpoints (the recipe's average_last)")
    which.add_argument("--best", type=int, metavar="N", help="the N checkpoints with the best validation")


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", metavar="DIR", required=True, help="the directory in which the next version is written"
    )
    parser.add_argument(
        "--format", choices=("saved-model", "ctranslate2"), default="saved-model", help="what to write (saved-model)"
    )
    _add_decoding(parser)
    parser.add_argument(
        "--precision",
        choices=typing.get_args(Precision),
        default="float32",
        help="bfloat16 halves the weights' size, and is faster on processors with instructions for it (float32)",
    )


def _add_plot_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text", required=True, help="the sentence to translate")
    parser.add_argument("--output", metavar="FILE", required=True, help="a .png, .svg or .pdf file")


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses kept at each step; 1 is greedy search")
    parser.add_argument("--length-penalty", type=float, metavar="ALPHA", help="the higher, the longer the translations")


def _add_precision_or_auto(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        choices=typing.get_args(PrecisionOrAuto),
        default="auto",
        help="auto takes bfloat16 where the device multiplies it faster, else float32 (auto)",
    )


def _train(options: argparse.Namespace) -> None:
    from keras_transformer.training.interruption import Interruption

    with Interruption() as interruption:
        _train_until(interruption, options)


def _train_until(interruption: "Interruption", options: argparse.Namespace) -> None:
    files = [options.source, options.target, options.valid_source, options.valid_target]
    if options.tfds and any(files):
        raise ConfigError("--tfds replaces --source, --target, --valid-source and --valid-target; give either")
    if not options.tfds and not all(files):
        raise ConfigError("give --source, --target, --valid-source and --valid-target, or --tfds")
    from keras_transformer.training.corpus import load_tfds, read_pairs
    from keras_transformer.training.recipe import load_recipe

    config = load_recipe(options.config, options.set)
    if not options.tfds:
        train_pairs = read_pairs(options.source, options.target)
        valid_pairs = read_pairs(options.valid_source, options.valid_target)
    with silenced():
        import keras

        from keras_transformer.cores import divide_cores
        from keras_transformer.training.devices import TOKENS_PER_PART, make_strategy
        from keras_transformer.training.trainer import train

        parallel_parts = divide_cores(config.training.tokens_per_batch // TOKENS_PER_PART)
        strategy = make_strategy(options.devices)
    keras.utils.set_random_seed(config.training.seed)
    if options.tfds:
        train_pairs = load_tfds(options.tfds, "train")
        valid_pairs = load_tfds(options.tfds, "validation")
    train(
        config,
        train_pairs,
        valid_pairs,
        options.model_dir,
        strategy,
        parallel_parts,
        options.allow_changed_text,
        interruption,
    )


def _translate(options: argparse.Namespace) -> None:
    translator = _load_translator(options)
    n_best = 1 if options.n_best is None else options.n_best
    beam_size = translator.decoding.beam_size
    require(1 <= n_best <= beam_size, "--n-best", f"from 1 to the beam size {beam_size}", n_best)
    bar = ProgressBar("translating", "lines")
    num_lines = 0
    # On a terminal the translations show the progress themselves.
    with contextlib.nullcontext() if sys.stdout.isatty() else bar:
        for block in _blocks(sys.stdin.buffer):
            # As bytes: what is not UTF-8 is the tokenizer's business.
            lines = [line.removesuffix(b"\n").removesuffix(b"\r") for line in block]
            first = num_lines + 1
            _warn_of_truncation(translator, lines, first)
            for number, found in enumerate(translator.n_best(lines, n_best), start=first):
                for text, score in found:
                    # Always one line each.
                    text = text.replace("\n", " ")
                    line = text if options.n_best is None else f"{number}\t{score:.4f}\t{text}"
                    sys.stdout.buffer.write(f"{line}\n".encode())
            sys.stdout.buffer.flush()
            num_lines += len(lines)
            bar.advance(len(lines))
    say(f"{num_lines:,} lines")


def _warn_of_truncation(translator: "Translator", lines: list[bytes], first: int) -> None:
    max_length = translator.model.config.max_length
    for number, num_tokens in enumerate(translator.num_tokens(lines), start=first):
        if num_tokens > max_length:
            say(f"line {number}: {num_tokens:,} tokens, truncated to model.max_length={max_length}")


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    lines = iter(lines)
    while block := list(itertools.islice(lines, _LINES_PER_BLOCK)):
        yield block


def _evaluate(options: argparse.Namespace) -> None:
    from keras_transformer.training.corpus import read_pairs

    pairs = read_pairs(options.source, options.reference)
    translator = _load_translator(options)
    from keras_transformer.training.evaluate import evaluate

    def translate(texts: list[str]) -> list[str]:
        with ProgressBar("translating", "lines", len(texts)) as bar:
            return [text for block in _blocks(texts) for text in bar.count(translator(block))]

    result = evaluate(translate, pairs, options.tokenize)
    scores = {"bleu": result.bleu, "chrf": result.chrf}
    if options.json:
        print(json.dumps({name: score._asdict() for name, score in scores.items()}))
        return
    for score in scores.values():
        print(f"{score.text}\n  {score.signature}")


def _score(options: argparse.Namespace) -> None:
    from keras_transformer.training.corpus import read_pairs

    pairs = read_pairs(options.source, options.target)
    translator = _load_translator(options)
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for block in _blocks(zip(pairs.source, pairs.target, strict=True)):
            for score in bar.count(translator.score(*zip(*block, strict=True))):
                print(f"{score:.4f}")


def _average(options: argparse.Namespace) -> None:
    with silenced():
        from keras_transformer.training.average import average_checkpoints
    paths = average_checkpoints(options.model_dir, last=options.last, best=options.best)
    print(f"averaged {', '.join(path.name for path in paths)}")


def _export(options: argparse.Namespace) -> None:
    if options.format == "ctranslate2":
        _check_ctranslate2_options(options)
    translator = _load_translator(options)
    if options.format == "ctranslate2":
        from keras_transformer.export.ctranslate2 import export_ctranslate2 as export
    else:
        from keras_transformer.export.servable import export_servable as export
    print(export(translator, options.output))


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


def _plot_attention(options: argparse.Namespace) -> None:
    translator = _load_translator(options)
    from keras_transformer.attention_plot import plot_attention

    print(plot_attention(translator, options.text, options.output))


def _load_translator(options: argparse.Namespace) -> "Translator":
    from keras_transformer.model_dir import ModelDir

    model_dir = ModelDir(options.model_dir)
    config = model_dir.read_config()
    decoding = _with_options(config.decoding, options)
    precision: Any = getattr(options, "precision", "float32")
    reason = None
    with silenced():
        from keras_transformer.cores import divide_cores
        from keras_transformer.precision import choose_precision
        from keras_transformer.translator import PARALLEL_SEARCHES, TOKENS_PER_STEP, Translator

        divide_cores(PARALLEL_SEARCHES)
        if precision == "auto":
            precision, reason = choose_precision(config.model, TOKENS_PER_STEP)
        translator = Translator.from_config(model_dir, config, decoding, precision)
    if reason:
        say(f"precision: {precision}, because {reason}")
    return translator


def _with_options(decoding: DecodingConfig, options: argparse.Namespace) -> DecodingConfig:
    given = {name: getattr(options, name, None) for name in ("beam_size", "length_penalty")}
    return dataclasses.replace(decoding, **{name: value for name, value in given.items() if value is not None})
