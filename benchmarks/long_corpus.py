"""A long corpus against a short one: memory, and the speed of training once it has begun.

    python -m benchmarks.long_corpus --pairs 5000000 --json long_corpus.json

Generated pairs in compressed shards, `.gz` and `.zst` in turns, are read by `keras-transformer check-data` and by
`keras-transformer train`, which trains the preset `tiny`. Values are peaks of resident memory. The reports in the JSON
file have the seconds of each run, and the speed of training after its first minute: target tokens per second, and per
second of processor time, which the load of the machine changes less.
"""

import pathlib
import re
import sys
import tempfile
from typing import Any

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.generated_lines import write_shards
from benchmarks.memory import TOKENS_PER_BATCH, peak_memory
from benchmarks.model import VOCAB_SIZE
from benchmarks.processes import Contender, Report

SHARDS = 10
NUM_VALID_PAIRS = 1000
_FIRST_SECONDS = 60


def train_contender(patterns: list[str], steps: int) -> Contender:
    """Returns a contender that trains a tiny model, with validation pairs that are held out.

    Args:
        patterns: the patterns of the source's and the target's shards.
        steps: int. Steps to train for.
    """
    settings = {
        "model.preset": "tiny",
        "tokenizer.vocab_size": VOCAB_SIZE,
        "training.steps": steps,
        "training.tokens_per_batch": TOKENS_PER_BATCH,
        "training.precision": "float32",
        "training.validate_every": steps,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]

    def run_once() -> Report:
        with tempfile.TemporaryDirectory() as model_dir:
            report = peak_memory(
                [
                    *(sys.executable, "-m", "keras_transformer", "train", "--model-dir", model_dir),
                    *("--source", patterns[0], "--target", patterns[1], "--valid-size", NUM_VALID_PAIRS),
                    *("--set", *overrides),
                ]
            )
        return {**report, **speed(report)}

    return run_once


def speed(report: Report) -> dict[str, Any]:
    """Returns the steps per second and per second of processor time, from the lines that a training wrote.

    The first minute, in which graphs are made, begins with the first line that has a step.
    """
    lines = [
        (second, cpu_second, step)
        for (second, line), cpu_second in zip(report["said"], report["cpu_seconds"], strict=True)
        if (found := re.match(r"training: ([\d,]+) of", line)) and (step := int(found[1].replace(",", "")))
    ]
    lines = [line for line in lines if line[0] - lines[0][0] >= _FIRST_SECONDS]
    if len(lines) < 2:
        return {"steps_per_second": None, "steps_per_cpu_second": None}
    (second, cpu_second, step), (last_second, last_cpu_second, last_step) = lines[0], lines[-1]
    return {
        "steps_per_second": (last_step - step) / (last_second - second),
        "steps_per_cpu_second": (last_step - step) / (last_cpu_second - cpu_second),
    }


def check_contender(patterns: list[str]) -> Contender:
    """Returns a contender that runs `check-data`."""
    command = [
        sys.executable,
        "-m",
        "keras_transformer",
        "check-data",
        "--source",
        patterns[0],
        "--target",
        patterns[1],
    ]
    return lambda: peak_memory(command)


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.long_corpus", __doc__, repeats=1)
    parser.add_argument("--pairs", type=int, default=5_000_000, metavar="N", help="pairs of the long text (5,000,000)")
    parser.add_argument(
        "--short-pairs", type=int, default=100_000, metavar="N", help="pairs of the short text (100,000)"
    )
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of the training (%(default)s)")
    options = parse_options(parser)
    contenders: dict[str, dict[str, Contender]] = {"check-data": {}, "train": {}}
    with tempfile.TemporaryDirectory() as name:
        for size in (options.short_pairs, options.pairs):
            directory = pathlib.Path(name, str(size))
            directory.mkdir()
            patterns = [write_shards(directory, side, size, -(-size // SHARDS), seed) for seed, side in enumerate("st")]
            contenders["check-data"][f"{size:,} pairs"] = check_contender(patterns)
            contenders["train"][f"{size:,} pairs"] = train_contender(patterns, options.steps)
        reference = f"{options.short_pairs:,} pairs"
        comparisons = [
            Comparison(f"peak memory of {command}", "MB", by_size, reference) for command, by_size in contenders.items()
        ]
        measure(comparisons, options.repeats)
    publish(options.json, comparisons, pairs=options.pairs, short_pairs=options.short_pairs, steps=options.steps)


if __name__ == "__main__":
    main()
