"""What commands have in common that write pairs which a model makes."""

import dataclasses
import hashlib
import os
import typing
from typing import TYPE_CHECKING, Annotated

from ..config.precision import Precision
from ..config.rules import Rule
from .options import NotEmpty, Parser
from .trained import Trained

if TYPE_CHECKING:
    from ..translation import Translator

OutputName = Annotated[NotEmpty, Rule("a path that ends in a name", lambda path: os.path.basename(path) != "")]


def add_output(parser: Parser) -> None:
    """Adds --output, and what is said of resuming."""
    parser.add_option(
        "--output",
        OutputName,
        metavar="NAME",
        required=True,
        help="write the pairs to NAME.source and NAME.target, to train on, and how they were made to NAME.json",
    )
    parser.epilog = (
        "If the command was stopped, give it again: it goes on with NAME.unfinished, and writes what it would have "
        "written without the interruption."
    )


def add_precision(parser: Parser) -> None:
    """Adds --precision, which is not chosen by a measurement: a run that is resumed must have the same."""
    parser.add_argument(
        "--precision",
        choices=typing.get_args(Precision),
        default="float32",
        help="bfloat16 is faster on processors with instructions for it (float32)",
    )


def settings_of(trained: Trained, translator: "Translator", **others: object) -> dict[str, object]:
    """Returns what decides about the pairs, except for their text."""
    with open(trained.model_dir.weights_path(), "rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "model_dir": str(trained.model_dir.path),
        "weights": weights,
        "precision": translator.precision,
        **dataclasses.asdict(trained.decoding),
        "shortlist": translator.candidates is not None,
        **others,
    }
