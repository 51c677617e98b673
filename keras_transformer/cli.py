"""`keras-transformer`: parses, imports what a command needs, calls it."""

import argparse
import contextlib
import importlib.util
import json
import os
import sys

from .config import PRECISIONS


def main(arguments=None):
    """Runs the command line; exits with 1 and one line on standard error for a user's mistake."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # TensorFlow tells of its CPU kernels and missing GPUs before it says anything of use.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough. Python would complain once more when it closes the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        _say(f"keras-transformer {options.command}: error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def _parser():
    parser = _Parser(
        prog="keras-transformer", description="Trains, runs and exports Transformer translators."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name, run, help):
        subparser = commands.add_parser(name, help=help, description=help)
        subparser.set_defaults(run=run)
        return subparser

    train = command("train", _train, "Train a translator from two text files.")
    train.add_argument("--source", metavar="FILE", help="sentences to train on, one a line (.gz too)")
    train.add_argument("--target", metavar="FILE", help="their translations, line by line")
    train.add_argument("--valid-source", metavar="FILE", help="sentences to validate on")
    train.add_argument("--valid-target", metavar="FILE", help="their translations")
    train.add_argument("--tfds", metavar="NAME", help="a tensorflow-datasets translation set instead of files")
    _add_model_dir(train)
    train.add_argument("--config", metavar="RECIPE", help="a .yaml file, or the name of a recipe that is installed")
    train.add_argument(
        "--devices", type=int, metavar="N", help="how many GPUs, or parts of the CPU; all GPUs, or one CPU"
    )
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change one value of the recipe, such as model.d_model=256; may be given often",
    )

    translate = command("translate", _translate, "Translate standard input, line by line.")
    _add_model_dir(translate)
    _add_decoding(translate)
    _add_precision(translate)
    translate.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="write N lines a sentence: its line number, score and translation, between tabs",
    )

    evaluate = command("evaluate", _evaluate, "Print BLEU and chrF of the translations of a file.")
    _add_model_dir(evaluate)
    evaluate.add_argument("--source", metavar="FILE", required=True, help="sentences, one a line")
    evaluate.add_argument("--reference", metavar="FILE", required=True, help="their translations")
    _add_decoding(evaluate)
    _add_precision(evaluate)
    evaluate.add_argument(
        "--tokenize",
        choices=("13a", "none", "intl", "char"),
        default="13a",
        help="sacreBLEU's tokenization for BLEU (13a); none for files that are tokenized already",
    )
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")

    score = command("score", _score, "Print the log probability of each given translation.")
    _add_model_dir(score)
    score.add_argument("--source", metavar="FILE", required=True, help="sentences, one a line")
    score.add_argument("--target", metavar="FILE", required=True, help="their translations")

    average = command("average", _average, "Average checkpoints; the average translates from then on.")
    _add_model_dir(average)
    which = average.add_mutually_exclusive_group()
    which.add_argument("--last", type=int, metavar="N", default=5, help="the last N checkpoints (5)")
    which.add_argument("--best", type=int, metavar="N", help="the N checkpoints with the best validation")

    export = command("export", _export, "Write a SavedModel for TensorFlow Serving, or a CTranslate2 model.")
    _add_model_dir(export)
    export.add_argument(
        "--output", metavar="DIR", required=True, help="the folder in which the next version's folder is made"
    )
    export.add_argument(
        "--format", choices=("saved-model", "ctranslate2"), default="saved-model", help="what to write (saved-model)"
    )
    _add_decoding(export)
    _add_precision(export)

    plot = command("plot-attention", _plot_attention, "Draw which source tokens a translation looks at.")
    _add_model_dir(plot)
    plot.add_argument("--text", required=True, help="the sentence to translate")
    plot.add_argument("--output", metavar="FILE", required=True, help="a .png, .svg or .pdf file")
    return parser


def _add_model_dir(parser):
    parser.add_argument("--model-dir", metavar="DIR", required=True, help="the model directory")


def _add_decoding(parser):
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses kept at each step; 1 is greedy")
    parser.add_argument("--length-penalty", type=float, metavar="ALPHA", help="the higher, the longer")


def _add_precision(parser):
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="bfloat16 has weights of half the size, and takes less time where the processor multiplies it (float32)",
    )


def _train(options):
    from_files = [options.source, options.target, options.valid_source, options.valid_target]
    if options.tfds and any(from_files):
        raise ValueError("--tfds stands in for --source, --target, --valid-source and --valid-target; give either")
    if not options.tfds and not all(from_files):
        raise ValueError("give --source, --target, --valid-source and --valid-target, or --tfds")
    from keras_transformer.training.corpus import load_tfds, read_pairs
    from keras_transformer.training.recipe import load_recipe

    # What can be wrong with the arguments is said before TensorFlow has to be waited for.
    recipe = load_recipe(options.config, options.set)
    if not options.tfds:
        train_pairs = read_pairs(options.source, options.target)
        valid_pairs = read_pairs(options.valid_source, options.valid_target)
    with _quiet():
        from keras_transformer.cores import share_cores
        from keras_transformer.training.devices import TOKENS_OF_A_PART, mirrored_strategy
        from keras_transformer.training.trainer import train

        share_cores(recipe.training.tokens_per_batch // TOKENS_OF_A_PART)
        strategy = mirrored_strategy(options.devices)
    if options.tfds:
        train_pairs = load_tfds(options.tfds, "train")
        valid_pairs = load_tfds(options.tfds, "validation")
    train(recipe, train_pairs, valid_pairs, options.model_dir, strategy)


def _translate(options):
    translator = _load_translator(options)
    if options.n_best is not None and not 1 <= options.n_best <= translator.decoding.beam_size:
        raise ValueError(
            f"--n-best must be between 1 and the beam size {translator.decoding.beam_size}; "
            f"received {options.n_best}"
        )
    max_length = translator.model.config.max_length
    number = 0
    for lines in _blocks(sys.stdin.buffer):
        for i, num_tokens in enumerate(translator.num_tokens(lines), start=number + 1):
            if num_tokens > max_length:
                _say(f"line {i}: {num_tokens:,} tokens, cut to model.max_length={max_length}")
        for n_best in translator.n_best(lines, options.n_best or 1):
            number += 1
            for text, score in n_best:
                # One line for each, whatever the model says.
                text = text.replace("\n", " ")
                if options.n_best is None:
                    sys.stdout.buffer.write(f"{text}\n".encode())
                else:
                    sys.stdout.buffer.write(f"{number}\t{score:.4f}\t{text}\n".encode())
        sys.stdout.buffer.flush()
        _say(f"{number:,} lines")


def _blocks(file, size=1024):
    # As bytes: what is not UTF-8 is the tokenizer's business.
    lines = []
    for line in file:
        lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        if len(lines) == size:
            yield lines
            lines = []
    if lines:
        yield lines


def _evaluate(options):
    translator = _load_translator(options)
    from keras_transformer.training.corpus import read_pairs
    from keras_transformer.training.evaluate import evaluate

    result = evaluate(translator, read_pairs(options.source, options.reference), options.tokenize)
    if options.json:
        print(json.dumps({name: result[name] for name in ("bleu", "chrf")}))
    else:
        for name in ("bleu", "chrf"):
            print(f"{result[name]['text']}\n  {result[name]['signature']}")


def _score(options):
    translator = _load_translator(options)
    from keras_transformer.training.corpus import read_pairs

    pairs = read_pairs(options.source, options.target)
    for score in translator.score(pairs.source, pairs.target):
        print(f"{score:.4f}")


def _average(options):
    with _quiet():
        from keras_transformer.training.average import average_checkpoints
    paths = average_checkpoints(options.model_dir, last=options.last, best=options.best)
    print(f"averaged {', '.join(path.name for path in paths)}")


def _export(options):
    if options.format == "ctranslate2":
        _check_ctranslate2(options)
    translator = _load_translator(options)
    if options.format == "ctranslate2":
        from keras_transformer.export.ctranslate2 import export_ctranslate2 as export
    else:
        from keras_transformer.export.servable import export_servable as export
    print(export(translator, options.output))


def _check_ctranslate2(options):
    if options.precision != "float32":
        raise ValueError(
            "--precision must not be given with --format ctranslate2: "
            "its models are written in float32, its compute_type says what they are turned into"
        )
    if (options.beam_size, options.length_penalty) != (None, None):
        raise ValueError(
            "--beam-size and --length-penalty must not be given with --format ctranslate2: "
            "its models hold no search settings, its translate_batch takes them"
        )
    if importlib.util.find_spec("ctranslate2") is None:
        raise ValueError(
            "export --format ctranslate2 needs the package ctranslate2: pip install 'keras-transformer[ctranslate2]'"
        )


def _plot_attention(options):
    translator = _load_translator(options)
    from keras_transformer.attention_plot import plot_attention

    print(plot_attention(translator, options.text, options.output))


def _load_translator(options):
    import dataclasses

    from keras_transformer.model_dir import ModelDir

    _, _, decoding, _ = ModelDir(options.model_dir).read_config()
    given = {name: getattr(options, name, None) for name in ("beam_size", "length_penalty")}
    decoding = dataclasses.replace(
        decoding, **{name: value for name, value in given.items() if value is not None}
    )
    with _quiet():
        from keras_transformer.cores import share_cores
        from keras_transformer.translator import SEARCHES_AT_ONCE, Translator

        share_cores(SEARCHES_AT_ONCE)
        return Translator.load(options.model_dir, decoding, getattr(options, "precision", "float32"))


@contextlib.contextmanager
def _quiet():
    """Keeps what C++ libraries say while they are loaded from standard error."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)


def _say(message):
    print(message, file=sys.stderr, flush=True)
