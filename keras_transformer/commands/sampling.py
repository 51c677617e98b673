"""The options of commands that draw translations at random."""

import argparse
from typing import TYPE_CHECKING, Annotated

from ..config.decoding import TopP
from ..config.rules import Count, Positive, Size, at_most
from ..errors import ConfigError
from .options import Parser

if TYPE_CHECKING:
    from ..translation import Sampling

_OPTIONS = ("--temperature", "--top-k", "--top-p", "--seed")


def add_sampling(parser: Parser) -> None:
    """Adds --sample, --temperature, --top-k, --top-p and --seed."""
    parser.add_argument(
        "--sample", action="store_true", help="draw translations at random instead of searching the best"
    )
    parser.add_option(
        "--temperature", Positive, metavar="T", help="of --sample: above 1 for more variety, below 1 for less (1)"
    )
    parser.add_option("--top-k", Size, metavar="K", help="of --sample: draw from the K most probable tokens (all)")
    parser.add_option(
        "--top-p", TopP, metavar="P", help="of --sample: draw from the tokens that have the probability P together (1)"
    )
    parser.add_option(
        "--seed", Annotated[Count, at_most(2**32 - 1)], metavar="N", help="of --sample: another text for another N (0)"
    )


def check_sampling(options: argparse.Namespace) -> None:
    """Raises a ConfigError if how to draw is given, but not --sample."""
    given = [name for name in _OPTIONS if getattr(options, name.removeprefix("--").replace("-", "_")) is not None]
    if given and not options.sample:
        raise ConfigError(f"{given[0]} needs --sample")


def sampling_of(options: argparse.Namespace, first_row: int = 0) -> "Sampling | None":
    """Returns how translations are drawn, or None if they are searched."""
    from ..translation import Sampling

    if not options.sample:
        return None
    temperature = 1.0 if options.temperature is None else options.temperature
    return Sampling(options.seed or 0, temperature, options.top_k, options.top_p, first_row)
