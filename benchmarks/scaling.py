"""The gain of several workers, and the cost of adding up their gradients.

    python -m benchmarks.scaling --json scaling.json

The same steps run in 1, 2 and 4 processes. Each process has one core, from the first on; with more
processes than cores they share. All have the same model and the same batch altogether, divided into
equal shares. They are connected as machines are, by gRPC, over the loopback interface. The ratio is
the speed in comparison with the first number of workers.
"""

import functools
import json
import os
import statistics
import subprocess
import sys

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.contenders.distributed_step import LENGTH
from benchmarks.processes import ROOT, Report, RunFailed, free_addresses, last_line


def measure_workers(number: int, rows: int, steps: int) -> Report:
    """Trains in so many processes, and returns the report of the first."""
    addresses = free_addresses(number)
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for index in range(number):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        core = str(cores[index % len(cores)])
        program = [sys.executable, "-m", "benchmarks.contenders.distributed_step"]
        process = subprocess.Popen(
            ["taskset", "--cpu-list", core, *program, str(rows), str(steps)],
            env={**os.environ, "TF_CONFIG": json.dumps(task)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        processes.append(process)
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RunFailed(f"a process of {number} failed")
    return json.loads(last_line(outputs[0]))


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.scaling", __doc__)
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="(1 2 4)"
    )
    parser.add_argument(
        "--rows", type=int, default=64, metavar="N", help="of a batch, 30 tokens each (64)"
    )
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="to time (20)")
    options = parse_options(parser)
    contenders = {
        f"workers: {number}": functools.partial(
            measure_workers, number, options.rows, options.steps
        )
        for number in options.workers
    }
    comparison = Comparison(
        "training step", "ms, lower is better", contenders, reference=next(iter(contenders))
    )
    measure([comparison], options.repeats)
    publish(options.json, [comparison], rows=options.rows, steps=options.steps)
    print()
    for name, reports in comparison.reports.items():
        step = statistics.median(report["value"] for report in reports)
        total = statistics.median(report["sum"] for report in reports)
        speed = 1000 * options.rows * LENGTH / step
        print(f"{name}: {speed:,.0f} target tokens/s; adding up gradients takes {total:.0f} ms")


if __name__ == "__main__":
    main()
