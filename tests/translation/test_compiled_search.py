"""Compiled searches find the tokens that plain ones find."""

import random

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.compiled_search import SearchShapes

WORDS = "Anna the dog my sister Zoë sees buys paints greets a tree two apples bridge . ,".split()


def random_texts(seed, number, most_words):
    words = random.Random(seed)
    return [" ".join(words.choices(WORDS, k=words.randint(0, most_words))) for _ in range(number)]


def traced_search(translator, shapes, n_best=1):
    """The search as a function of texts, compiled for shapes unless these are None."""

    def search(texts):
        translations = translator.graph.search(texts, n_best=n_best)
        return translations.token_ids, translations.scores

    with translator.graph.compiled(shapes):
        signature = [tf.TensorSpec([None], tf.string)]
        function = tf.function(search, input_signature=signature, autograph=False)
        return function.get_concrete_function()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_are_those_of_the_plain_search(beam_size, tiny_model_dir):
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=beam_size))
    plain = traced_search(translator, None)
    compiled = traced_search(translator, SearchShapes(lengths=(16,), batches=(1,)))
    # Some texts are too long for the program.
    for text in ["", *random_texts(1, 60, most_words=8)]:
        expected_ids, expected_scores = plain(tf.constant([text]))
        token_ids, scores = compiled(tf.constant([text]))
        np.testing.assert_array_equal(token_ids, expected_ids)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-5)
