"""CTranslate2 with the same weights, from text to text, with the settings of docs/engines.md.

A single request is translated on all cores. Several at once share the cores.
"""

import json
import os
import pathlib

import ctranslate2
import sentencepiece

from benchmarks.decoding_task import DecodingTask, make_parser
from benchmarks.processes import versions


def load_tokenizers(
    path: pathlib.Path,
) -> tuple[sentencepiece.SentencePieceProcessor, sentencepiece.SentencePieceProcessor, str]:
    """Returns the tokenizers of source and target, and the text in front of every text.

    Tokenizers that were learned here want a space, imported ones add it. Both tokenizers may be the
    same.
    """
    space = " "
    paths = sorted(path.glob("*tokenizer.model"))
    if not paths:
        space = ""
        paths = sorted(path.glob("*sentencepiece.model"))
    source = sentencepiece.SentencePieceProcessor(model_file=str(paths[0]))
    target = sentencepiece.SentencePieceProcessor(model_file=str(paths[-1]))
    return source, target, space


def main() -> None:
    """Measures the contender and prints its report."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--compute-type", default="float32", help="type that CTranslate2 computes in (float32)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads of each request (its share of the cores)"
    )
    parser.add_argument(
        "--shortlist", action="store_true", help="search only the pieces of the model's shortlist"
    )
    options = parser.parse_args()
    task = DecodingTask(options.task)
    path = task.path / "ctranslate2" / "1"
    translator = ctranslate2.Translator(
        str(path),
        compute_type=options.compute_type,
        inter_threads=options.at_once,
        intra_threads=options.threads or max(1, len(os.sched_getaffinity(0)) // options.at_once),
    )
    source_tokenizer, target_tokenizer, space = load_tokenizers(path)
    max_length = task.facts["max_length"]

    def translate(request: list[str]) -> tuple[list[str], list[float]]:
        results = translator.translate_batch(
            source_tokenizer.encode([f"{space}{text}" for text in request], out_type=str),
            max_batch_size=options.request_size,
            beam_size=options.beam_size,
            length_penalty=0,
            max_input_length=max_length,
            max_decoding_length=max_length,
            min_decoding_length=0,
            use_vmap=options.shortlist,
            # With it, CTranslate2 normalizes the probabilities without the unknown token, which the
            # other engines do not.
            disable_unk=task.facts["forbidden_tokens"] == "unknown",
            # Greedy search is faster without log probabilities, which are not used.
            return_scores=options.beam_size > 1,
        )
        texts = target_tokenizer.decode([result.hypotheses[0] for result in results])
        scores = [score for result in results for score in result.scores]
        return [text.removeprefix(space) for text in texts], scores

    report = task.measure(translate, versions("ctranslate2", "sentencepiece"), options)
    print(json.dumps({**report, "compute_type": translator.compute_type}))


if __name__ == "__main__":
    main()
