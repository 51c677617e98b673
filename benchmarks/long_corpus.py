"""A long corpus against a short one: the peak memory of `check-data` and of `train`.

    python -m benchmarks.long_corpus --json long_corpus.json

Generated pairs in compressed shards, `.gz` and `.zst` in turns, are read by `keras-transformer check-data` and by
`keras-transformer train`, which trains the preset `tiny`. The reports in the JSON file have the seconds of each run.
"""

import pathlib
import tempfile

from benchmarks.command import COMMAND, settings_of
from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.generated_lines import write_shards
from benchmarks.memory import peak_memory, training_contender
from benchmarks.processes import Contender

VOCAB_SIZE = 8000
NUM_VALID_PAIRS = 1000
_SHARDS = 10


def contenders_of_text(directory: pathlib.Path, num_pairs: int, steps: int) -> tuple[Contender, Contender]:
    """Writes a text to a new directory, and returns what reads it: `check-data` and `train` for some steps."""
    directory.mkdir()
    source, target = (
        write_shards(directory, language, num_pairs, -(-num_pairs // _SHARDS), seed)
        for seed, language in enumerate(("en", "de"))
    )
    check_data = [*COMMAND, "check-data", "--source", source, "--target", target]
    settings = {
        **settings_of({"preset": "tiny"}, VOCAB_SIZE, steps),
        "training.validate_every": steps,
        "training.precision": "float32",
    }
    text = {"--source": source, "--target": target, "--valid-size": NUM_VALID_PAIRS}
    return lambda: peak_memory(check_data), training_contender(directory / "model", text, settings)


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.long_corpus", __doc__, repeats=1)
    parser.add_argument(
        "--pairs",
        type=int,
        nargs="+",
        default=[100_000, 5_000_000],
        metavar="N",
        help="sentence pairs of each text (100,000 and 5,000,000)",
    )
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="steps of the training (%(default)s)")
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as directory:
        contenders = {
            f"{size:,} pairs": contenders_of_text(pathlib.Path(directory, str(size)), size, options.steps)
            for size in options.pairs
        }
        comparisons = [
            Comparison(
                f"peak memory of {command}",
                "MB",
                {name: of_text[number] for name, of_text in contenders.items()},
                reference=next(iter(contenders)),
            )
            for number, command in enumerate(("check-data", "train"))
        ]
        measure(comparisons, options.repeats)
    publish(options.json, comparisons, pairs=options.pairs, steps=options.steps)


if __name__ == "__main__":
    main()
