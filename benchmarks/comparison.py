"""Contenders measured side by side: every run is a process of its own, they take turns, and medians are compared.

A busy minute of the machine then lengthens one run of each contender, not all of one's, and the median leaves it out.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks.processes import RunFailed
from keras_transformer.files import replacing


@dataclasses.dataclass
class Comparison:
    """Contenders that are compared with one another: a table.

    Args:
        title: what is measured.
        unit: of the values.
        contenders: from each one's name to a function that runs it once and returns its report: a dict with the
            measured `value`, the `versions` of its packages, and whatever else is worth keeping. It raises RunFailed
            if it cannot.
        reference: the contender whose median is divided by every other's; None where there is nothing to divide.

    Attributes:
        reports: from names to the reports of all runs.
        failures: from names to the reason, for those that did not run.
    """

    title: str
    unit: str
    contenders: Mapping[str, Callable[[], dict]]
    reference: str | None = None
    reports: dict[str, list[dict]] = dataclasses.field(default_factory=dict)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    def values(self, name):
        return [report["value"] for report in self.reports.get(name, [])]

    def median(self, name):
        """The median of a contender's values; None if there are none."""
        values = self.values(name)
        return statistics.median(values) if values else None

    def ratio(self, name):
        """The reference's median divided by this one's; None where one of them is not there."""
        medians = self.median(self.reference), self.median(name)
        return None if None in medians else medians[0] / medians[1]

    def versions(self, name):
        reports = self.reports.get(name)
        return reports[-1].get("versions", {}) if reports else {}


def take_turns(comparisons: Sequence[Comparison], repeats: int):
    """Runs every contender of every comparison once in each of `repeats` rounds; who fails once is out."""
    for turn in range(1, repeats + 1):
        for comparison in comparisons:
            for name, run_once in comparison.contenders.items():
                if name in comparison.failures:
                    continue
                try:
                    report = run_once()
                except RunFailed as error:
                    comparison.failures[name] = said = str(error)
                else:
                    comparison.reports.setdefault(name, []).append(report)
                    said = f"{number(report['value'])} {comparison.unit}"
                print(f"{turn}/{repeats} {comparison.title}: {name}: {said}", file=sys.stderr, flush=True)


def best_of(comparisons: Sequence[Comparison], title: str) -> Comparison:
    """Each contender's runs from that comparison where its median is highest."""
    first = comparisons[0]
    best = Comparison(title, first.unit, first.contenders, first.reference)
    for name in first.contenders:
        ran = [comparison for comparison in comparisons if comparison.values(name)]
        if ran:
            best.reports[name] = max(ran, key=lambda comparison: comparison.median(name)).reports[name]
        else:
            best.failures[name] = first.failures[name]
    return best


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def print_table(comparison: Comparison):
    runs = max(map(len, comparison.reports.values()), default=0)
    print(f"\n{comparison.title}: {comparison.unit}, median of {runs}\n")
    width = max(map(len, comparison.contenders))
    line = "{:%d} {:>9} {:>9} {:>9} {:>7}  {}" % width
    print(line.format("", "median", "least", "most", "ratio" if comparison.reference else "", "versions").rstrip())
    for name in comparison.contenders:
        values = comparison.values(name)
        if values:
            shown = [number(value) for value in (comparison.median(name), min(values), max(values))]
            ratio = comparison.ratio(name)
            versions = ", ".join(" ".join(item) for item in comparison.versions(name).items())
            print(line.format(name, *shown, "" if ratio is None else f"{ratio:.2f}", versions).rstrip())
        if name in comparison.failures:
            print(f"{name:{width}} {comparison.failures[name]}")
    if comparison.median(comparison.reference):
        print(f"\nratio: {comparison.reference} divided by each")


def as_json(comparison: Comparison) -> dict:
    return {
        "title": comparison.title,
        "unit": comparison.unit,
        "reference": comparison.reference,
        "contenders": [
            {
                "name": name,
                "median": comparison.median(name),
                "ratio": comparison.ratio(name),
                "versions": comparison.versions(name),
                "failure": comparison.failures.get(name),
                "reports": comparison.reports.get(name, []),
            }
            for name in comparison.contenders
        ],
    }


def publish(path, comparisons: Sequence[Comparison], **settings):
    """Prints every comparison's table and writes all that was measured to a JSON file."""
    for comparison in comparisons:
        print_table(comparison)
    content = {
        "machine": machine(),
        "settings": settings,
        "comparisons": [as_json(comparison) for comparison in comparisons],
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def machine():
    models = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def parser(program, description):
    """A parser with the options that every comparison has."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--json", metavar="FILE", required=True, help="where the measurements are written")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs, of which the median counts (3)")
    return parser
