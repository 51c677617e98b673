"""The alphabet of a vocabulary fits the script of its text."""

import logging

import pytest

from keras_transformer.config import TokenizerConfig
from keras_transformer.training.batches.vocabulary import learn_tokenizers, train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs

# 1,500 Chinese characters, each as often as the others.
CHARACTERS = [chr(0x4E00 + number) for number in range(1500)]
LINES = ["".join(CHARACTERS[place : place + 10]) for place in range(0, 1500, 10)] * 3


def test_wordpiece_covers_a_text_of_more_than_a_thousand_characters():
    tokenizer = train_tokenizer(LINES, "wordpiece", 3012)
    unknown = tokenizer.tokenize(LINES).flat_values.numpy() == tokenizer.unk_id
    assert unknown.mean() < 0.001


def test_wordpiece_leaves_out_characters_that_the_vocabulary_has_no_room_for():
    tokenizer = train_tokenizer(LINES, "wordpiece", 2600)
    assert tokenizer.vocab_size <= 2600
    unknown = tokenizer.tokenize(LINES).flat_values.numpy() == tokenizer.unk_id
    assert 0.1 < unknown.mean() < 0.4


@pytest.mark.parametrize(
    ("rare", "is_piece"),
    # Once in 7,500 characters: below one in 2,000, above one in 10,000.
    [("鑫", False), ("ß", True)],
)
def test_a_rare_character_is_a_piece_unless_the_script_has_thousands(rare, is_piece):
    common = "的一是不了" if rare == "鑫" else "abcde"
    lines = [common] * 1500 + [rare]
    tokenizer = train_tokenizer(lines, "bpe", 280)
    unknown = set(tokenizer.unknown_ids())
    token_ids = tokenizer.tokenize([rare]).to_list()[0]
    assert unknown.isdisjoint(token_ids) == is_piece


@pytest.mark.parametrize(
    ("sources", "targets", "advises"),
    [
        (["the dog runs"], ["狗在跑步"], True),
        (["the dog runs"], ["الكلب يجري"], True),
        (["the dog runs"], ["der Hund rennt"], False),
    ],
)
def test_scripts_that_differ_are_advised_to_have_a_vocabulary_each(
    sources, targets, advises, caplog
):
    caplog.set_level(logging.INFO)
    pairs = SentencePairs(sources * 4, targets * 4, "invented")
    learn_tokenizers(pairs, TokenizerConfig(vocab_size=290))
    assert ("tokenizer.shared=false" in caplog.text) == advises
