"""Contenders measured in turns and compared by their medians, in a table and a JSON file.

Every run is a process of its own. Contenders take turns: if the machine is busy for a minute, that
slows down one run of each contender instead of all runs of one, and hardly affects the medians.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.machine import add_machine_options, machine, restrict, restrictions
from benchmarks.processes import Contender, Report, RunFailed
from keras_transformer.checks import require
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir.files import replacing
from keras_transformer.runtime.standard_streams import silenced


@dataclasses.dataclass
class Comparison:
    """Contenders that are compared with each other: one table.

    Args:
        title: str. What is measured.
        unit: str. Unit of the values.
        contenders: Mapping from names to functions that run a contender once.
        reference: str or None. The contender whose median is divided by the median of each.
            Defaults to None: no ratios.

    Attributes:
        reports: dict from names to the reports of all runs.
        failures: dict from names to the reasons why a contender could not be run.
    """

    title: str
    unit: str
    contenders: Mapping[str, Contender]
    reference: str | None = None
    reports: dict[str, list[Report]] = dataclasses.field(default_factory=dict)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    def values(self, name: str) -> list[float]:
        """Returns the values that a contender has reported."""
        return [report["value"] for report in self.reports.get(name, [])]

    def median(self, name: str | None) -> float | None:
        """Returns the median of a contender's values, None without any."""
        values = self.values(name) if name else []
        return statistics.median(values) if values else None

    def ratio(self, name: str) -> float | None:
        """Returns the reference's median divided by the contender's, None if either is missing."""
        reference, median = self.median(self.reference), self.median(name)
        return None if reference is None or median is None else reference / median


def measure(comparisons: Sequence[Comparison], repeats: int) -> None:
    """Runs all contenders of all comparisons in turn, and records their reports.

    A contender that has failed is not run again.
    """
    for turn in range(1, repeats + 1):
        for comparison in comparisons:
            for name, run_once in comparison.contenders.items():
                if name in comparison.failures:
                    continue
                try:
                    report = run_once()
                except RunFailed as error:
                    comparison.failures[name] = result = str(error)
                else:
                    comparison.reports.setdefault(name, []).append(report)
                    result = f"{format_number(report['value'])} {comparison.unit}"
                print(
                    f"{turn}/{repeats} {comparison.title}: {name}: {result}",
                    file=sys.stderr,
                    flush=True,
                )


def format_number(value: float) -> str:
    """Returns a number with three significant digits, or without decimal places from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_table(comparison: Comparison) -> None:
    """Prints a comparison: a line for each contender."""
    runs = max(map(len, comparison.reports.values()), default=0)
    print(f"\n{comparison.title}: {comparison.unit}, median of {runs}, {restrictions()}\n")
    width = max(map(len, comparison.contenders))

    def print_row(name: str, median: str, least: str, most: str, ratio: str, rest: str) -> None:
        row = f"{name:{width}} {median:>9} {least:>9} {most:>9} {ratio:>7}  {rest}"
        print(row.rstrip())

    print_row("", "median", "least", "most", "ratio" if comparison.reference else "", "versions")
    for name in comparison.contenders:
        values = comparison.values(name)
        if values:
            ratio = comparison.ratio(name)
            versions = comparison.reports[name][-1]["versions"]
            print_row(
                name,
                format_number(statistics.median(values)),
                format_number(min(values)),
                format_number(max(values)),
                "" if ratio is None else f"{ratio:.2f}",
                ", ".join(f"{package} {version}" for package, version in versions.items()),
            )
        if name in comparison.failures:
            print(f"{name:{width}} {comparison.failures[name]}")
    if comparison.median(comparison.reference) is not None:
        print(f"\nratio: median of {comparison.reference}, divided by the median of each")


def publish(
    path: str | os.PathLike[str], comparisons: Sequence[Comparison], **settings: Any
) -> None:
    """Prints the tables of all comparisons, and writes reports and settings to a JSON file."""
    for comparison in comparisons:
        print_table(comparison)
    tables = [
        {
            "title": comparison.title,
            "unit": comparison.unit,
            "reports": comparison.reports,
            "failures": comparison.failures,
        }
        for comparison in comparisons
    ]
    with replacing(path) as temporary:
        content = {"machine": machine(), "settings": settings, "comparisons": tables}
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def make_parser(
    module: str, documentation: str | None, repeats: int = 3
) -> argparse.ArgumentParser:
    """Makes the parser of a benchmark, with `--json`, `--repeats`, `--isa` and `--cores`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=(documentation or "").partition("\n")[0],
        allow_abbrev=False,
    )
    parser.add_argument(
        "--json", metavar="FILE", required=True, help="file to write the measurements to"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=repeats,
        metavar="N",
        help="number of runs, whose median is shown (%(default)s)",
    )
    add_machine_options(parser)
    return parser


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line, and applies `--isa` and `--cores`.

    They apply to this process and to all processes that it starts. Then TensorFlow is imported,
    without the remarks that it makes before it knows what to log.
    """
    options = parser.parse_args()
    try:
        require(options.repeats > 0, "--repeats", "positive", options.repeats)
        restrict(options.isa, options.cores)
    except ConfigError as error:
        parser.error(str(error))
    with silenced():
        import tensorflow  # noqa: F401
    return options
