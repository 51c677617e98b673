"""Errors, latency, throughput and memory of a SavedModel that serves many clients at once.

    python -m benchmarks.server_load --servable servable/en-de/1 --minutes 5 --grpc --json load.json

The SavedModel runs in a session, as in TensorFlow Serving, after the requests that warm it up; its
clients are threads of the same process (contenders/loaded_session.py). With `--grpc` they speak
TensorFlow Serving's protocol over the loopback interface with the server of the tests, which
answers four requests at a time; without it, neither a network nor a protocol is measured, and all
requests are answered at once. With `--batching`, waiting requests are joined, as TensorFlow Serving
joins them with the parameters of docs/serving.md. Each client sends its next request when it has
the answer: one to eight texts, of one to four sentences, to `serving_default`, or one sentence with
`--single`. TensorFlow's own log tells whether a graph was optimized after the warm-up; XLA and
Python take no part.
"""

import pathlib
import tempfile

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.processes import contender
from benchmarks.text import GENERATED, add_data_option, sentence_pairs, write_pairs
from keras_transformer.errors import Error

# Options that the process of the clients has too.
FLAGS = ("grpc", "single", "batching")


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.server_load", __doc__, repeats=1)
    parser.add_argument(
        "--servable",
        metavar="DIR",
        required=True,
        help="a version's directory, as `export` writes it",
    )
    parser.add_argument(
        "--clients", type=int, default=16, metavar="N", help="how many at once (%(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=5, metavar="N", help="how long they ask (%(default)s)"
    )
    parser.add_argument("--grpc", action="store_true", help="over TensorFlow Serving's protocol")
    parser.add_argument("--single", action="store_true", help="one sentence in each request")
    parser.add_argument("--batching", action="store_true", help="join the requests that wait")
    add_data_option(parser)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as directory:
        try:
            pairs = sentence_pairs(options.data, "test")
            source, _ = write_pairs(pairs, pathlib.Path(directory, "test"))
        except Error as error:
            parser.error(str(error))
        arguments = ["--clients", options.clients, "--seconds", 60 * options.minutes]
        arguments += [f"--{name}" for name in FLAGS if getattr(options, name)]
        run_once = contender(
            "loaded_session",
            options.servable,
            source,
            *arguments,
            TF_CPP_MIN_LOG_LEVEL="0",
            TF_CPP_VMODULE="meta_optimizer=1",
        )
        comparison = Comparison("server load", "texts/s", {f"{options.clients} clients": run_once})
        measure([comparison], options.repeats)
    publish(options.json, [comparison], servable=options.servable, data=options.data or GENERATED)
    for report, *_ in comparison.reports.values():
        print(f"\n{report['requests']:,} requests, {report['num_errors']:,} errors")
        latencies = [
            f"{name} {1000 * seconds:,.0f} ms" for name, seconds in report["latencies"].items()
        ]
        print(f"latency: {', '.join(latencies)}")
        after_warm_up, *later = report["megabytes"][1:]
        print(
            f"memory: {after_warm_up:,.0f} MB after a tenth of the time, "
            f"{later[-1]:,.0f} MB at the end, {max(later):,.0f} MB at most in between"
        )
        print(
            f"graphs optimized: {report['optimized_in_warm_up']} in warm-up, "
            f"{report['optimized_later']} later"
        )


if __name__ == "__main__":
    main()
