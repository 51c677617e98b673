"""The command `augment`."""

import argparse
import contextlib

from ..config.data import AugmentConfig
from ..errors import ConfigError
from ..rules import Probability
from ..runtime.backend import tensorflow_backend
from .options import ONE_PER_LINE, OutputName, Parser, Seed, add_paths

_SHARES = {
    "upper_case": "UPPER CASE, on both sides",
    "title_case": "Title Case, on both sides",
    "lower_case": "lower case, in the source",
    "no_final_punctuation": "no punctuation at the end, on both sides",
    "typos": "typing errors in the source, in one of ten words",
    "spaces": "doubled and missing spaces in the source, one of ten",
    "emoji": "the same emoji on both sides",
}


def add_options(parser: Parser) -> None:
    add_paths(parser, "--source", f"sentences, {ONE_PER_LINE}", required=True)
    add_paths(parser, "--target", "their translations, one per line")
    parser.add_option(
        "--output",
        OutputName,
        metavar="NAME",
        required=True,
        help="write as many lines to NAME.source and, with --target, NAME.target",
    )
    for name, help in _SHARES.items():
        parser.add_option(f"--{name.replace('_', '-')}", Probability, default=0.0, metavar="SHARE", help=help)
    parser.add_option("--seed", Seed, default=1, metavar="N", help="another choice for another N (1)")
    parser.epilog = (
        "A share of the lines, from 0 to 1, is changed in each of these ways, as data.augment does in training. URLs, "
        "e-mail addresses, {names}, formats such as %s, and <tags> stay as they are."
    )


def run(options: argparse.Namespace) -> None:
    config = AugmentConfig(**{name: getattr(options, name) for name in _SHARES})
    if not config:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _SHARES)
        raise ConfigError(f"nothing to change: give a share above 0 by {names}")
    from keras_transformer.training.text.parallel_text import read_lines_or_pairs

    from ..model_dir.files import replacing
    from ..runtime.progress import ProgressBar

    pairs = read_lines_or_pairs(options.source, options.target)
    with tensorflow_backend():
        from keras_transformer.training.batches.augmentation import Augmentation

        from ..tokenizers.placeholders import SpanFinder
    augmentation = Augmentation(config, options.seed, SpanFinder())
    sides = ("source",) if options.target is None else ("source", "target")
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(f"{options.output}.{side}")) for side in sides]
        # Closed before they get their names.
        files = [stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n")) for temporary in temporaries]
        with ProgressBar("augmenting", "lines") as bar:
            for pair in bar.count(augmentation.pairs(pairs, epoch=0)):
                for file, text in zip(files, pair):
                    file.write(f"{text}\n")
