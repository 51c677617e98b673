"""Tags: one model for two directions, with tags that no text can spell, and that every command puts
in front."""

import dataclasses
import io
import json
import logging

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from conftest import sentence_pairs
from session_mode import run_session

from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.config import DataConfig, DecodingConfig, TransformerConfig
from keras_transformer.errors import ConfigError
from keras_transformer.export.servable import export_servable
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.serving.server import RequestError, RestApi, load_servable
from keras_transformer.text import Corpus, Shard
from keras_transformer.tokenizers import PretrainedSentencePieceTokenizer, TokenizerPair
from keras_transformer.tokenizers.sentencepiece import parse_model
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.augmentation import SubwordDropout
from keras_transformer.training.batches.encoded_pairs import Epochs, encode
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs, read_text, read_valid_text
from keras_transformer.training.text.filters import HeldOut

PAIRS = sentence_pairs()
ENGLISH, GERMAN = (list(side) for side in zip(*PAIRS, strict=True))
TAGS = ("data.tags=['>>de<<', '>>en<<']", "data.valid_tags=['>>de<<', '>>en<<']")


def corpus(name, source, target):
    return Corpus(name, [Shard(source, target, name, name)])


BOTH = [corpus("en-de", ENGLISH, GERMAN), corpus("de-en", GERMAN, ENGLISH)]


@pytest.fixture(scope="module")
def two_directions(tmp_path_factory):
    """Path of a model directory, and what was logged when it was trained."""
    path, lines = tmp_path_factory.mktemp("tags") / "model", []
    sizes = [
        "model.num_layers=1",
        "model.d_model=64",
        "model.d_ff=128",
        "model.num_heads=2",
        "model.dropout=0",
    ]
    schedule = [
        "steps=160",
        "validate_every=80",
        "validate_by=bleu",
        "tokens_per_batch=1000",
        "precision=float32",
    ]
    settings = [
        *TAGS,
        *sizes,
        *(f"training.{setting}" for setting in [*schedule, "num_buckets=2", "warmup_steps=40"]),
    ]
    config = load_recipe(
        "demo", [*settings, "training.peak_learning_rate=0.004", "tokenizer.vocab_size=330"]
    )
    keras.utils.set_random_seed(1)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("keras_transformer").addHandler(handler)
    pairs, _ = read_text(BOTH, config.data)
    train(config, pairs, read_valid_text(BOTH, config.data), path, make_strategy())
    logging.getLogger("keras_transformer").removeHandler(handler)
    return path, lines


def translator_for(path, tag):
    decoding = dataclasses.replace(ModelDir(path).read_config().decoding, tag=tag)
    return Translator.load(path, decoding)


@pytest.mark.slow
def test_one_model_translates_in_both_directions(two_directions):
    path, lines = two_directions
    to_german, to_english = (translator_for(path, tag) for tag in (">>de<<", ">>en<<"))
    german, english = to_german(ENGLISH), to_english(GERMAN)
    assert np.mean([found == expected for found, expected in zip(german, GERMAN)]) > 0.9
    assert np.mean([found == expected for found, expected in zip(english, ENGLISH)]) > 0.9
    # Each direction is validated apart.
    last = [line for line in lines if line.startswith("BLEU >>de<< ")][-1]
    assert all(float(part.split()[1]) > 90 for part in last.removeprefix("BLEU ").split(", "))


@pytest.mark.slow
def test_a_tag_is_one_token_in_front_and_text_that_looks_like_one_stays_text(two_directions):
    translator = translator_for(two_directions[0], ">>de<<")
    plain, alike = translator.tokenize(["the dog", ">>de<< the dog"])
    assert plain[0] == alike[0] == ">>de<<"
    assert ">>de<<" not in alike[1:] and "".join(alike[1:]).startswith("▁")
    assert translator.num_tokens(["the dog"]) == [len(plain)]
    source = translator.tokenizers.source
    texts = [">>de<<", "<bt>", "x>>en<<y", "<s></s><pad>"]
    assert source.detokenize(source.tokenize(texts)).numpy().tolist() == [
        text.encode() for text in texts
    ]
    assert not set(source.tags.values()) & set(source.tokenize(texts).flat_values.numpy().tolist())


@pytest.mark.slow
def test_a_tag_counts_for_the_longest_source(two_directions):
    path = two_directions[0]
    tagged = translator_for(path, ">>de<<")
    max_length = tagged.model.config.max_length
    ids = tagged.token_ids(["dog " * max_length])
    assert ids.shape == (1, max_length)
    assert (ids[0, 0], ids[0, -1]) == (
        tagged.graph.codec.tag_ids[0],
        tagged.tokenizers.source.end_id,
    )
    assert tagged.translate(["dog " * max_length])[0].source_length > max_length


@pytest.mark.slow
def test_the_commands_put_the_tag_in_front(two_directions, text, fails, capsys):
    path = two_directions[0]
    score = [
        "score",
        "--model-dir",
        str(path),
        "--source",
        text("en", ENGLISH),
        "--target",
        text("de", GERMAN),
    ]
    scores = []
    for tag in (">>de<<", ">>en<<"):
        main([*score, "--tag", tag])
        scores.append(np.mean([float(line) for line in capsys.readouterr().out.split()]))
    assert scores[0] > scores[1] + 1
    assert fails(*score).endswith(
        f"error: {path}: the model was trained with tagged sources only; give --tag, one of "
        f">>de<<, >>en<<"
    )
    message = "decoding.tag must be one of >>de<<, >>en<<; received decoding.tag='<bt>'"
    assert message in fails(*score, "--tag", "<bt>")


@pytest.mark.slow
def test_each_text_may_have_a_tag_of_its_own(two_directions):
    to_german, to_english = (translator_for(two_directions[0], tag) for tag in (">>de<<", ">>en<<"))
    texts, tags = (
        [*ENGLISH[:3], *GERMAN[:3], ""],
        [">>de<<", "", ">>de<<", ">>en<<", ">>en<<", ">>en<<", ">>en<<"],
    )
    translations = to_german.translate(texts, tags=tags)
    apart = [*to_german.translate(texts[:3]), *to_english.translate(texts[3:])]
    for translation, expected in zip(translations, apart, strict=True):
        ((text, score),), ((expected_text, expected_score),) = (
            translation.hypotheses,
            expected.hypotheses,
        )
        assert (text, translation.source_length) == (expected_text, expected.source_length)
        assert score == pytest.approx(expected_score, abs=1e-4)
    codec = to_german.graph.codec
    both = codec.encode_sources(
        tf.constant(["the dog"] * 2), tf.constant([">>en<<", ""])
    ).token_ids.to_list()
    assert both == [
        to_english.token_ids(["the dog"])[0].tolist(),
        to_german.token_ids(["the dog"])[0].tolist(),
    ]
    with pytest.raises(
        ConfigError, match=r"^tags\[1\] must be one of >>de<<, >>en<<; received tags\[1\]='>>fr<<'$"
    ):
        to_german.translate(["a", "b"], tags=["", ">>fr<<"])


@pytest.mark.slow
def test_a_servable_has_the_tag_and_takes_others(two_directions, tmp_path):
    translator = translator_for(two_directions[0], ">>en<<")
    path = export_servable(
        translator, tmp_path, signatures=["serving_default", "translate_with_tag"]
    )
    ((texts, _),) = run_session(path, [GERMAN[:5]])
    assert [text.decode() for text in texts] == translator(GERMAN[:5])
    card = (path / "assets.extra" / "README.md").read_text()
    assert "| Tag | >>en<<, in front of every source |" in card
    assert (
        "an empty tag stands for >>en<<. The tags are >>de<<, >>en<<; any other tag is an error."
        in card
    )
    api = RestApi("both", load_servable(path).signatures, max_rows=4)

    def post(*rows):
        instances = [dict(text=text, tag=tag) for text, tag in rows]
        request = {"signature_name": "translate_with_tag", "instances": instances}
        return api.post("/v1/models/both:predict", json.dumps(request).encode())["predictions"]

    rows = [(GERMAN[0], ""), (ENGLISH[0], ">>de<<"), (GERMAN[1], ">>en<<")]
    expected = translator.translate([text for text, _ in rows], tags=[tag for _, tag in rows])
    assert [answer["text"] for answer in post(*rows)] == [
        result.hypotheses[0][0] for result in expected
    ]
    for tag, named in ((">>fr<<", ">>fr<<"), ({"b64": "/z4="}, "\ufffd>")):
        with pytest.raises(
            RequestError, match=rf"\[tag must be one of >>de<<, >>en<<; received {named}\]$"
        ):
            post(rows[0], ("x", tag))


@pytest.mark.slow
def test_an_imported_multilingual_model_takes_its_languages_as_tags():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    names = [piece.piece for piece in parse_model(model.getvalue()).pieces]
    pieces = [name for name in names if name not in ("<unk>", "<s>", "</s>")]
    vocabulary = [*pieces, ">>fra<<", ">>deu<<"]
    tokenizer = PretrainedSentencePieceTokenizer.with_vocabulary(model.getvalue(), vocabulary)
    size = tokenizer.vocab_size
    config = TransformerConfig(
        size, size, num_layers=1, d_model=16, d_ff=16, num_heads=1, max_length=30
    )
    transformer = build_transformer(config, dtype="float32")
    tagged = Translator(transformer, tokenizer, DecodingConfig(tag=">>fra<<"))
    plain = Translator(transformer, tokenizer, DecodingConfig())
    in_front = [f">>fra<< {text}" for text in ENGLISH]
    assert tagged.tokenize(ENGLISH) == plain.tokenize(in_front)
    assert {row[0] for row in tagged.tokenize(ENGLISH)} == {">>fra<<"}
    assert tagged.translate(ENGLISH[:5]) == plain.translate(in_front[:5])
    with pytest.raises(
        ConfigError, match="^decoding.tag must be one of >>fra<<, >>deu<<; received decoding.tag="
    ):
        Translator(transformer, tokenizer, DecodingConfig(tag="<bt>"))


@pytest.mark.parametrize("kind, vocab_size", [("bpe", 320), ("unigram", 308), ("wordpiece", 100)])
def test_every_kind_of_vocabulary_has_tags_that_no_text_is_split_into(kind, vocab_size):
    lines = [*ENGLISH, *GERMAN, "<bt> >>de<< the dog"] * 3
    tokenizer = train_tokenizer(lines, kind, vocab_size, [">>de<<", "<bt>"])
    assert tokenizer.tags == {">>de<<": 4, "<bt>": 5}
    assert not {4, 5} & set(
        tokenizer.tokenize([*lines, "<bt>", ">>de<<"]).flat_values.numpy().tolist()
    )
    if kind != "wordpiece":
        ids = tf.concat([[[5]], tokenizer.tokenize(["the dog"]), [[4]]], axis=1)
        assert tokenizer.detokenize(ids).numpy().tolist() == [b"the dog"]
    assert train_tokenizer(lines, kind, vocab_size).tags == {}


def test_encoded_pairs_begin_with_the_tag_of_their_corpus(tmp_path):
    tokenizer = train_tokenizer([*ENGLISH, *GERMAN], "bpe", 320, ["<bt>"])
    sources, tags = ["the dog", "the dog", "", "a tree"], ((3, ""), (1, "<bt>"))
    pairs = SentencePairs(sources, ["der"] * 4, "x", ((3, 2), (1, 1)), tags)
    plain = SentencePairs(pairs.source, pairs.target, "x", pairs.weights)
    dog, tree = (ids + [3] for ids in tokenizer.tokenize(["the dog", "a tree"]).to_list())
    for number, sampler in enumerate((tokenizer, SubwordDropout(tokenizer, 0.0, seed=1))):
        encoded = encode(
            Epochs(pairs),
            TextCodec(TokenizerPair(sampler, sampler), 64),
            tmp_path / f"tagged{number}",
        )
        assert encoded.token_ids("source", 0).numpy().tolist() == dog * 4 + [4] + tree
        assert encoded.lengths("source", 0).numpy().tolist() == [len(dog)] * 4 + [len(tree) + 1]
        assert encoded.num_empty == 2
        # A run that is resumed notices that its tags have changed; without tags nothing has.
        untagged = encode(
            Epochs(plain),
            TextCodec(TokenizerPair(sampler, sampler), 64),
            tmp_path / f"plain{number}",
        )
        assert encoded.fingerprint["source"] != untagged.fingerprint["source"]
    too_long = SentencePairs(["the dog"] * 2, ["der"] * 2, "x", tags=((1, ""), (1, "<bt>")))
    codec = TextCodec(TokenizerPair(tokenizer, tokenizer), len(dog))
    assert encode(Epochs(too_long), codec, tmp_path / "long").num_too_long == 1
    with pytest.raises(
        ConfigError, match="^data.tags must be among <bt>, which the vocabulary has; received <x>$"
    ):
        encode(
            Epochs(SentencePairs(["a"], ["b"], "x", tags=((1, "<x>"),))), codec, tmp_path / "none"
        )


def test_pairs_that_are_held_out_keep_their_tags():
    data = DataConfig(tags=[">>de<<", None], remove_copies=True)
    corpora = [corpus("a", ENGLISH, GERMAN), corpus("b", [*GERMAN, "copy"], [*ENGLISH, "copy"])]
    kept, held = read_text(corpora, data, HeldOut(size=30))
    assert sum(number for number, _ in held.tags) == 30 and [tag for _, tag in held.tags] == [
        ">>de<<",
        "",
    ]
    assert [number for number, _ in kept.tags] == [48 - number for number, _ in held.tags]
    for pairs in (kept, held):
        is_english = [source in ENGLISH for source in pairs.source]
        assert is_english == [True] * pairs.tags[0][0] + [False] * pairs.tags[1][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "data, message",
    [
        (
            dict(tags=["<bt>"]),
            "data.tags must be a list of one tag or null for each corpus, here 2; received",
        ),
        (
            dict(tags=["<a>", "<b>"]),
            "data.valid_tags must be a list of one tag or null for each corpus to validate on",
        ),
        (
            dict(tags=["<a>", None], valid_tags=["<b>", None]),
            "data.valid_tags must be among data.tags; received",
        ),
        *(
            (dict(tags=[None, tag]), "data.tags[1] must be a tag such as")
            for tag in ("bt", "</s>", "<0x41>", "<a b>")
        ),
    ],
)
def test_wrong_tags_are_one_line(data, message):
    with pytest.raises(ConfigError) as error:
        config = DataConfig(**data)
        read_text(BOTH, config)
        read_valid_text(BOTH, config)
    assert str(error.value).startswith(message)
