"""A trained model aligns: most attention to the source is at the word that a noun translates."""

import re

import keras
import numpy as np
import pytest
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

from examples.corpus import NOUN, english_s, generate
from keras_transformer import Translator
from keras_transformer.model_dir import ModelDir
from keras_transformer.translation.translator import ALIGNMENT_LAYER

# What the grammar translates into each German noun, in every number and case.
ENGLISH: dict[str, set[str]] = {}
for english, _, german, german_plural in NOUN.values():
    singular, _, plural = english.partition("/")
    plural = plural or english_s(singular)
    for form, translated in ((german, singular), (german_plural, plural), (f"{german_plural}n", plural)):
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
    """How many nouns there are, and the share of those whose right word gets the most attention of all words."""
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


@pytest.mark.long
def test_most_nouns_are_aligned_right_and_no_layer_is_better_than_the_default(tmp_path):
    pairs = generate(31_000, seed=0)
    train_pairs, valid_pairs, test_pairs = pairs[:30_000], pairs[30_000:30_500], pairs[30_500:]
    config = load_recipe("demo")
    keras.utils.set_random_seed(config.training.seed)
    text = (SentencePairs(*map(list, zip(*some)), name=name) for name, some in (("t", train_pairs), ("v", valid_pairs)))
    train(config, *text, ModelDir(tmp_path / "model"), make_strategy())

    translator = Translator.load(tmp_path / "model")
    sources, targets = map(list, zip(*test_pairs))
    accuracies = {}
    for layer in range(-translator.model.config.depths[1], 0):
        number, accuracies[layer] = noun_accuracy(translator.align(sources, targets, layer=layer))
        assert number > 500
    assert accuracies[ALIGNMENT_LAYER] > 0.9
    assert max(accuracies.values()) - accuracies[ALIGNMENT_LAYER] < 0.02
