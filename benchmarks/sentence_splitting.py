"""How well sentences are told apart: this package, ICU and pySBD on sentences marked by hand.

    pip install icu4py pysbd
    python -m benchmarks.sentence_splitting

Prints the F1 of the places where sentences begin, for each language of `marked_sentences.py`.
"""

from collections.abc import Callable, Iterable

import tabulate

from benchmarks.marked_sentences import MARKED, sentences_of

# Takes a language and a text, and returns the text's sentences.
Splitter = Callable[[str, str], Iterable[str]]


def ours(language: str, text: str) -> list[str]:
    return _ours(language, text)


def without_language(language: str, text: str) -> list[str]:
    """As `ours`, but without being told the language."""
    return _ours(None, text)


def _ours(language: str | None, text: str) -> list[str]:
    import tensorflow as tf

    from keras_transformer.translation.sentences import split_sentences

    (sentences,) = split_sentences(tf.constant([text]), language).to_list()
    return [sentence.decode() for sentence in sentences]


def icu(language: str, text: str) -> Iterable[str]:
    from icu4py.breakers import SentenceBreaker

    return SentenceBreaker(text, language)


def pysbd(language: str, text: str) -> list[str]:
    import pysbd

    return pysbd.Segmenter(language=language, clean=False).segment(text)


def f1(splitter: Splitter, language: str) -> float:
    """Returns the F1, from 0 to 100, of the places where sentences begin."""
    sentences = sentences_of(language)
    expected = _beginnings(sentences)
    actual = _beginnings(splitter(language, "".join(sentences)))
    return 200 * len(expected & actual) / (len(expected) + len(actual))


def _beginnings(sentences: Iterable[str]) -> set[int]:
    """Returns how many characters other than white space are before each sentence but the first."""
    place = 0
    places = set()
    for sentence in sentences:
        places.add(place)
        place += len("".join(sentence.split()))
    return places - {0, place}


def main() -> None:
    splitters: dict[str, Splitter] = {
        "ours": ours,
        "ours, no language": without_language,
        "ICU": icu,
        "pySBD": pysbd,
    }
    rows = [[name, *(f1(splitter, name) for splitter in splitters.values())] for name in MARKED]
    means = [sum(column) / len(rows) for column in list(zip(*rows))[1:]]
    print(tabulate.tabulate([*rows, ["mean", *means]], ["", *splitters], "github", ".1f"))


if __name__ == "__main__":
    main()
