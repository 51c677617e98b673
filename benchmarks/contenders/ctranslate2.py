"""CTranslate2 with the same weights, text to text, with the settings of docs/ctranslate2.md.

One request at a time is translated by all cores; of several at once each has its share of them.
"""

import json
import os

import ctranslate2
import sentencepiece

from benchmarks.decoding_task import DecodingTask, parser
from benchmarks.processes import versions


def main():
    options_parser = parser(__doc__.splitlines()[0])
    options_parser.add_argument("--compute-type", default="float32")
    options_parser.add_argument("--threads", type=int, metavar="N", help="of one request; the cores, shared out")
    options = options_parser.parse_args()
    task = DecodingTask(options.task)
    path = task.path / "ctranslate2" / "1"
    translator = ctranslate2.Translator(
        str(path),
        compute_type=options.compute_type,
        inter_threads=options.at_once,
        intra_threads=options.threads or max(1, len(os.sched_getaffinity(0)) // options.at_once),
    )
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    max_length = task.facts["max_length"]

    def translate(request):
        results = translator.translate_batch(
            tokenizer.encode([f" {text}" for text in request], out_type=str),
            max_batch_size=options.request_size,
            beam_size=options.beam_size,
            length_penalty=0,
            max_input_length=max_length,
            max_decoding_length=max_length,
            min_decoding_length=0,
            # Greedy search is spared the log probabilities, which nobody reads there.
            return_scores=options.beam_size > 1,
        )
        texts = tokenizer.decode([result.hypotheses[0] for result in results])
        return [text.removeprefix(" ") for text in texts], [score for result in results for score in result.scores]

    measured = task.measure(translate, versions("ctranslate2", "sentencepiece"), options)
    print(json.dumps({**measured, "compute_type": translator.compute_type}))


if __name__ == "__main__":
    main()
