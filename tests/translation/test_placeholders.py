"""What must stay as it is comes back exactly once, whatever the model: here one that never saw a
placeholder."""

import argparse
import dataclasses
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import SUBJECTS
from session_mode import SavedModelSession
from test_shortlist import random_shortlist

from keras_transformer.commands.trained import read_trained
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.export.servable import export_servable
from keras_transformer.model_dir import ModelDir
from keras_transformer.tokenizers import WordPieceTokenizer
from keras_transformer.tokenizers.placeholders import span_finder
from keras_transformer.translation import Sampling, Translator

PATTERNS = [r"#[a-z]+[0-9]+#", r"\$\([A-Z]+[0-9]+\)"]
TERMS = ["Kibo", "C++", "Fuji San", "50 %"]
WORDS = [*SUBJECTS, "sees", "a tree", "100%", "<", "Zoë's", "}"]


def generated(number, seed):
    """Texts with up to eight spans, each of which is there once, and the spans."""
    rng = random.Random(seed)
    for i in range(number):
        kinds = [
            f"https://example-{i}.org/a/{rng.randrange(100)}?q=ä&r=(1)",
            f"www.site{i}.de",
            f"first.last+{i}@mail.example.com",
            f"{{name{i}}}",
            f"{{{{ user.{i} }}}}",
            f"${{home{i}}}",
            f"%({i}x)s",
            f"%{rng.randrange(10, 90)}$d",
            f'<a href="page {i}.html" title="A. B.">',
            f"</tag{i}>",
            f"#name{i}#",
            f"$(ARG{i})",
            *TERMS,
        ]
        spans = rng.sample(kinds, rng.randrange(9))
        parts = []
        for span in spans:
            parts += rng.choices(WORDS, k=rng.randrange(2)) + [
                span + rng.choice(["", ",", ".", "!"])
            ]
        yield " ".join([*parts, *rng.choices(WORDS, k=rng.randrange(1, 4))]), spans


def fitting(translator, number, seed):
    """Generated texts that the model reads whole."""
    texts = list(generated(2 * number, seed))
    lengths = translator.num_tokens([text for text, _ in texts])
    texts = [
        each for each, length in zip(texts, lengths) if length <= translator.model.config.max_length
    ]
    assert len(texts) >= number
    return texts[:number]


def assert_kept(texts_and_spans, translations):
    for (text, spans), translation in zip(texts_and_spans, translations, strict=True):
        assert [translation.count(span) for span in spans] == [1] * len(spans), (text, translation)


@pytest.fixture(scope="module", params=["tiny", pytest.param("wordpiece", marks=pytest.mark.slow)])
def model_dir(request, model_dirs):
    return model_dirs[request.param]


def load(model_dir, **decoding):
    return Translator.load(
        model_dir,
        DecodingConfig(
            **{
                "placeholders": True,
                "keep": TERMS,
                "placeholder_patterns": PATTERNS,
                **decoding,
            }
        ),
    )


@pytest.fixture(scope="module")
def translator(model_dir):
    return load(model_dir)


def test_each_comes_back_once_in_every_translation(translator):
    texts = fitting(translator, 60, seed=1)
    actual = translator.n_best([text for text, _ in texts], 4)
    for place in range(4):
        assert_kept(texts, [result[place][0] for result in actual])


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoding", [{"beam_size": 1}, {"max_extra_tokens": 0, "no_repeat_ngram_size": 1}]
)
def test_each_comes_back_once_with_other_searches_and_with_a_shortlist(model_dir, decoding):
    translator = load(model_dir, **decoding)
    if translator.decoding.beam_size > 1:
        shortlist = random_shortlist(translator.tokenizers.target.vocab_size)
        translator = Translator(
            translator.model, translator.tokenizers, translator.decoding, shortlist=shortlist
        )
    texts = fitting(translator, 30, seed=2)
    assert_kept(texts, translator([text for text, _ in texts]))


@pytest.mark.slow
def test_each_comes_back_once_in_samples_and_with_prefixes_and_limits(translator):
    texts = fitting(translator, 30, seed=3)
    sources = [text for text, _ in texts]
    for options in ({}, {"prefixes": [" ".join(spans[:2]) for _, spans in texts]}):
        actual = translator.translate(
            sources, sampling=Sampling(seed=4, temperature=2.0, top_k=9), **options
        )
        assert_kept(texts, [result.hypotheses[0][0] for result in actual])
    # A promise goes before a limit.
    actual = translator.graph.search(
        tf.constant(sources), prefixes=tf.fill([30], "Anna"), max_lengths=tf.fill([30], 2)
    )
    assert_kept(texts, [text.decode() for text in actual.texts[:, 0].numpy()])


@pytest.mark.slow
def test_documents_are_not_divided_in_what_stays(translator):
    texts = fitting(translator, 20, seed=6)
    documents = [
        ("\n".join(texts[i][0] for i in (n, n + 1)), texts[n][1] + texts[n + 1][1])
        for n in range(0, 20, 2)
    ]
    # Terms may be in both.
    documents = [(text, [span for span in spans if span not in TERMS]) for text, spans in documents]
    assert_kept(
        documents,
        [actual.text for actual in translator.translate_document([text for text, _ in documents])],
    )


only_tiny = pytest.mark.parametrize("model_dir", ["tiny"], indirect=True)


@pytest.mark.slow
@only_tiny
def test_texts_without_any_are_translated_as_before(model_dir, translator):
    texts = [f"{subject} sees a tree." for subject in SUBJECTS] + ["", "  "]
    plain = Translator.load(model_dir)
    assert translator(texts) == plain(texts)
    np.testing.assert_array_equal(translator.token_ids(texts), plain.token_ids(texts))
    assert translator.tokenize(["Kibo %s"]) == [["▁", "{ph1}", "▁", "{ph2}", "</s>"]]
    np.testing.assert_allclose(translator.score(texts, texts), plain.score(texts, texts), rtol=1e-5)


@pytest.mark.slow
@only_tiny
def test_the_ninth_and_what_is_truncated_is_text(translator):
    text = " ".join(f"{{n{i}}}" for i in range(9))
    tokens = [token for token in translator.tokenize([text])[0] if token != "▁"]
    assert tokens[:8] == [f"{{ph{i}}}" for i in range(1, 9)] and tokens[8] == "<0x7B>"
    assert [translator([text])[0].count(f"{{n{i}}}") for i in range(8)] == [1] * 8
    long = "tree " * 80 + "{name}"
    (actual,) = translator.translate([long])
    assert actual.source_length > 64 and "{name}" not in actual.hypotheses[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_each_comes_back_once_from_a_saved_model_in_session_mode(model_dir, number, tmp_path):
    translator = load(model_dir, beam_size=2)
    path = export_servable(translator, tmp_path, signatures=["translate"], verified=False)
    texts = fitting(translator, number, seed=7)
    sources = [text for text, _ in texts]
    model = SavedModelSession(path)
    answers = [
        model("translate", {"text": sources[i : i + 256]})["text"] for i in range(0, number, 256)
    ]
    model.close()
    translations = [text.decode() for answer in answers for text in answer]
    assert translations[:60] == translator(sources[:60])
    assert_kept(texts, translations)


@pytest.mark.slow
def test_terms_are_read_from_a_file(tiny_model_dir, tmp_path):
    path, model_dir = (
        tmp_path / "terms.txt",
        ModelDir(shutil.copytree(tiny_model_dir, tmp_path / "model")),
    )
    path.write_text("Kibo\n\n C++ \n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match="--keep needs a model that was trained with decoding.placeholders=true"
    ):
        read_trained(model_dir.path, argparse.Namespace(keep=path))
    config = model_dir.read_config()
    decoding = dataclasses.replace(config.decoding, placeholders=True, keep=["Fuji San"])
    model_dir.write_config(dataclasses.replace(config, decoding=decoding))
    assert read_trained(model_dir.path, argparse.Namespace(keep=path)).decoding.keep == [
        "Fuji San",
        "Kibo",
        "C++",
    ]
    for content, message in (
        (b"\xff", "line 1 is not valid UTF-8"),
        (b" \n", "the file has no terms; each line must have a term"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidFileError, match=f"terms.txt: {message}"):
            read_trained(model_dir.path, argparse.Namespace(keep=path))
    with pytest.raises(ConfigError, match="decoding.keep needs decoding.placeholders=true"):
        DecodingConfig(keep=["Kibo"])
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "a"])
    with pytest.raises(
        ConfigError,
        match="decoding.placeholders must be false for a vocabulary without placeholders",
    ):
        span_finder(DecodingConfig(placeholders=True), [tokenizer])
