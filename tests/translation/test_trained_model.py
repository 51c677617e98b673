"""What a model that has learned its language does: it aligns nouns, and loses no sentence of a
paragraph."""

import re

import keras
import numpy as np
import pytest
from sacrebleu import corpus_bleu

from examples.corpus import NOUN, english_s, generate
from keras_transformer import Translator
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.translation.graph import ALIGNMENT_LAYER

# What the grammar translates into each German noun, in every number and case.
ENGLISH: dict[str, set[str]] = {}
for english, _, german, german_plural in NOUN.values():
    singular, _, plural = english.partition("/")
    plural = plural or english_s(singular)
    for form, translated in (
        (german, singular),
        (german_plural, plural),
        (f"{german_plural}n", plural),
    ):
        ENGLISH.setdefault(form, set()).add(translated)


def words_of(tokens):
    """The words of tokens, without punctuation, and which word each token is a part of."""
    words, places = [], []
    for token in tokens:
        if token.startswith("▁") or not words:
            words.append("")
        words[-1] += token.removeprefix("▁")
        places.append(len(words) - 1)
    return [re.sub(r"\W", "", word) for word in words], np.array(places)


def noun_accuracy(alignments):
    """How many nouns there are, and the share of those whose right word gets the most attention of
    all words."""
    results = []
    for alignment in alignments:
        source, source_places = words_of(alignment.source)
        target, target_places = words_of(alignment.target)
        for place, word in enumerate(target):
            # Nouns that a sentence has twice are left out.
            right = [i for i, english in enumerate(source) if english in ENGLISH.get(word, ())]
            if len(right) == 1:
                attention = alignment.attention[target_places == place].sum(axis=0)
                by_word = np.bincount(source_places, attention)
                results.append(by_word.argmax() == right[0])
    return len(results), np.mean(results)


@pytest.fixture(scope="module")
def pairs():
    return generate(31_000)


@pytest.fixture(scope="module")
def translator(pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "model"
    train_pairs, valid_pairs = pairs[:30_000], pairs[30_000:30_500]
    config = load_recipe("demo")
    keras.utils.set_random_seed(config.training.seed)
    text = (
        SentencePairs(*map(list, zip(*some)), name=name)
        for name, some in (("t", train_pairs), ("v", valid_pairs))
    )
    train(config, *text, ModelDir(path), make_strategy())
    return Translator.load(path)


@pytest.fixture(scope="module")
def sources_and_targets(pairs):
    """Sentences that are not those of the training, and their translations."""
    return tuple(map(list, zip(*pairs[30_500:])))


@pytest.mark.long
def test_most_nouns_are_aligned_right_and_no_layer_is_better_than_the_default(
    translator, sources_and_targets
):
    accuracies = {}
    for layer in range(-translator.model.config.depths[1], 0):
        number, accuracies[layer] = noun_accuracy(
            translator.align(*sources_and_targets, layer=layer)
        )
        assert number > 500
    assert accuracies[ALIGNMENT_LAYER] > 0.9
    assert max(accuracies.values()) - accuracies[ALIGNMENT_LAYER] < 0.02


@pytest.mark.long
def test_a_paragraph_is_translated_as_its_sentences_are(translator, sources_and_targets):
    sources, targets = sources_and_targets
    translations = translator(sources)

    def paragraphs(sentences):
        return [" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5)]

    documents = translator.translate_document(paragraphs(sources))
    assert [document.text for document in documents] == paragraphs(translations)
    # As one sentence each, paragraphs are longer than anything that the model has learned.
    references = [paragraphs(targets)]
    assert corpus_bleu([document.text for document in documents], references).score > 95
    assert corpus_bleu(translator(paragraphs(sources)), references).score < 20
