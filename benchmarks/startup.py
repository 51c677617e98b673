"""Start-up time of `keras-transformer --help`, of importing TensorFlow, and of a first translation.

    python -m benchmarks.startup --json startup.json

Each value is the time from the start of a process to its first line of output. The translator has
the sizes of the other benchmarks' model, trained for one step. Each command is run once before it
is measured, so that its files are in memory.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks.command import COMMAND, SIZES, settings_of, train_command
from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.processes import ROOT, Contender, Report, RunFailed, last_line, versions
from benchmarks.text import GENERATED, add_data_option, sentence_pairs, vocab_size_for, write_text
from keras_transformer.errors import Error

HELP = "keras-transformer --help"
IMPORT_TENSORFLOW = "import tensorflow"
FIRST_TRANSLATION = "first translation"


def time_to_first_line(command: Sequence[object], input: str = "") -> Report:
    """Measures the seconds from the start of a process to its first line of output.

    Raises:
        RunFailed: The process exited with an error, or printed nothing.
    """
    begin = time.perf_counter()
    with subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(input)
        process.stdin.close()
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        process.stdin = None
        _, errors = process.communicate()
    if process.returncode or not line:
        raise RunFailed(last_line(errors) or f"exit status {process.returncode}")
    return {"value": seconds, "versions": versions("keras", "tensorflow")}


def contenders(model_dir: str | os.PathLike[str], sentence: str) -> dict[str, Contender]:
    """Returns the contenders by name; the model in the directory translates the sentence."""
    import_tensorflow = [sys.executable, "-c", "import tensorflow; print()"]
    translate = [*COMMAND, "translate", "--model-dir", model_dir]
    return {
        HELP: lambda: time_to_first_line([*COMMAND, "--help"]),
        IMPORT_TENSORFLOW: lambda: time_to_first_line(import_tensorflow),
        FIRST_TRANSLATION: lambda: time_to_first_line(translate, f"{sentence}\n"),
    }


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.startup", __doc__)
    add_data_option(parser)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        try:
            (sentence,) = sentence_pairs(options.data, "test", 1).source
            text = write_text(options.data, directory)
        except Error as error:
            parser.error(str(error))
        model_dir = directory / "model"
        settings = settings_of(SIZES, vocab_size_for(options.data), steps=1)
        training = subprocess.run(list(map(str, train_command(model_dir, text, settings))))
        if training.returncode:
            sys.exit("there is no model to translate with")
        processes = contenders(model_dir, sentence)
        comparison = Comparison("start-up", "seconds", processes, FIRST_TRANSLATION)
        for run_once in comparison.contenders.values():
            # A failure is reported when the contender is measured.
            with contextlib.suppress(RunFailed):
                run_once()
        measure([comparison], options.repeats)
    publish(options.json, [comparison], data=options.data or GENERATED)
    first = comparison.median(FIRST_TRANSLATION)
    imported = comparison.median(IMPORT_TENSORFLOW)
    if first is not None and imported is not None:
        difference = f"{first - imported:.1f} s"
        print(f"\nthe first translation takes {difference} more than importing TensorFlow")


if __name__ == "__main__":
    main()
