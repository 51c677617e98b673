"""Start-up: `keras-transformer --help`, and the first translation beside what importing TensorFlow takes.

    python -m benchmarks.startup --json startup.json

Each value is the time from the start of a process to its first line of output. The translator is of the measured
model's size, with random weights. One run of each before the measured ones brings the files into memory.
"""

import sys
import tempfile

from benchmarks.comparison import Comparison, parser, publish, take_turns
from benchmarks.model import write_random_model
from benchmarks.processes import run_for_first_line, versions
from benchmarks.text import add_data_option, sentence_pairs

HELP, IMPORT, FIRST = "keras-transformer --help", "import tensorflow", "first translation"


def contenders(model_dir, sentence):
    """From names to what runs them once: `sentence` is translated by the model of `model_dir`."""
    command = [sys.executable, "-m", "keras_transformer"]

    def timed(command, input=""):
        return lambda: {**run_for_first_line(command, input), "versions": versions("keras", "tensorflow")}

    return {
        HELP: timed([*command, "--help"]),
        IMPORT: timed([sys.executable, "-c", "import tensorflow; print()"]),
        FIRST: timed([*command, "translate", "--model-dir", model_dir], f"{sentence}\n"),
    }


def main():
    options_parser = parser("benchmarks.startup", __doc__.splitlines()[0])
    add_data_option(options_parser)
    options = options_parser.parse_args()
    with tempfile.TemporaryDirectory() as model_dir:
        write_random_model(model_dir, sentence_pairs(options.data, "train"))
        sentence = sentence_pairs(options.data, "test").source[0]
        comparison = Comparison("start-up", "seconds", contenders(model_dir, sentence), FIRST)
        for run_once in comparison.contenders.values():
            run_once()
        take_turns([comparison], options.repeats)
    publish(options.json, [comparison], data=options.data or "embedded corpus")
    beyond = comparison.median(FIRST) - comparison.median(IMPORT)
    print(f"\nthe first translation takes {beyond:.1f} s more than importing TensorFlow")


if __name__ == "__main__":
    main()
