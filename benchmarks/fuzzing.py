"""Sends random hostile texts to every signature of a SavedModel, and checks its answers.

    python -m benchmarks.fuzzing --servable servable/en-de/1 --texts 20000 --json fuzzing.json

Random bytes, invalid UTF-8, control characters, surrogates, text from right to left, thousands of
combining marks, special symbols, lines of a megabyte, ..., in requests of 31 and an ordinary text.
Each signature has a process of its own, which draws them (contenders/fuzzed_requests.py). Time is
measured too, and "MB more" is by how much the peak of the process' resident memory rises. A wrong
answer ends the process with a message.
"""

import sys
import typing

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.processes import contender
from keras_transformer.config.values import SignatureName


def main() -> None:
    """Runs the benchmark from the command line."""
    names = [name for name in typing.get_args(SignatureName) if name != "translate"]
    parser = make_parser("benchmarks.fuzzing", __doc__, repeats=1)
    parser.add_argument(
        "--servable",
        metavar="DIR",
        required=True,
        help="a version's directory, as `export` writes it",
    )
    parser.add_argument(
        "--texts", type=int, default=20_000, metavar="N", help="for each signature (%(default)s)"
    )
    parser.add_argument(
        "--signatures", nargs="+", default=names, metavar="NAME", help="(all but `translate`)"
    )
    options = parse_options(parser)
    contenders = {
        name: contender("fuzzed_requests", options.servable, name, options.texts)
        for name in options.signatures
    }
    unit = "seconds of the slowest request, lower is better"
    comparison = Comparison("hostile texts", unit, contenders)
    measure([comparison], options.repeats)
    publish(options.json, [comparison], servable=options.servable, texts=options.texts)
    print()
    for name, (report, *_) in comparison.reports.items():
        print(
            f"{name}: {options.texts:,} texts, {report['truncated']:,} truncated, "
            f"{report['texts_per_second']:,.0f} texts/s, "
            f"a median request {report['median']:.2f} s, {report['megabytes']:,.0f} MB more"
        )
    if comparison.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
