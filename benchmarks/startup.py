"""Start-up time: `keras-transformer --help`, and the first translation compared with importing TensorFlow.

    python -m benchmarks.startup --json startup.json

Each value is the time from the start of a process to its first line of output. The translator has the sizes of the
other benchmarks' model, and random weights. Each command is run once before it is measured, so that its files are in
memory.
"""

import contextlib
import os
import sys
import tempfile

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.model import vocab_size_for, write_random_model
from benchmarks.processes import Contender, Report, RunFailed, time_to_first_line, versions
from benchmarks.text import GENERATED, add_data_option, sentence_pairs

HELP, IMPORT_TENSORFLOW, FIRST_TRANSLATION = "keras-transformer --help", "import tensorflow", "first translation"


def contenders(model_dir: str | os.PathLike[str], sentence: str) -> dict[str, Contender]:
    """Returns the contenders by name.

    Args:
        model_dir: str or path of the model directory to translate with.
        sentence: str. The sentence to translate.
    """
    keras_transformer = [sys.executable, "-m", "keras_transformer"]

    def timed(command: list[str], input: str = "") -> Contender:
        def run_once() -> Report:
            return {**time_to_first_line(command, input), "versions": versions("keras", "tensorflow")}

        return run_once

    return {
        HELP: timed([*keras_transformer, "--help"]),
        IMPORT_TENSORFLOW: timed([sys.executable, "-c", "import tensorflow; print()"]),
        FIRST_TRANSLATION: timed(
            [*keras_transformer, "translate", "--model-dir", os.fspath(model_dir)], f"{sentence}\n"
        ),
    }


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.startup", __doc__)
    add_data_option(parser)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as model_dir:
        try:
            write_random_model(model_dir, sentence_pairs(options.data, "train"), vocab_size_for(options.data))
            (sentence,) = sentence_pairs(options.data, "test", 1).source
        except ValueError as error:
            parser.error(str(error))
        comparison = Comparison("start-up", "seconds", contenders(model_dir, sentence), FIRST_TRANSLATION)
        for run_once in comparison.contenders.values():
            # A failure is reported when the contender is measured.
            with contextlib.suppress(RunFailed):
                run_once()
        measure([comparison], options.repeats)
    publish(options.json, [comparison], data=options.data or GENERATED)
    first, imported = comparison.median(FIRST_TRANSLATION), comparison.median(IMPORT_TENSORFLOW)
    if first is not None and imported is not None:
        print(f"\nthe first translation takes {first - imported:.1f} s more than importing TensorFlow")


if __name__ == "__main__":
    main()
