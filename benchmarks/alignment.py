"""Alignment error rates on generated text: of the aligner, and of the attention of models that were trained on it.

    python -m benchmarks.alignment --model-dir models/plain models/guided --data generated

`--data` is the folder that `python -m examples.corpus` wrote. Sure links are those of nouns and adjectives that a
sentence has once, with their translations. The alignment error rate (Och and Ney 2003) is 1 - 2|A & S| / (|A| + |S|),
where S are the sure links, and A are the links from and to their words. Words are linked if any of their subwords are.
The aligner, IBM Model 1 on the subwords of the first model, learns from the training and the test text together; the
models have not seen the test text. Punctuation is a word of its own.
"""

import argparse
import itertools
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence

from keras_transformer.training.alignment.shortlist import build_shortlist
from keras_transformer.training.text.corpus import SentencePairs, read_pairs

from examples.corpus import ADJECTIVE, NOUN, english_s
from keras_transformer.errors import Error
from keras_transformer.translation import Translator

# The places of two subwords or words, in the source and in the target.
Link = tuple[int, int]
Links = set[Link]

WORD = re.compile(r"\w+|[^\w\s]")

ENGLISH = {form: noun for noun, (forms, *_) in NOUN.items() for form in (*forms.split("/"), english_s(noun))}
ENGLISH |= {adjective: adjective for adjective in ADJECTIVE}
GERMAN = {form: noun for noun, (*_, one, many) in NOUN.items() for form in (one, many, f"{many}n")}
GERMAN |= {
    stem + ending: adjective
    for adjective, (*_, stem) in ADJECTIVE.items()
    for ending in ("", "e", "em", "en", "er", "es")
}


def sure_links(source: str, target: str) -> Links:
    """Links the nouns and adjectives that both sentences have once."""
    english, german = _places(source, ENGLISH), _places(target, GERMAN)
    return {
        (*english[word], *german[word])
        for word in english.keys() & german.keys()
        if len(english[word]) == len(german[word]) == 1
    }


def _places(text: str, forms: dict[str, str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(WORD.findall(text)):
        if found := forms.get(word) or forms.get(word.lower()):
            places.setdefault(found, []).append(place)
    return places


def word_links(source_pieces: Sequence[str], target_pieces: Sequence[str], links: Iterable[Link]) -> Links:
    """Returns the links of words and punctuation whose pieces are linked; "▁" is a space."""
    source, target = _words_of(source_pieces), _words_of(target_pieces)
    return {(source[one], target[other]) for one, other in links if one in source and other in target}


def _words_of(pieces: Sequence[str]) -> dict[int, int]:
    """The place of the word that each piece belongs to, without pieces that are spaces alone."""
    words = [match.span() for match in WORD.finditer("".join(pieces).replace("▁", " "))]
    ends = itertools.accumulate(map(len, pieces))
    found = {}
    for place, end in enumerate(ends):
        for number, (first, last) in enumerate(words):
            if first < end <= last:
                found[place] = number
    return found


def error_rate(found: Sequence[Links], sure: Sequence[Links]) -> float:
    """Returns the alignment error rate over sentence pairs."""
    common = total = 0
    for links, expected in zip(found, sure, strict=True):
        sources, targets = ({link[side] for link in expected} for side in (0, 1))
        concerned = {link for link in links if link[0] in sources or link[1] in targets}
        common += len(concerned & expected)
        total += len(concerned) + len(expected)
    return 1 - 2 * common / total


def _of_attention(translator: Translator, pairs: SentencePairs) -> Iterator[Links]:
    for each in translator.align(list(pairs.source), list(pairs.target)):
        # The last token of both is the end token.
        end = len(each.source) - 1
        links = ((one, other) for other, one in enumerate(each.positions[:-1]) if one != end)
        yield word_links(each.source, each.target, links)


def _of_aligner(translator: Translator, train: SentencePairs, pairs: SentencePairs) -> Iterator[Links]:
    both = SentencePairs([*train.source, *pairs.source], [*train.target, *pairs.target], train.name)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "links")
        build_shortlist(directory, both, translator.tokenizers, translator.model.config.max_length, path)
        lines = path.read_text().splitlines()[len(train.source) :]
    for each, line in zip(translator.align(list(pairs.source), list(pairs.target)), lines, strict=True):
        links = (tuple(map(int, link.split("-"))) for link in line.split())
        yield word_links(each.source, each.target, ((one, other) for one, other in links))


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.alignment", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model-dir", metavar="DIR", nargs="+", required=True, help="directories of trained models")
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that `python -m examples.corpus` wrote")
    options = parser.parse_args()
    try:
        train, test = (
            read_pairs(*(f"{options.data}/{name}.{end}" for end in ("en", "de"))) for name in ("train", "test")
        )
        translators = [Translator.load(path) for path in options.model_dir]
    except Error as error:
        parser.error(str(error))
    sure = [sure_links(*pair) for pair in zip(test.source, test.target, strict=True)]
    print("| links of | alignment error rate |\n| --- | --- |")
    print(f"| the aligner | {error_rate([*_of_aligner(translators[0], train, test)], sure):.1%} |", flush=True)
    for path, translator in zip(options.model_dir, translators, strict=True):
        print(f"| {path} | {error_rate([*_of_attention(translator, test)], sure):.1%} |", flush=True)


if __name__ == "__main__":
    main()
