"""A glossary, from training text to a SavedModel: which of two synonyms a model writes is what the
glossary says."""

import dataclasses
import itertools
import json
import pathlib
import random
import re
from typing import NamedTuple

import keras
import pytest
from session_mode import run_session

from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.commands.trained import read_glossary
from keras_transformer.errors import InvalidFileError
from keras_transformer.export.servable import export_servable
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.evaluate import count_terms
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs


class Languages(NamedTuple):
    """A source and a target language, in which each word has two translations."""

    synonyms: dict[str, tuple[str, str]]
    source: str  # a sentence, with places for two words
    target: str
    vocab_size: int

    def pair(self, rng):
        nouns = rng.sample([*self.synonyms], 2)
        translations = [rng.choice(self.synonyms[noun]) for noun in nouns]
        return self.source.format(*nouns), self.target.format(*translations)


LATIN = Languages(
    {
        word: (word.upper(), word.capitalize() + "on")
        for word in map("".join, itertools.product("bdfg", "aeiou", "kmp"))
    },
    "the {} sees a {}.",
    "der {} sieht ein {}.",
    vocab_size=420,
)
VOWELS = "\u064e\u064f\u0650\u064b\u064c"
# From right to left, with combining vowels, into a language without spaces, with characters of four
# bytes.
ARABIC_CHINESE = Languages(
    {
        word: (chr(0x4E00 + 9 * number) + chr(0x6E00 + 9 * number), chr(0x20000 + number) * 2)
        for number, word in enumerate(
            map("ال{}{}{}".format, *zip(*itertools.product("بدفج", VOWELS, "كمس")))
        )
    },
    "{} يرى {}.",
    "这{}看见那{}。",
    vocab_size=600,
)


class Trained(NamedTuple):
    test: list[str]
    glossary: dict[str, str]
    model_dir: pathlib.Path


@pytest.fixture(scope="module", params=[LATIN, ARABIC_CHINESE], ids=["latin", "arabic-chinese"])
def trained(request, tmp_path_factory):
    languages = request.param
    rng = random.Random(1)
    pairs = SentencePairs(*map(list, zip(*(languages.pair(rng) for _ in range(1500)))), "invented")
    test = [languages.pair(rng)[0] for _ in range(40)]
    glossary = {word: rng.choice(synonyms) for word, synonyms in languages.synonyms.items()}
    path = tmp_path_factory.mktemp("terms") / "model"
    sizes = [
        "model.num_layers=1",
        "model.d_model=64",
        "model.d_ff=128",
        "model.num_heads=2",
        "model.dropout=0",
    ]
    schedule = [
        "steps=500",
        "validate_every=500",
        "tokens_per_batch=1500",
        "precision=float32",
        "num_buckets=2",
    ]
    schedule += [
        "warmup_steps=60",
        "peak_learning_rate=0.006",
        "subword_samples=3",
        "label_smoothing=0",
    ]
    others = ["data.terms=0.6", f"tokenizer.vocab_size={languages.vocab_size}"]
    settings = [*sizes, *(f"training.{setting}" for setting in schedule), *others]
    keras.utils.set_random_seed(1)
    valid = SentencePairs(pairs.source[:20], pairs.target[:20], "valid")
    train(
        load_recipe("demo", [*settings, "decoding.beam_size=1"]),
        pairs,
        valid,
        path,
        make_strategy(),
    )
    return Trained(test, glossary, path)


def load(path, **decoding):
    return Translator.load(
        path, dataclasses.replace(ModelDir(path).read_config().decoding, **decoding)
    )


@pytest.mark.slow
def test_translations_follow_the_glossary(trained):
    test, glossary, model_dir = trained
    plain, asked = (load(model_dir, terms=terms)(test) for terms in (None, glossary))
    without, with_terms = count_terms(glossary, test, plain, asked)
    assert without.number == with_terms.number == 2 * len(test)
    assert without.share < 0.75 and with_terms.share > 0.9


@pytest.mark.slow
def test_the_log_counts_a_pass_and_does_not_warn_of_terms_in_bytes(tmp_path, capsys):
    rng = random.Random(1)
    # The source vocabulary has none of the characters of the translations.
    synonyms = {
        word: (chr(0x4E00 + number), chr(0x6E00 + number))
        for number, word in enumerate(LATIN.synonyms)
    }
    languages = Languages(synonyms, LATIN.source, ARABIC_CHINESE.target, vocab_size=400)
    pairs = list(zip(*(languages.pair(rng) for _ in range(600))))
    text = SentencePairs(*map(list, pairs), "invented")
    steps = []
    for copies in (1, 4):
        settings = ["training.steps=1", f"training.subword_samples={copies}", "data.terms=0.9"]
        settings += ["model.num_layers=1", "model.d_model=16", "model.d_ff=16"]
        settings += ["tokenizer.shared=false", "model.tie_embeddings=target"]
        settings += [
            f"tokenizer.vocab_size={languages.vocab_size}",
            "training.tokens_per_batch=300",
        ]
        recipe = load_recipe("demo", [*settings, "training.num_buckets=1"])
        train(recipe, text, text, tmp_path / str(copies), make_strategy())
        log = capsys.readouterr().err
        assert "training text: 6" in log or "training text: 2" in log
        assert "of the source tokens" not in log
        steps.append(int(re.search(r"one pass over the text takes ([\d,]+) step", log)[1]))
    assert steps[0] > 10 and abs(steps[1] - steps[0]) <= 2


@pytest.mark.slow
def test_a_saved_model_has_the_glossary(trained, tmp_path):
    test, glossary, model_dir = trained
    translator = load(model_dir, terms=glossary, placeholders=True)
    texts = [test[0], f"{{x}} {test[1]}", "", "\ufdd1"]
    path = export_servable(translator, tmp_path, signatures=["serving_default"], verified=False)
    ((translations, _),) = run_session(path, [texts])
    assert [text.decode() for text in translations] == translator(texts)
    pieces = translator.tokenize(texts)
    assert [row.count("{term}") for row in pieces] == [2, 2, 0, 0] and pieces[1][1] == "{ph1}"


@pytest.mark.slow
def test_commands_take_the_glossary_and_count_its_terms(trained, text, capsys):
    test, glossary, model_dir = trained
    source, terms = text("en", test), text("terms.tsv", [f"{a}\t{b}" for a, b in glossary.items()])
    files = ("--source", source, "--reference", text("de", test), "--terms", terms)
    expected = load(model_dir, terms=glossary)(test)
    (use,) = count_terms(glossary, test, expected)
    main(["evaluate", "--model-dir", str(model_dir), *files])
    assert capsys.readouterr().out.endswith(f"\nterms used: {use}\n")
    main(["compare", "--model-dir", str(model_dir), "--hypotheses", source, *files, "--json"])
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["terms"]["used"] for result in results] == [use.used, 0]


@pytest.mark.parametrize(
    "command", [["translate"], ["evaluate", "--source", "x", "--reference", "x"]]
)
def test_a_model_without_the_pieces_refuses_a_glossary(
    tiny_model_dir, text, fails, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    terms = ("--terms", text("terms.tsv", "dog\tHund\n"))
    text("x", "a\n")
    message = fails(*command, "--model-dir", tiny_model_dir, *terms)
    assert "error: a glossary needs a model that was trained with data.terms" in message
    assert "--tag and --terms are for --model-dir" in fails("serve", "--servable", tmp_path, *terms)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\t\n", "line 1 is not valid UTF-8"),
        (b" \n", "the file has no terms; each line must have a term, a tab and its translation"),
        (
            b"dog\tHund\n\ncat\n",
            "line 3: a line must have a term, a tab and its translation; received 'cat'",
        ),
        (b"dog\t \n", "line 1: a line must have"),
        (b"a\tb\tc\n", "line 1: a line must have"),
        (
            b"a\tb\n a\tc\n",
            "line 2: duplicate term 'a'; it is already in line 1",
        ),
    ],
)
def test_a_glossary_is_read_from_a_file(tmp_path, content, message):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffhot dog\t Würstchen \n".encode())
    assert read_glossary(path) == {"hot dog": "Würstchen"}
    path.write_bytes(content)
    with pytest.raises(InvalidFileError, match=f"terms.tsv[,:] {message}"):
        read_glossary(path)
