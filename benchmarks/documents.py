"""Paragraphs through `translate_document` and `translate`, against their sentences alone: BLEU, and what is lost.

    python -m benchmarks.documents models/multi30k --data multi30k

Paragraphs are five lines of the test text. They are joined in two ways: all by spaces, whether or not a line ends with
a full stop; and as people write, by a line break after a line that ends without one, such as a title. BLEU is that of
whole paragraphs.
"""

import argparse
import itertools
import re
from collections.abc import Callable, Sequence

import sacrebleu

from benchmarks.text import add_data_option, sentence_pairs
from keras_transformer.errors import Error
from keras_transformer.translation import Translator

SENTENCES = 5
# With a quotation mark or a bracket after it.
_ENDS = re.compile(r"""[.!?…]["'”’»)\]]*$""")
Join = Callable[[Sequence[str]], str]


def join_by_spaces(lines: Sequence[str]) -> str:
    """Joins lines as they are."""
    return " ".join(lines)


def join_as_written(lines: Sequence[str]) -> str:
    """Joins lines by a space after final punctuation, otherwise by a line break."""
    ends = [" " if _ENDS.search(line) else "\n" for line in lines[:-1]] + [""]
    return "".join(itertools.chain.from_iterable(zip(lines, ends, strict=True)))


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.documents", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model_dir", metavar="DIR", help="directory of a trained model")
    add_data_option(parser)
    options = parser.parse_args()
    try:
        pairs = sentence_pairs(options.data, "test")
        translator = Translator.load(options.model_dir, language="en")
    except Error as error:
        parser.error(str(error))
    sources = [line.strip() for line in pairs.source]
    alone = translator(sources)
    references = _paragraphs(list(pairs.target), join_by_spaces)
    print("| paragraphs | translated | BLEU | sentences as they are alone | words |\n| --- | --- | --- | --- | --- |")
    _print_row("", "sentence by sentence", _paragraphs(alone, join_by_spaces), references, alone)
    for name, join in (("joined by spaces", join_by_spaces), ("joined as written", join_as_written)):
        texts = _paragraphs(sources, join)
        documents = [found.text for found in translator.translate_document(texts)]
        _print_row(name, "`translate_document`", documents, references, alone)
        _print_row(name, "`translate`", translator(texts), references, alone)


def _paragraphs(lines: Sequence[str], join: Join) -> list[str]:
    return [join(lines[i : i + SENTENCES]) for i in range(0, len(lines), SENTENCES)]


def _print_row(name: str, how: str, found: list[str], references: list[str], alone: list[str]) -> None:
    found = [" ".join(text.split()) for text in found]
    bleu = sacrebleu.corpus_bleu(found, [references]).score
    num_kept = sum(" ".join(text.split()) in found[place // SENTENCES] for place, text in enumerate(alone))
    words = sum(map(len, map(str.split, found))) / sum(map(len, map(str.split, alone)))
    print(f"| {name} | {how} | {bleu:.2f} | {num_kept:,} of {len(alone):,} | {words:.1%} |", flush=True)


if __name__ == "__main__":
    main()
