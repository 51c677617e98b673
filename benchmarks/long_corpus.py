"""A long corpus against a short one: memory, and the speed of training once it has begun.

    python -m benchmarks.long_corpus --pairs 5000000 --json long_corpus.json

Generated pairs in compressed shards, `.gz` and `.zst` in turns, are read by `keras-transformer check-data` and by
`keras-transformer train`, which trains the preset `tiny`. Values are peaks of resident memory. The reports in the JSON
file have the seconds of each run, and its speed after the first minute, which depends on what else the machine does.

How fast training is on each text is measured in turns in one process: a model is trained for some steps on one text,
then on the other.
"""

import pathlib
import re
import sys
import tempfile
import time
from typing import Any

import keras
from keras_transformer.training.batches.encoded_pairs import encode
from keras_transformer.training.batches.pipeline import training_dataset
from keras_transformer.training.batches.plan import plan_batches
from keras_transformer.training.batches.vocabulary import learn_tokenizers
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import TOKENS_PER_PART
from keras_transformer.training.step.adam import Adam
from keras_transformer.training.step.model import TrainingModel
from keras_transformer.training.text.corpus import SentencePairs, read_text
from keras_transformer.training.text.parallel_text import text_corpora

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.generated_lines import write_shards
from benchmarks.memory import TOKENS_PER_BATCH, peak_memory
from benchmarks.model import VOCAB_SIZE
from benchmarks.processes import Contender, Report
from keras_transformer.models import build_transformer
from keras_transformer.runtime.cores import divide_cores

SETTINGS = {
    "model.preset": "tiny",
    "tokenizer.vocab_size": VOCAB_SIZE,
    "training.tokens_per_batch": TOKENS_PER_BATCH,
    "training.precision": "float32",
}
SHARDS = 10
NUM_VALID_PAIRS = 1000
_FIRST_SECONDS = 60
# Batches that a pipeline may have made while the other text had its turn, and one that it makes.
_PREPARED_STEPS = 5


def train_contender(patterns: list[str], steps: int) -> Contender:
    """Returns a contender that trains a tiny model, with validation pairs that are held out.

    Args:
        patterns: the patterns of the source's and the target's shards.
        steps: int. Steps to train for.
    """
    settings = {**SETTINGS, "training.steps": steps, "training.validate_every": steps}
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


def speed_contenders(patterns: dict[str, list[str]], directory: pathlib.Path, steps: int) -> dict[str, Contender]:
    """Returns contenders that go on training one model, each on a text of its own.

    Args:
        patterns: the patterns of the source's and the target's shards by the name of the text.
        directory: path of a directory for token ids.
        steps: int. Steps in a turn.
    """
    config = load_recipe(None, [f"{name}={value}" for name, value in SETTINGS.items()])
    texts = {
        name: read_text(text_corpora([source], [target]), config.data)[0] for name, (source, target) in patterns.items()
    }
    tokenizer, _ = learn_tokenizers(next(iter(texts.values())), config.tokenizer)
    parts = divide_cores(TOKENS_PER_BATCH // TOKENS_PER_PART)
    model = TrainingModel(build_transformer(config.model), config.training, parts)
    optimizer = Adam(1e-4)
    optimizer.build(model.transformer.trainable_variables)
    model.compile(optimizer=optimizer, auto_scale_loss=False)
    model.make_train_function()

    def contender(name: str, text: SentencePairs) -> Contender:
        ids = encode(text, (tokenizer, tokenizer), config.model.max_length, directory / name)
        plan = plan_batches(
            ids, tokens_per_batch=TOKENS_PER_BATCH, num_buckets=config.training.num_buckets, num_parts=parts
        )
        batches = iter(training_dataset(plan, seed=1, start_id=tokenizer.start_id))

        def seconds(steps: int) -> float:
            begin = time.perf_counter()
            for _ in range(steps):
                keras.ops.convert_to_numpy(model.train_function(batches)["loss"])
            return time.perf_counter() - begin

        end = time.perf_counter() + _FIRST_SECONDS
        while time.perf_counter() < end:
            seconds(steps)

        def run_once() -> Report:
            seconds(_PREPARED_STEPS)
            return {"value": steps * ids.num_target_tokens / plan.num_steps / seconds(steps)}

        return run_once

    return {name: contender(name, text) for name, text in texts.items()}


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
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="turns of each text (%(default)s)")
    parser.add_argument("--turn", type=int, default=20, metavar="N", help="steps in a turn (%(default)s)")
    options = parse_options(parser)
    contenders: dict[str, dict[str, Contender]] = {"check-data": {}, "train": {}}
    patterns = {}
    with tempfile.TemporaryDirectory() as directory:
        for size in (options.short_pairs, options.pairs):
            name = f"{size:,} pairs"
            shards = pathlib.Path(directory, str(size))
            shards.mkdir()
            patterns[name] = [
                write_shards(shards, side, size, -(-size // SHARDS), seed) for seed, side in enumerate("st")
            ]
            contenders["check-data"][name] = check_contender(patterns[name])
            contenders["train"][name] = train_contender(patterns[name], options.steps)
        reference = f"{options.short_pairs:,} pairs"
        memory = [
            Comparison(f"peak memory of {command}", "MB", by_size, reference) for command, by_size in contenders.items()
        ]
        measure(memory, options.repeats)
        speeds = speed_contenders(patterns, pathlib.Path(directory), options.turn)
        speed_in_turns = Comparison("training", "target tokens/s", speeds, reference)
        measure([speed_in_turns], options.turns)
    publish(
        options.json,
        [*memory, speed_in_turns],
        pairs=options.pairs,
        short_pairs=options.short_pairs,
        steps=options.steps,
        turns=options.turns,
        turn=options.turn,
    )


if __name__ == "__main__":
    main()
