"""Texts are brought into the normal form of the training text; spans that are kept are not."""

import dataclasses
import sys
import unicodedata

import pytest
import tensorflow as tf

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.normalization import normalize_text, normalize_texts
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator

# One line of text as two programs may store it: "é", "が" and "각" as one character each, or as
# letters and marks.
COMPOSED = "caf\u00e9 \u304c \uac01"
DECOMPOSED = "cafe\u0301 \u304b\u3099 \u1100\u1161\u11a8"
# Full-width and half-width forms, a ligature and a circled number.
COMPATIBLE = "\uff21\uff01 \uff76\uff9e \ufb01 \u2460"
PLAIN = "A! \u30ac fi 1"


@pytest.mark.parametrize(
    ("normalization", "text", "expected"),
    [
        ("none", DECOMPOSED, DECOMPOSED),
        ("none", COMPATIBLE, COMPATIBLE),
        ("nfc", DECOMPOSED, COMPOSED),
        ("nfc", COMPATIBLE, COMPATIBLE),
        ("nfkc", DECOMPOSED, COMPOSED),
        ("nfkc", COMPATIBLE, PLAIN),
        ("nfkc", "", ""),
    ],
)
def test_python_and_graphs_give_the_normal_form(normalization, text, expected):
    assert normalize_text(text, normalization) == expected
    in_graph = normalize_texts(tf.constant([[text], ["a"]]), normalization)
    assert [row[0].decode() for row in in_graph.numpy()] == [expected, "a"]


@pytest.mark.parametrize("normalization", ["nfc", "nfkc"])
def test_python_and_graphs_agree_on_every_character(normalization):
    # Their releases of Unicode differ in characters that the older one has not assigned.
    characters = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) not in ("Cs", "Cn")
    ]
    decomposed = [unicodedata.normalize("NFKD", character) for character in characters]
    for texts in (characters, decomposed):
        in_graph = normalize_texts(tf.constant(texts), normalization).numpy()
        expected = [normalize_text(text, normalization).encode() for text in texts]
        assert in_graph.tolist() == expected


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def tokenizer(request):
    vocab_size = {"bpe": 310, "unigram": 290, "wordpiece": 52}[request.param]
    lines = [COMPOSED, DECOMPOSED, "a caf\u00e9, https://a.org"] * 3
    return train_tokenizer(lines, request.param, vocab_size, terms=True, normalization="nfc")


def test_a_vocabulary_is_learned_from_the_normal_form(tokenizer):
    pieces = "".join(tokenizer.pieces(range(tokenizer.vocab_size)))
    assert "\u00e9" in pieces
    assert "\u0301" not in pieces


@pytest.mark.parametrize("spans", [None, SpanFinder()])
@pytest.mark.parametrize("has_terms", [False, True])
def test_both_forms_of_a_text_are_the_same_tokens(tokenizer, spans, has_terms):
    terms = {unicodedata.normalize("NFD", "caf\u00e9"): unicodedata.normalize("NFD", "Caf\u00e9")}
    decoding = DecodingConfig(placeholders=spans is not None, terms=terms if has_terms else None)
    codec = TextCodec.for_translation(TokenizerPair(tokenizer, tokenizer), 100, decoding)
    both = tf.constant([f"{COMPOSED} https://a.org", f"{DECOMPOSED} https://a.org"])
    source = codec.encode_sources(both).token_ids.to_list()
    assert source[0] == source[1]
    assert (tokenizer.term_ids.start in source[0]) == has_terms
    as_source, as_target = codec.encode_pairs(both, both)
    assert as_source.token_ids.to_list()[0] == as_source.token_ids.to_list()[1]
    assert as_target.token_ids.to_list()[0] == as_target.token_ids.to_list()[1]
    prefixes = codec.encode_prefixes(both, codec.encode_sources(both)).to_list()
    assert prefixes[0] == prefixes[1]


def test_spans_stay_as_they_are():
    lines = [COMPOSED, "see https://a.org"]
    tokenizer = train_tokenizer(lines, "bpe", 300, normalization="nfkc")
    codec = TextCodec(TokenizerPair(tokenizer, tokenizer), 100, SpanFinder())
    texts = tf.constant([f"{DECOMPOSED} https://a.org/cafe\u0301\uff21"])
    encoded = codec.encode_sources(texts)
    (text,) = codec.decode(encoded.token_ids[:, :-1], encoded, 1).numpy()
    assert text.decode() == f"{COMPOSED} https://a.org/cafe\u0301\uff21"


@pytest.mark.parametrize(
    ("normalization", "text"),
    [("nfc", "\u1100\u1161\u11a8"), ("nfc", "\u212a"), ("nfkc", "\U0001d400")],
)
def test_no_text_is_cut_before_its_normal_form_is_too_long(normalization, text):
    # Each piece is one character, of up to four times as many bytes before.
    character = normalize_text(text, normalization)
    lines = [f"{character} a"]
    tokenizer = train_tokenizer(lines, "bpe", 272, normalization=normalization)
    codec = TextCodec(TokenizerPair(tokenizer, tokenizer), 64)
    encoded = codec.encode_sources(tf.constant([text * 62, character * 62]))
    rows = encoded.token_ids.to_list()
    assert rows[0] == rows[1]
    assert encoded.lengths.numpy()[0] == len(rows[0])


STEPS = ["training.steps=2", "training.validate_every=1", "training.tokens_per_batch=64"]
STEPS += ["training.average_last=0"]
SIZES = ["model.d_model=8", "model.d_ff=8", "model.num_heads=2", "model.num_layers=1"]


@pytest.fixture
def train(text):
    """Trains in a directory for two steps, on lines of composed characters."""
    sides = ("--source", "--target", "--valid-source", "--valid-target")
    lines = [COMPOSED, f"{COMPOSED} a"] * 4

    def run(directory, *options):
        arguments = [item for side in sides for item in (side, text(f"{side[2:]}.txt", lines))]
        settings = [*STEPS, *options]
        if "--init-from" not in options:
            settings = [*SIZES, "tokenizer.vocab_size=284", *settings]
        given = []
        for setting in settings:
            given += ["--set", setting] if "=" in str(setting) else [setting]
        main(["train", *map(str, arguments), "--model-dir", str(directory), *map(str, given)])

    return run


def encoded_by(directory, texts):
    translator = Translator.load(directory)
    return translator.graph.codec.encode_sources(tf.constant(texts)).token_ids.to_list()


def without_a_normal_form(directory):
    """Removes the normal form from a configuration."""
    path = ModelDir(directory).config_path
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "normalize:" not in line), "utf-8")


@pytest.mark.slow
def test_a_new_model_has_nfc_and_keeps_it(train, tmp_path):
    train(tmp_path / "model")
    assert ModelDir(tmp_path / "model").read_config().data.normalize == "nfc"
    one, other = encoded_by(tmp_path / "model", [COMPOSED, DECOMPOSED])
    assert one == other
    train(tmp_path / "tuned", "--init-from", tmp_path / "model")
    assert ModelDir(tmp_path / "tuned").read_config().data.normalize == "nfc"


@pytest.mark.slow
def test_models_without_data_normalize_read_texts_as_they_are(train, fails, tmp_path):
    train(tmp_path / "model", "data.normalize=none")
    without_a_normal_form(tmp_path / "model")
    one, other = encoded_by(tmp_path / "model", [COMPOSED, DECOMPOSED])
    assert one != other
    train(tmp_path / "model", "training.steps=3")
    assert ModelDir(tmp_path / "model").read_config().data.normalize == "none"
    train(tmp_path / "tuned", "--init-from", tmp_path / "model")
    config = ModelDir(tmp_path / "tuned").read_config()
    assert config.data.normalize == "none"
    assert dataclasses.replace(config.data, normalize=None).normalization == "none"


@pytest.mark.slow
def test_the_normal_form_of_a_model_does_not_change(train, tmp_path, capsys):
    train(tmp_path / "model")
    with pytest.raises(SystemExit):
        train(tmp_path / "model", "data.normalize=nfkc", "training.steps=3")
    message = capsys.readouterr().err.splitlines()[-1]
    assert "data.normalize must be 'nfc', as in the model that" in message
    with pytest.raises(SystemExit):
        train(tmp_path / "tuned", "--init-from", tmp_path / "model", "data.normalize=none")
    message = capsys.readouterr().err.splitlines()[-1]
    assert "data.normalize must be 'nfc', as in the --init-from model" in message
