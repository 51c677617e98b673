"""Marian itself, with the model that the SavedModel was imported from, in float32.

To be run with the Python interpreter of an environment that has pymarian.

As with the other engines, one process loads the model and translates all requests once before time
is measured: what is timed is segmentation, search and detokenization, neither the start of Marian
nor the reading of its model. Its list of the best translations is asked for, because only that has
log probabilities, which the SavedModel returns too.

Each of Marian's threads takes whole batches. One request at a time is therefore divided among the
threads. Several at once are its batches: it gets all of them in one call, and each thread takes the
next one when it is done with the last. (Clients in threads of their own would wait for each other,
because pymarian does not release Python's lock.)
"""

import json
import math
import os
from collections.abc import Iterable

import pymarian

from benchmarks.decoding_task import DecodingTask, make_parser, make_report, send_requests
from benchmarks.processes import versions


def best_of_each(lines: Iterable[str]) -> tuple[list[str], list[float]]:
    """Returns the first translation of each sentence, and its log probability.

    The lines of Marian's list are such as "0 ||| Ein Hund rennt. ||| F0= -1.5 ||| -1.5", the best
    first.
    """
    best: dict[str, tuple[str, float]] = {}
    for line in lines:
        sentence, _, rest = line.partition(" ||| ")
        text, _, score = rest.rsplit(" ||| ", 2)
        best.setdefault(sentence, (text, float(score)))
    return [text for text, _ in best.values()], [score for _, score in best.values()]


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", metavar="FILE", required=True, help="model.npz")
    parser.add_argument(
        "--vocabs", metavar="FILE", nargs=2, required=True, help=".spm of source and target"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads of each request (its share of the cores)"
    )
    options = parser.parse_args()
    task = DecodingTask(options.task)
    threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.at_once)
    size = len(task.facts["sources"]) if options.at_once > 1 else options.request_size
    requests = task.requests(size, options.every)
    # Marian's own limit of the length, three times the source, stays: it searches until the last
    # hypothesis of a beam has ended, which with a higher limit may take a hundred times as long,
    # for the same translations.
    translator = pymarian.Translator(
        models=options.model,
        vocabs=options.vocabs,
        beam_size=options.beam_size,
        normalize=0,
        mini_batch=math.ceil(options.request_size / threads),
        maxi_batch=1,
        cpu_threads=threads * options.at_once,
        gemm_type="float32",
        n_best="",
        quiet="",
    )
    send_requests(translator.translate, requests)
    answers, seconds = send_requests(translator.translate, requests)
    texts = []
    scores = []
    for answer in answers:
        some_texts, some_scores = best_of_each(answer)
        texts += some_texts
        scores += some_scores
    if options.answers:
        task.write_answers(options.answers, texts, scores)
    print(json.dumps(make_report(len(texts), seconds, versions("pymarian"))))


if __name__ == "__main__":
    main()
