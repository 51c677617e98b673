"""What several workers gain, and what adding up their gradients costs: the same steps in 1, 2 and 4 processes.

    python -m benchmarks.scaling

Each process has one core, from the first on; with more processes than cores they share. All have the same model and
the same batch altogether, divided into equal shares. They are connected as machines are, by gRPC, over the loopback
interface.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.machine import add_machine_options, machine, restrict
from benchmarks.processes import ROOT, free_addresses

_SIZES = {"num_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 4}
_VOCAB_SIZE = 8000
_LENGTH = 30
_WARMUP_STEPS = 5


def measure(rows: int, steps: int) -> dict[str, float]:
    """Measures one process: milliseconds of a step, and of adding up the gradients alone; medians."""
    from keras_transformer.training.run.devices import make_strategy

    from keras_transformer.runtime.cores import divide_cores

    divide_cores(1)
    strategy = make_strategy()
    import numpy as np
    import tensorflow as tf
    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.run.trainer import _build_model

    sizes = [f"model.{name}={value}" for name, value in _SIZES.items()]
    config = load_recipe(None, [*sizes, f"tokenizer.vocab_size={_VOCAB_SIZE}", "training.precision=float32"])
    model = _build_model(config, strategy, parts_per_device=1)
    random = np.random.default_rng(0)
    ids = random.integers(4, _VOCAB_SIZE, (3, rows // strategy.num_replicas_in_sync, _LENGTH), "int32")
    batch = {"source": ids[0], "target": ids[1]}, ids[2]
    batches = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: batches))
    model.make_train_function()

    @tf.function
    def add_up() -> Any:
        def of_replica() -> Any:
            gradients = [tf.ones(variable.shape) for variable in model.trainable_variables]
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)[0]

        return strategy.run(of_replica)

    return {
        "step": _milliseconds(lambda: float(model.train_function(iterator)["loss"]), steps),
        "sum": _milliseconds(lambda: strategy.experimental_local_results(add_up())[0].numpy(), steps),
        "megabytes": 4e-6 * model.transformer.count_params(),
    }


def _milliseconds(run: Any, steps: int) -> float:
    seconds = []
    for step in range(_WARMUP_STEPS + steps):
        begin = time.perf_counter()
        run()
        if step >= _WARMUP_STEPS:
            seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def measure_workers(number: int, rows: int, steps: int) -> dict[str, float]:
    """Runs `measure` in so many processes, and returns what the first reports."""
    addresses = free_addresses(number)
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for index in range(number):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, "-m", "benchmarks.scaling", "--measure", "--rows", str(rows), "--steps", str(steps)]
        processes.append(
            subprocess.Popen(
                ["taskset", "--cpu-list", str(cores[index % len(cores)]), *command],
                env={**os.environ, "TF_CONFIG": json.dumps(task)},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
    reports = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"a process of {number} failed")
    return json.loads(reports[0].splitlines()[-1])


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Time the same training steps in several processes.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="(1 2 4)")
    parser.add_argument("--rows", type=int, default=64, metavar="N", help="of a batch, 30 tokens each (64)")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="to time (20)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each number, in turns (3)")
    parser.add_argument("--json", metavar="FILE", help="write the figures of each run, too")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    add_machine_options(parser)
    options = parser.parse_args()
    restrict(options.isa, options.cores)
    if options.measure:
        print(json.dumps(measure(options.rows, options.steps)))
        return
    runs: dict[int, list[dict[str, float]]] = {number: [] for number in options.workers}
    for _ in range(options.repeats):
        for number, reports in runs.items():
            reports.append(measure_workers(number, options.rows, options.steps))
            print(f"{number}: {reports[-1]}", file=sys.stderr, flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": machine(), "runs": runs}, file)
    print(table(runs, options.rows))


def table(runs: dict[int, list[dict[str, float]]], rows: int) -> str:
    """Returns the medians as a table in Markdown; the speed is relative to the first number of workers."""
    lines = [
        "| workers | ms per step | of these, adding up gradients | target tokens/s | speed |",
        "| --- | --- | --- | --- | --- |",
    ]
    first = None
    for number, reports in runs.items():
        step, total = (statistics.median(report[name] for report in reports) for name in ("step", "sum"))
        first = first or step
        added = f"{total:.0f}" if number > 1 else ""
        lines.append(f"| {number} | {step:.0f} | {added} | {1000 * rows * _LENGTH / step:,.0f} | {first / step:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
