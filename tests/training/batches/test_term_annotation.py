"""Training text in which the translations of some words stand beside them."""

import random

import numpy as np
import pytest
import tensorflow as tf
from test_batches import rows_of

from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.alignment.model_1 import Term, learn_lexicon
from keras_transformer.training.batches.augmentation import TermAnnotation
from keras_transformer.training.batches.encoded_pairs import Epochs, encode
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs

NOUNS = {f"w{i}": f"V{i}" for i in range(60)}


@pytest.fixture(scope="module")
def pairs():
    """Sentences of three nouns, in reverse order in the target, between the same words."""
    rng = random.Random(1)
    samples = [rng.sample(sorted(NOUNS), 3) for _ in range(400)]
    sources = [f"the {a}, a {b} {c}." for a, b, c in samples]
    targets = [f"der {NOUNS[b]} {NOUNS[c]}, die {NOUNS[a]}." for a, b, c in samples]
    return SentencePairs(sources, targets, "invented")


@pytest.fixture(scope="module")
def lexicon(pairs):
    return learn_lexicon(pairs, max_share=0.1)


def test_terms_are_the_words_that_translate_each_other(lexicon):
    terms_of_pairs = list(
        lexicon.terms(
            ["The W1, a w2-w3 x", "w1", "", "w4 w5"], ["Der V2 V3, die v1 y", "V2", "", "V5 V4"]
        )
    )
    # Words that follow each other on both sides in the same order are a phrase; "the" is in every
    # sentence.
    assert terms_of_pairs == [
        [Term(4, 6, "v1"), Term(10, 15, "V2 V3")],
        [],
        [],
        [Term(0, 2, "V4"), Term(3, 5, "V5")],
    ]


def test_a_text_of_a_few_sentences_has_no_terms():
    lexicon = learn_lexicon(SentencePairs(["a dog", ""], ["ein Hund", ""], "short"))
    assert list(lexicon.terms(["a dog", ""], ["ein Hund", ""])) == [[], []]


def test_a_share_of_the_sources_is_annotated_anew_each_time(lexicon, pairs):
    sources, targets = list(pairs.source), list(pairs.target)
    annotation, again = (TermAnnotation(lexicon, 0.25, seed=3) for _ in range(2))
    first, second = (annotation.annotate(sources, targets) for _ in range(2))
    assert [first, second] == [
        again.annotate(sources, targets) for _ in range(2)
    ] and first != second
    changed = [(plain, text) for plain, text in zip(sources, first) if text != plain]
    assert 70 < len(changed) < 130
    for plain, text in changed:
        parts = text.split("\ufdd1\ufdd3")
        assert (
            len(parts) % 3 == 1
            and "".join(part for i, part in enumerate(parts) if i % 3 != 2) == plain
        )
        for term, translation in zip(parts[1::3], parts[2::3]):
            words = term.split()
            assert translation == " " + " ".join(NOUNS[word] for word in words)
    texts = ["a \ufdd1\ufdd3 w1"]
    assert TermAnnotation(lexicon, 0.0, seed=3).annotate(texts, [""]) == ["a \ufdd1\ufdd2\ufdd3 w1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_pairs_with_terms_are_encoded_differently_in_each_epoch(tmp_path, lexicon, pairs, kind):
    size = {"bpe": 360, "wordpiece": 130}[kind]
    tokenizer = train_tokenizer([*pairs.source, *pairs.target], kind, size, terms=True)
    few = SentencePairs(pairs.source[:20], pairs.target[:20], "few")
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    plain = encode(Epochs(few), TextCodec(tokenizers, 60), tmp_path / "plain")
    terms = TermAnnotation(lexicon, 0.999, seed=1)
    encoded = encode(
        Epochs(few, 2, terms=terms),
        TextCodec(tokenizers, 60, are_annotated=True),
        tmp_path / "terms",
    )
    assert encoded.fingerprint == plain.fingerprint and len(encoded) == 2 * len(plain)

    begin, middle, end = tokenizer.term_ids
    assert rows_of(encoded, "target") == rows_of(plain, "target") * 2
    sources = rows_of(encoded, "source")
    for row, without in zip(map(np.array, sources), rows_of(plain, "source") * 2):
        is_special = np.isin(row, [begin, middle, end])
        special = row[is_special]
        assert special.tolist() == [begin, middle, end] * (len(special) // 3) and len(special)
        # Without what is between the second and the third it is as before.
        depth = np.cumsum(row == middle) - np.cumsum(row == end)
        rest = tokenizer.detokenize(
            tf.ragged.constant([row[(depth == 0) & ~is_special].tolist(), without])
        )
        assert rest[0] == rest[1]
    assert sources[:20] != sources[20:]
