"""What very long lines and very many texts in one request cost a server: the time and the memory of the SavedModel.

    python -m benchmarks.hostile_requests --servable servable/en-de/1 --json hostile.json

Each request is sent by a process of its own (contenders/hostile_request.py), after a request of 32 sentences. "MB more"
is by how much it raises the peak of the process' resident memory. A line of 1 MB has a million bytes.
"""

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.contenders.hostile_request import REQUESTS
from benchmarks.processes import contender


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.hostile_requests", __doc__, repeats=1)
    parser.add_argument("--servable", metavar="DIR", required=True, help="a version's directory, as `export` writes it")
    options = parse_options(parser)
    requests = {name: contender("hostile_request", options.servable, name) for name in REQUESTS}
    comparison = Comparison("hostile requests", "seconds, lower is better", requests)
    measure([comparison], options.repeats)
    publish(options.json, [comparison], servable=options.servable)
    print()
    for name, (report, *_) in comparison.reports.items():
        print(f"{name}: {report['megabytes']:,.0f} MB more")


if __name__ == "__main__":
    main()
