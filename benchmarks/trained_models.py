"""Speed of several trained models: sentences per second of their exported SavedModels.

    python -m benchmarks.trained_models models/multi30k models/multi30k-fast --data multi30k \\
        --json models.json

The test text is sent in requests of 32 sentences, as in `benchmarks.decoding`: in float32, with a
beam size of 4 and each model's own length penalty, one request at a time, then as many at once as
there are cores. The models take turns, and the ratios compare the first model with each.
"""

import os
import pathlib
import tempfile
from collections.abc import Mapping

from benchmarks.comparison import Comparison, make_parser, measure, parse_options, publish
from benchmarks.decoding import bleu_lines
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, prepare
from benchmarks.processes import contender
from benchmarks.text import GENERATED, add_data_option, sentence_pairs
from keras_transformer.errors import Error


def comparisons(task_paths: Mapping[str, str | os.PathLike[str]]) -> list[Comparison]:
    """Returns all comparisons of models, given the directories of their `DecodingTask`s by name."""
    reference = next(iter(task_paths))
    cores = len(os.sched_getaffinity(0))
    tables = []
    for at_once in sorted({1, cores}):
        title = f"SavedModels, float32, beam {BEAM_SIZE}, batch {REQUEST_SIZE}"
        if at_once > 1:
            title += f", {at_once} at once"
        contenders = {
            name: contender("saved_model", path, "--at-once", at_once)
            for name, path in task_paths.items()
        }
        tables.append(Comparison(title, "sentences/s", contenders, reference))
    return tables


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = make_parser("benchmarks.trained_models", __doc__)
    parser.add_argument("model_dirs", nargs="+", metavar="DIR", help="directory of a trained model")
    add_data_option(parser)
    parser.add_argument(
        "--sentences", type=int, metavar="N", help="translate the first N sentences only"
    )
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as directory:
        try:
            pairs = sentence_pairs(options.data, "test", options.sentences)
            task_paths = {
                name: pathlib.Path(directory, str(i)) for i, name in enumerate(options.model_dirs)
            }
            for model_dir, path in task_paths.items():
                prepare(path, model_dir, pairs)
        except Error as error:
            parser.error(str(error))
        tables = comparisons(task_paths)
        measure(tables, options.repeats)
    publish(options.json, tables, data=options.data or GENERATED, sentences=len(pairs))
    print("", *bleu_lines(tables, len(pairs)), sep="\n")


if __name__ == "__main__":
    main()
