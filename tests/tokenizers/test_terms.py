"""Terms are found as whole words and have their translations beside them, between pieces that no
text becomes."""

import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.terms import Glossary
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.vocabulary import train_tokenizer

LINES = [
    "A dog runs to the hot dog.",
    "Ein Hund rennt zur Wurst.",
    "{term} C++ \ufdd1 \ufdd1\ufdd3 [TERM]",
]
TERMS = {
    "dog": "Hund",
    "hot dog": "Wurst",
    "C++": "C plus",
    "Kibo's": "von Kibo",
    "Öl": "oil",
    "öl": "OIL",
}
TERMS["50\u00a0%"] = "half"


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def tokenizer(request):
    vocab_size = {"bpe": 330, "unigram": 305, "wordpiece": 86}[request.param]
    return train_tokenizer(LINES, request.param, vocab_size, terms=True)


def encoded(tokenizer, glossary, texts, spans=None):
    codec = TextCodec(TokenizerPair(tokenizer, tokenizer), 100, spans, glossary)
    return [row[:-1] for row in codec.encode_sources(tf.constant(texts)).token_ids.to_list()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog.", ["Hund"]),
        ("Dog (dog) hot dog, hot  dog", ["Hund", "Hund", "Wurst", "Hund"]),
        ("dogs hotdog DOG underdog dog2", []),
        ("C++ c++ C+++", ["C plus", "C plus"]),
        ("Kibo's dog", ["von Kibo", "Hund"]),
        ("Öl öl", ["oil", "OIL"]),
        ("50\u00a0% 50 %", ["half"]),
        ("", []),
        ("\ufdd1\ufdd3dog\ufdd1", ["Hund"]),
    ],
)
def test_terms_are_found_as_whole_words_the_longest_first(text, expected):
    (annotated,) = Glossary(TERMS).translations(tf.constant([text])).to_list()
    assert [translation.decode() for translation in annotated] == expected


def test_translations_stand_beside_terms():
    tokenizer = train_tokenizer(LINES, "bpe", 330, terms=True)
    begin, middle, end = tokenizer.term_ids
    plain = [
        tokenizer.segment(tf.constant([part])).to_list()[0]
        for part in (" A", " hot dog", " Wurst", ".")
    ]
    (token_ids,) = encoded(tokenizer, Glossary(TERMS), ["A hot dog."])
    assert token_ids == [*plain[0], begin, *plain[1], middle, *plain[2], end, *plain[3]]
    assert tokenizer.pieces(tokenizer.term_ids) == ["{term}", "{translation}", "{/term}"]
    assert tokenizer.term_ids.stop == tokenizer.placeholder_ids.start == tokenizer.vocab_size - 8
    # Beside placeholders, too.
    (token_ids,) = encoded(
        tokenizer, Glossary(TERMS), ["a {dog} dog <b>dog dog Kibo"], SpanFinder(["dog Kibo"])
    )
    special = [piece for piece in tokenizer.pieces(token_ids) if piece.startswith("{")]
    term = ["{term}", "{translation}", "{/term}"]
    assert special == ["{ph1}", *term, "{ph2}", *term, "{ph3}"]


def test_texts_without_terms_are_as_before_and_no_text_has_the_pieces(tokenizer):
    texts = [
        *LINES[1:],
        "",
        " ",
        "\ufdd1 \ufdd1\ufdd3x\ufdd1\ufdd2",
        "{translation}",
        "[/TERM] x",
        "\u2581 a",
    ]
    assert (
        encoded(tokenizer, Glossary({"absent": "x"}), texts) == tokenizer.tokenize(texts).to_list()
    )
    assert not set(tokenizer.term_ids) & set(tokenizer.tokenize(texts).flat_values.numpy().tolist())
    assert tokenizer.detokenize(tf.constant([list(tokenizer.term_ids)])).numpy().tolist() == [b""]


def test_a_vocabulary_without_the_pieces_takes_no_glossary():
    tokenizer = train_tokenizer(LINES, "bpe", 330)
    assert len(tokenizer.term_ids) == 0 and tokenizer.vocab_size == 330
    pair = TokenizerPair(tokenizer, tokenizer)
    with pytest.raises(
        ConfigError, match="a glossary needs a model that was trained with data.terms"
    ):
        TextCodec.for_translation(pair, 100, DecodingConfig(terms=TERMS))
    for terms in ({}, {"": "x"}, {"a": " x"}, {"a": 1}, ["a"]):
        with pytest.raises(
            ConfigError, match="decoding.terms must be a mapping from one or more terms"
        ):
            DecodingConfig(terms=terms)
    with pytest.raises(
        ConfigError, match="decoding.terms must have at most 5,000 terms; received 5,001$"
    ):
        DecodingConfig(terms={str(i): "x" for i in range(5001)})


def test_thousands_of_terms_are_taken_and_too_many_refused():
    glossary = Glossary({f"term number {i}": str(i) for i in range(1000)})
    assert glossary.translations(tf.constant(["term number 123"])).to_list() == [[b"123"]]
    with pytest.raises(
        ConfigError, match="decoding.terms must have fewer or shorter terms; received 1$"
    ):
        Glossary({"x" * 700_000: "y"})
