"""Back-translation: text of the target language becomes the target of pairs whose sources a model makes."""

import os
from collections.abc import Iterable

from keras_transformer.translation import Sampling, Translator

from .pair_files import Made, Settings, made_of, write_pairs


def backtranslate(
    translator: Translator,
    targets: Iterable[str],
    output: str | os.PathLike[str],
    settings: Settings,
    sampling: Sampling | None = None,
) -> None:
    r"""Writes pairs of back-translations and a text (Sennrich et al. 2016, arXiv 1511.06709).

    Args:
        translator: Translator from the target language into the source language.
        targets: iterable of str. The sentences of the text.
        output: str or path. The beginning of the files' names, see `write_pairs`, which also says what is raised.
        settings: mapping. What decides about the pairs, by which a run is resumed with the same options only.
        sampling: Sampling or None. Draws translations at random, from which more is learned where there is a lot of
            text (Edunov et al. 2018, arXiv 1808.09381). Defaults to None: the best are searched.

    Example:
        >>> backtranslate(Translator.load("models/en-de"), ["Anna sees a tree.", " "], "bt", settings={})
        >>> with open("bt.target") as file:
        ...     file.read()
        'Anna sees a tree.\n'
    """
    max_length = translator.model.config.max_length

    def make(first: int, lines: list[tuple[str]]) -> Made:
        texts = [text for (text,) in lines]
        drawn = None if sampling is None else sampling._replace(first_row=first)
        found = translator.translate(texts, sampling=drawn)
        pairs = ((each.hypotheses[0][0], text) for each, text in zip(found, texts, strict=True))
        return made_of(pairs, [each.source_length > max_length for each in found])

    write_pairs(output, settings, ((text,) for text in targets), make)
