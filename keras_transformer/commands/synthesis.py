"""The commands that write training or test pairs: `synthesize` and `augment`."""

import argparse
import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Literal

from ..checks import positive_int, probability
from ..config.sections import AugmentConfig
from ..errors import ConfigError, InvalidFileError
from ..runtime.packages import tensorflow_backend
from .options import (
    ONE_PER_LINE,
    SAMPLING,
    Parser,
    check_needs,
    check_outputs,
    output_name,
    seed,
)
from .trained import check_n_best, load_translator, read_trained, sampling_of

_SHARES = {
    "upper_case": "share of lines in UPPER CASE on both sides",
    "title_case": "share of lines in Title Case on both sides",
    "lower_case": "share of lines with a source in lower case",
    "no_final_punctuation": "share of lines without punctuation at the end of both sides",
    "typos": "share of lines with typing errors in the source, in one of ten words",
    "spaces": "share of lines with one of ten spaces in the source doubled or missing",
    "emoji": "share of lines with the same emoji on both sides",
}


def add_synthesize_options(parser: Parser) -> None:
    parser.example = "--model-dir models/de-en --target more.de --output back"
    parser.add_model_dir()
    parser.add_paths("--source", f"sentences to translate for distillation, {ONE_PER_LINE}")
    parser.add_paths(
        "--target",
        "without --source: sentences to back-translate with a model of the opposite direction; "
        "with --source: "
        "human translations, which select the most similar of the --n-best translations",
    )
    help = "write the training pairs to NAME.source and NAME.target, and the settings to NAME.json"
    parser.add_option("--output", output_name, "NAME", help, required=True)
    parser.add_overwrite()
    with parser.group("selection", "These options require --source and --target."):
        help = "number of translations to select from (default: the beam size)"
        parser.add_option("--n-best", positive_int, "N", help, type=int)
        help = "measure similarity by sentence BLEU or chrF (default: bleu)"
        parser.add_argument("--metric", choices=("bleu", "chrf"), help=help)
        parser.add_tokenize()
    # The precision does not depend on the device, so that you can resume on another device.
    parser.add_precision(
        "bfloat16 is faster on processors with bfloat16 instructions (default: float32)"
    )
    parser.add_search()
    parser.add_sampling()
    parser.epilog = (
        "To resume a command that was stopped, run the same command again. It continues from "
        "NAME.unfinished, and the result is "
        "the same as without the interruption."
    )


def run_synthesize(options: argparse.Namespace) -> None:
    """Create training pairs by translation: distillation or back-translation."""
    if options.source is None and options.target is None:
        raise ConfigError("give --source to distill, or --target to translate back")
    check_needs(options, SAMPLING, "sample")
    if options.sample and options.source is not None:
        raise ConfigError("--sample is for back-translation, and must not be given with --source")
    for text in ("source", "target"):
        check_needs(options, ("n_best", "metric", "tokenize"), text)
    source, target, *state = (
        f"{options.output}.{ending}" for ending in ("source", "target", "json", "unfinished")
    )
    check_outputs(options, [source, target], state)
    trained = read_trained(options.model_dir, options)
    n_best = 1 if options.target is None else options.n_best or trained.decoding.beam_size
    check_n_best(n_best, trained, options)
    from ..text import read_texts

    # Read the files first, so that errors are reported before TensorFlow is loaded.
    if options.source is None:
        targets = read_texts(options.target)
    else:
        pairs = _read_lines_or_pairs(options)
    translator = load_translator(trained)
    from keras_transformer.training.synthesis.translated_pairs import backtranslate, distill

    # All settings that affect the pairs, except for the text.
    settings: dict[str, object] = {
        "model_dir": str(trained.model_dir.path),
        "weights": trained.model_dir.weights_sha256(),
        "precision": translator.precision,
        **dataclasses.asdict(trained.decoding),
        "shortlist": translator.candidates is not None,
    }
    if options.source is None:
        sampling = sampling_of(options)
        settings |= {"target": options.target, **(sampling._asdict() if sampling else {})}
        backtranslate(translator, targets, options.output, settings, sampling)
    else:
        metric: Literal["bleu", "chrf"] = options.metric or "bleu"
        tokenize = None
        settings |= {
            "source": options.source,
            "target": options.target,
            "n_best": n_best,
            "metric": metric,
        }
        if metric == "bleu" and n_best > 1:
            from keras_transformer.training.bleu import choose_tokenizer

            tokenize = options.tokenize or choose_tokenizer(reference for _, reference in pairs)
            settings["tokenize"] = tokenize
        distill(translator, pairs, options.output, settings, n_best, metric, tokenize)


def _read_lines_or_pairs(options: argparse.Namespace) -> Iterable[tuple[str, str]]:
    """Reads the pairs of --source and --target, or the lines of --source with empty targets."""
    from ..text import Reread, open_corpora, pairs_of, read_texts

    if options.target is not None:
        return pairs_of(open_corpora(options.source, options.target))
    texts = read_texts(options.source)
    return Reread(lambda: ((source, "") for source in texts))


def add_augment_options(parser: Parser) -> None:
    parser.example = "--source test.en --upper-case 1 --output upper"
    parser.add_paths("--source", f"sentences, {ONE_PER_LINE}", required=True)
    parser.add_paths("--target", "their translations, one per line")
    help = "write the augmented text to NAME.source and, with --target, NAME.target"
    parser.add_option("--output", output_name, "NAME", help, required=True)
    parser.add_overwrite()
    for name, help in _SHARES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_option(option, probability, "SHARE", help, type=float, default=0.0)
    help = "random seed (default: 1)"
    parser.add_option("--seed", seed, "N", help, type=int, default=1)
    parser.epilog = (
        "Shares are from 0 to 1. The changes are the same as in training with data.augment. "
        "URLs, "
        "e-mail addresses, {names}, formats such as %s, and <tags> stay unchanged."
    )


def run_augment(options: argparse.Namespace) -> None:
    """Write a text in UPPER CASE, with typing errors or other changes, to test a model."""
    config = AugmentConfig(**{name: getattr(options, name) for name in _SHARES})
    if not config:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _SHARES)
        raise ConfigError(
            f"nothing to change: set at least one of these options to a share above 0: {names}"
        )
    sides = ("source",) if options.target is None else ("source", "target")
    paths = [f"{options.output}.{side}" for side in sides]
    check_outputs(options, paths)
    from ..model_dir.files import replacing
    from ..runtime.progress import ProgressBar

    pairs = _read_lines_or_pairs(options)
    with tensorflow_backend():
        from keras_transformer.training.batches.augmentation import Augmentation

        from ..tokenizers.placeholders import SpanFinder
    augmentation = Augmentation(config, options.seed, SpanFinder())
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in paths]
        # The stack closes the files before it gives them their final names.
        files = [
            stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
            for temporary in temporaries
        ]
        with ProgressBar("augmenting", "lines") as bar:
            for pair in bar.count(augmentation.pairs(pairs, epoch=0)):
                for file, text in zip(files, pair):
                    file.write(f"{text}\n")
        if not files[0].tell():
            raise InvalidFileError("the text is empty")
