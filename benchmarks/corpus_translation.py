"""A corpus translated by examples/translate_corpus.py, killed on the way and started again: is every line right?

    python -m benchmarks.corpus_translation --directory corpus-translation

Needs the extra `beam`. A small model learns to translate sentences such as "Anna sees 417 trees.", of which there are a
million different ones. They are written to 20 shards in random order, every second one compressed. Beam's direct runner
translates them in two processes, which are killed with SIGKILL when half of the pieces are there, and started again.
`keras-transformer translate` translates the same lines. The exit code is 1 if a line of the two differs.
"""

import argparse
import gzip
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

from .processes import ROOT

# English and German words.
SUBJECTS = "Anna Anna, Zoë Zoë, Peter Peter, he er, she sie, nobody niemand, everyone jeder, one man, who wer, it es"
VERBS = """sees sieht, buys kauft, paints malt, sells verkauft, finds findet, has hat, needs braucht, wants will,
    takes nimmt, loses verliert"""
THINGS = """trees Bäume, apples Äpfel, cars Autos, books Bücher, doors Türen, lamps Lampen, dogs Hunde, cats Katzen,
    cows Kühe, letters Briefe"""
NUM_SENTENCES = 1_000_000
_NUM_SHARDS = 20
# Of the example.
_LINES_PER_PIECE = 10_000
_TRAINING_PAIRS = 20_000
_VALIDATION_PAIRS = 500
_SETTINGS = (
    *("model.d_model=32", "model.d_ff=64", "model.num_heads=2", "model.num_layers=1", "tokenizer.vocab_size=400"),
    *("training.precision=float32", "training.steps=1500", "training.validate_every=500"),
    *("decoding.beam_size=1", "decoding.max_extra_tokens=4"),
)


def pair(number: int) -> tuple[str, str]:
    """Returns the sentence of a number below `NUM_SENTENCES`, in English and in German."""
    number, quantity = divmod(number, 1000)
    chosen = []
    for table in (SUBJECTS, VERBS, THINGS):
        number, row = divmod(number, 10)
        chosen.append(table.split(",")[row].split())
    english, german = (f"{subject} {verb} {quantity} {thing}." for subject, verb, thing in zip(*chosen))
    return english, german


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Translate a corpus, killed and started again, and compare it.")
    parser.add_argument("--directory", required=True, metavar="DIR", help="where everything is written")
    parser.add_argument("--lines", type=int, default=NUM_SENTENCES, metavar="N", help=f"at most {NUM_SENTENCES:,}")
    options = parser.parse_args()
    directory = pathlib.Path(options.directory).resolve()
    directory.mkdir(parents=True)
    model_dir = train(directory)
    shards = write_shards(directory / "english", options.lines)
    german = directory / "german"
    # A process for each core, with one thread.
    command = ["env", "TF_NUM_INTRAOP_THREADS=1", "TF_NUM_INTEROP_THREADS=1", sys.executable]
    command += ["examples/translate_corpus.py", "--model", directory / "servable" / "1"]
    command += ["--input", f"{directory / 'english'}/*", "--output", german]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    num_pieces, seconds = translate_until_killed(command, german, options.lines // _LINES_PER_PIECE // 2)
    print(f"killed after {seconds:.0f} s: {num_pieces} pieces of {_LINES_PER_PIECE:,} lines are there", flush=True)
    print(f"started again: {timed(command):.0f} s", flush=True)
    source, expected = directory / "all.en", directory / "all.de"
    source.write_bytes(b"".join(map(read, shards)))
    command = [sys.executable, "-m", "keras_transformer", "translate", "--precision", "float32"]
    with open(source, "rb") as standard_input, open(expected, "wb") as standard_output:
        seconds = timed([*command, "--model-dir", model_dir], stdin=standard_input, stdout=standard_output)
    print(f"keras-transformer translate: {seconds:.0f} s", flush=True)
    sys.exit(compare(b"".join(read(german / shard.name) for shard in shards), expected.read_bytes()))


def train(directory: pathlib.Path) -> pathlib.Path:
    """Trains and exports the model, and returns its directory."""
    numbers = random.Random(1).sample(range(NUM_SENTENCES), _TRAINING_PAIRS + _VALIDATION_PAIRS)
    for name, part in (("train", numbers[_VALIDATION_PAIRS:]), ("valid", numbers[:_VALIDATION_PAIRS])):
        for language, sentences in zip(("en", "de"), zip(*map(pair, part))):
            (directory / f"{name}.{language}").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    model_dir = directory / "model"
    command = [sys.executable, "-m", "keras_transformer"]
    text = [f"--source={directory}/train.en", f"--target={directory}/train.de"]
    text += [f"--valid-source={directory}/valid.en", f"--valid-target={directory}/valid.de"]
    seconds = timed([*command, "train", "--config", "demo", "--model-dir", model_dir, *text, "--set", *_SETTINGS])
    print(f"trained: {seconds:.0f} s", flush=True)
    timed([*command, "export", "--model-dir", model_dir, "--output", directory / "servable"])
    return model_dir


def write_shards(directory: pathlib.Path, num_lines: int) -> list[pathlib.Path]:
    """Writes sentences in random order to shards, every second one compressed, and returns their paths."""
    directory.mkdir()
    numbers = iter(random.Random(2).sample(range(NUM_SENTENCES), num_lines))
    paths = []
    for shard in range(_NUM_SHARDS):
        # Not all of them have the same length.
        size = num_lines * (shard + 1) // _NUM_SHARDS - num_lines * shard // _NUM_SHARDS
        text = "".join(f"{pair(number)[0]}\n" for number in itertools.islice(numbers, size)).encode()
        path = directory / f"{shard:02}.txt{'.gz' * (shard % 2)}"
        path.write_bytes(gzip.compress(text) if shard % 2 else text)
        paths.append(path)
    return paths


def read(path: pathlib.Path) -> bytes:
    """Returns the text of a shard."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def translate_until_killed(command: Sequence[object], output: pathlib.Path, num_pieces: int) -> tuple[int, float]:
    """Kills a translation and its processes when some pieces are there; returns their number, and the seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and count_pieces(output) < num_pieces:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return count_pieces(output), time.perf_counter() - begin


def count_pieces(output: pathlib.Path) -> int:
    """Returns how many pieces are translated."""
    return len(list(output.glob(".*/[0-9]*")))


def timed(command: Sequence[object], stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> float:
    """Runs a command, and returns the seconds that it took."""
    begin = time.perf_counter()
    process = subprocess.run(list(map(str, command)), cwd=ROOT, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
    if process.returncode:
        raise SystemExit(process.stderr.decode(errors="replace"))
    return time.perf_counter() - begin


def compare(found: bytes, expected: bytes) -> int:
    """Prints how many lines differ, and returns the exit code."""
    found_lines, expected_lines = found.split(b"\n"), expected.split(b"\n")
    different = sum(one != other for one, other in itertools.zip_longest(found_lines, expected_lines))
    print(f"{len(found_lines) - 1:,} lines, {len(set(found_lines)) - 1:,} different ones", flush=True)
    print(f"lines that are not the translator's: {different:,}", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    main()
