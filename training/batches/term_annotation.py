"""Sources in which the translation of some words stands beside them, drawn anew each time they are read."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.tokenizers.terms import annotated, escaped

from ..alignment.lexicon import Lexicon, Term

_MAX_TERMS = 4


class TermAnnotation:
    """Writes beside words and phrases of some sources what they are in the target, as a glossary does.

    Args:
        lexicon: Lexicon, which knows the words.
        share: float. The share of the sources.
        seed: int. Seed of the random numbers.
    """

    def __init__(self, lexicon: Lexicon, share: float, seed: int) -> None:
        self._lexicon = lexicon
        self._share = share
        self._random = np.random.default_rng(seed)

    def annotate(self, sources: Sequence[str], targets: Sequence[str]) -> list[str]:
        """Returns sources for `AnnotatedSources`; of those that are drawn, one to four words or phrases each."""
        texts = [escaped(source) for source in sources]
        drawn = np.flatnonzero(self._random.random(len(sources)) < self._share).tolist()
        found = self._lexicon.terms([sources[place] for place in drawn], [targets[place] for place in drawn])
        for place, terms in zip(drawn, found, strict=True):
            if terms:
                number = self._random.integers(min(len(terms), _MAX_TERMS)) + 1
                chosen = sorted(self._random.choice(len(terms), number, replace=False))
                texts[place] = _with_translations(sources[place], [terms[i] for i in chosen])
        return texts


def _with_translations(source: str, terms: list[Term]) -> str:
    parts, end = [], 0
    for term in terms:
        # The space before a term belongs to it, as to any word.
        begin = max(term.begin - 1, end) if source[: term.begin].endswith(" ") else term.begin
        parts.append(escaped(source[end:begin]))
        space = source[begin : term.begin]
        parts.append(annotated(escaped(source[begin : term.end]), space + escaped(term.translation)))
        end = term.end
    return "".join([*parts, escaped(source[end:])])
