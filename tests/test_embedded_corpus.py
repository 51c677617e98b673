"""The sentences that the embedded corpus generates, and its promises about splits and seeds."""

import os
import re
import subprocess
import sys

import pytest

from keras_transformer.training import embedded_corpus
from examples.corpus import generate, write
from keras_transformer.training.embedded_corpus.determiners import PRONOUNS
from keras_transformer.training.embedded_corpus.generator import WEIGHTS, Pick

NAMES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")]


@pytest.fixture(scope="module")
def pairs():
    return generate(12_000, seed=3)


def test_a_read_present_that_sounds_like_the_past_is_not_written(pairs):
    present = re.compile(r"\b(lese|lesen|liest) ")
    for english, german in pairs:
        if re.match(r"(I|We|You|They) read ", english):
            assert not present.search(german), (english, german)


@pytest.mark.parametrize(
    ("conjunction", "german"),
    [
        ("because", "weil"),
        ("although", "obwohl"),
        ("before", "bevor"),
        ("after", "nachdem"),
        ("if", "wenn"),
    ],
)
def test_conjunctions_translate_one_to_one(pairs, conjunction, german):
    starting = [
        (e, d) for e, d in pairs if e.startswith(conjunction.capitalize() + " ") and ", " in e
    ]
    starting = [(e, d) for e, d in starting if not e.startswith("Because of")]
    assert starting
    assert all(d.startswith(german.capitalize() + " ") for _, d in starting)


def test_when_is_als_in_the_past_and_wenn_in_the_present(pairs):
    german = [d.split()[0] for e, d in pairs if e.startswith("When ") and e.endswith(".")]
    assert {"Als", "Wenn"} == set(german)


@pytest.mark.parametrize("key", ["it.m", "it.f", "it.n"])
def test_it_takes_the_gender_of_its_antecedent(pairs, key):
    """The N is ..., but it is ...: the German pronoun has the gender of the article of N."""
    article = {"it.m": "Der|Dieser", "it.f": "Die|Diese", "it.n": "Das|Dieses"}[key]
    pronoun = PRONOUNS[key][1][0]
    german = [
        d for e, d in pairs if re.search(r", but it (is|was) ", e) and re.match(rf"({article}) ", d)
    ]
    assert german
    assert all(re.search(rf", aber {pronoun} (ist|war) ", d) for d in german)


def test_quotation_marks_and_commas_are_german(pairs):
    quoted = [(e, d) for e, d in pairs if '"' in e]
    assert len(quoted) > 100
    for english, german in quoted:
        assert english.count('"') == 2
        assert (german.count("„"), german.count("“"), german.count('"')) == (1, 1, 0)
        if ',"' in english:
            assert "“, " in german
        if '?"' in english:
            assert "?“, " in german
        if english.endswith('."'):
            assert ": „" in german and german.endswith(".“")


# The promises


class Narrow(Pick):
    """Chooses among two neighbouring options only, so that sentences meet again."""

    def __init__(self, seed):
        super().__init__(seed)
        self._first = seed

    def __call__(self, options):
        return options[(self._first + self.number(0, 1)) % len(options)]


def test_german_is_a_function_of_english(pairs):
    translation = dict(pairs)
    repeated = 0
    for make in WEIGHTS:
        for seed in range(10):
            pick = Narrow(seed)
            for _ in range(80):
                english, german = make(pick)
                repeated += english in translation
                assert translation.setdefault(english, german) == german, english
    assert repeated > 1_000  # or the claim above says little


def test_no_sentence_occurs_twice_in_either_language(pairs):
    english, german = zip(*pairs)
    assert len(set(english)) == len(set(german)) == len(pairs) == 12_000


def test_sentences_are_clean_single_lines_of_moderate_length(pairs):
    lengths = []
    for english, german in pairs:
        lengths.append(len(english.split()))
        for text in (english, german):
            assert text == " ".join(text.split())
            assert re.search(r"[.?!][\"“]?$", text), text
            assert not re.search(r",[.,?!]|\.\.| [,.?!]", text), text
            assert text.lstrip('"„')[0].isupper() or text[0].isdigit(), text
            assert text.isprintable()
    assert min(lengths) == 4
    assert max(lengths) == 22
    assert 9.5 < sum(lengths) / len(lengths) < 12


def test_the_english_side_is_ascii_and_the_german_side_uses_its_own_letters(pairs):
    allowed = set("$€")
    assert all(ord(c) < 128 or c in allowed or c in "üöä" for e, _ in pairs for c in e)
    german = "".join(d for _, d in pairs)
    assert set("äöüßÄÜ„“€") <= set(german)


def test_one_verb_appears_whole_in_two_parts_and_with_zu(pairs):
    german = " ".join(d for _, d in pairs)
    assert re.search(r"\brief [^.,]* an[.,]", german)
    assert " angerufen" in german and " anzurufen" in german and " anrufen" in german


def test_a_longer_corpus_begins_with_the_shorter_one(pairs):
    assert generate(500, seed=3) == pairs[:500]


def test_another_seed_gives_other_sentences(pairs):
    other = {english for english, _ in generate(500, seed=9)}
    assert len(other & {english for english, _ in pairs}) < 100


def test_the_command_writes_the_same_sentences_whatever_the_hash_seed(tmp_path):
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", embedded_corpus.__name__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in NAMES]
    lines = [(tmp_path / name).read_text(encoding="utf-8").splitlines() for name in NAMES]
    assert [len(column) for column in lines] == [30_000] * 2 + [500] * 2 + [1_000] * 2
    # This process hashes strings by a seed of its own.
    assert list(zip(lines[0][:3_000], lines[1][:3_000])) == generate(3_000)


def test_write_makes_disjoint_line_aligned_splits(tmp_path):
    paths = write(tmp_path / "new", train_pairs=400, valid_pairs=30, test_pairs=50, seed=1)
    assert [path.name for path in paths] == NAMES
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(p.name for p in paths)
    lines = {}
    for path in paths:
        data = path.read_bytes()
        assert data.endswith(b"\n") and b"\r" not in data
        lines[path.name] = data.decode("utf-8").splitlines()
    assert [len(lines[path.name]) for path in paths] == [400, 400, 30, 30, 50, 50]
    for language in ("en", "de"):
        together = [
            line for path in paths if path.suffix[1:] == language for line in lines[path.name]
        ]
        assert len(set(together)) == 480
    written = [
        pair
        for split in ("train", "valid", "test")
        for pair in zip(lines[f"{split}.en"], lines[f"{split}.de"])
    ]
    assert written == generate(480, seed=1)


def test_a_negative_number_of_pairs_is_refused():
    with pytest.raises(ValueError, match="num_pairs must not be negative, received -1"):
        generate(-1)
