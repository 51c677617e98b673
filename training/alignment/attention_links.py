"""Which tokens of sentence pairs are translations of each other, by the attention of a model that learned it."""

import pathlib

from keras_transformer.model_dir.files import replacing
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.translation import Translator

from ..text.corpus import SentencePairs, in_chunks

_SENTENCES_PER_CALL = 1024


def write_attention_links(path: pathlib.Path, translator: Translator, pairs: SentencePairs) -> None:
    """Writes for each pair from which source token each target token comes, as `write_links` does, without end tokens.

    Args:
        path: path of the file. A line has the places of tokens, from 0, in source and target: "0-0 1-2".
        translator: Translator of a model with guided alignment.
        pairs: SentencePairs.
    """
    with (
        replacing(path) as temporary,
        open(temporary, "w") as file,
        ProgressBar("linking", "sentence pairs", len(pairs)) as bar,
    ):
        for chunk in in_chunks(zip(pairs.source, pairs.target), _SENTENCES_PER_CALL):
            sources, targets = zip(*chunk)
            for each in translator.align(sources, targets):
                end = len(each.source) - 1
                links = [f"{one}-{other}" for other, one in enumerate(each.positions[:-1]) if one != end]
                file.write(" ".join(links) + "\n")
            bar.advance(len(chunk))
