"""A long corpus against a short one: the peak memory of `check-data` and of `train`.

    python -m benchmarks.long_corpus --json long_corpus.json

Generated pairs in compressed shards, `.gz` and `.zst` in turns, are read by `keras-transformer
check-data` and by `keras-transformer train`, which trains the preset `tiny`. The reports in the
JSON file have the seconds of each run. The text is made of invented words whose frequencies follow
Zipf's law.
"""

import gzip
import itertools
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import zstandard

from benchmarks.command import COMMAND, settings_of
from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.memory import peak_memory, training_contender
from benchmarks.processes import Contender

VOCAB_SIZE = 8000
NUM_VALID_PAIRS = 1000
_SHARDS = 10
NUM_WORDS = 50_000
SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiouäöü"]
MIN_WORDS, MAX_WORDS = 4, 20
_LINES_PER_CHUNK = 100_000


def write_shards(
    directory: pathlib.Path, name: str, num_lines: int, lines_per_shard: int, seed: int
) -> str:
    """Writes random lines into compressed files, and returns the pattern of the files.

    The files are `.gz` and `.zst` in turns; their names end with `name`, such as "en", and the
    suffix. The seed determines the words as well as the lines.
    """
    rest = lines(num_lines, seed)
    for number in range(-(-num_lines // lines_per_shard)):
        suffix, open_compressed = (("gz", gzip.open), ("zst", zstandard.open))[number % 2]
        path = directory / f"shard-{number:03d}.{name}.{suffix}"
        with open_compressed(path, "wt", encoding="utf-8") as file:
            file.writelines(itertools.islice(rest, lines_per_shard))
    return str(directory / f"shard-*.{name}.*")


def lines(num_lines: int, seed: int) -> Iterator[str]:
    """Yields random lines with their ends, the same ones for the same seed."""
    random = np.random.default_rng(seed)
    syllables = random.permutation(SYLLABLES).tolist()
    words = np.array([word(rank, syllables) for rank in range(NUM_WORDS)], dtype=object)
    cumulative_frequencies = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    for begin in range(0, num_lines, _LINES_PER_CHUNK):
        size = min(_LINES_PER_CHUNK, num_lines - begin)
        lengths = random.integers(MIN_WORDS, MAX_WORDS + 1, size)
        points = random.random(lengths.sum()) * cumulative_frequencies[-1]
        chosen = iter(words[np.searchsorted(cumulative_frequencies, points)].tolist())
        for length in lengths.tolist():
            yield " ".join(itertools.islice(chosen, length)) + "\n"


def word(rank: int, syllables: Sequence[str]) -> str:
    """Writes a number in the positional system whose digits are the syllables.

    Different numbers are different words.
    """
    text = ""
    while rank >= len(syllables):
        rank, digit = divmod(rank, len(syllables))
        text += syllables[digit]
    return text + syllables[rank]


def contenders_of_text(
    directory: pathlib.Path, num_pairs: int, steps: int
) -> tuple[Contender, Contender]:
    """Writes a text to a new directory, and returns contenders that read it.

    They are `check-data`, and `train` for some steps.
    """
    directory.mkdir()
    lines_per_shard = -(-num_pairs // _SHARDS)
    source = write_shards(directory, "en", num_pairs, lines_per_shard, seed=0)
    target = write_shards(directory, "de", num_pairs, lines_per_shard, seed=1)
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
    parser.add_argument(
        "--steps", type=int, default=200, metavar="N", help="steps of the training (%(default)s)"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as directory:
        contenders = {
            f"{size:,} pairs": contenders_of_text(
                pathlib.Path(directory, str(size)), size, options.steps
            )
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
