"""Pairs are left out by their scores: in files of several corpora, shards and chunks, and what is
wrong with them."""

import gzip
import random

import pytest

from keras_transformer.commands.main import main
from keras_transformer.config import DataConfig
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.text import open_corpora
from keras_transformer.training.text import corpus
from keras_transformer.training.text.corpus import read_text


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, lines):
    with (gzip.open if name.endswith(".gz") else open)(name, "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def kept(paths, **settings):
    return list(read_text(open_corpora(pairs=paths), DataConfig(**settings))[0].source)


def test_pairs_with_a_lower_score_are_left_out_of_each_corpus(monkeypatch):
    monkeypatch.setattr(corpus, "_PAIRS_AT_A_TIME", 7)
    rng = random.Random(4)
    # Two shards, a corpus without scores, and one with scores of its own.
    scores = {
        name: [round(rng.uniform(-5, 5), 3) for _ in range(20)] for name in ("1", "2", "last")
    }
    scores["last"][3] = -1.5
    for name, numbers in scores.items():
        write(f"web-{name}.tsv", [f"{name} {place}\tx" for place in range(20)])
        write(f"{name}.scores.gz", numbers)
    write("no-scores.tsv", ["good\tx"])
    given = dict(scores=["?.scores.gz", None, "last.scores.gz"], min_score=-1.5)
    expected = {
        name: [f"{name} {place}" for place, score in enumerate(numbers) if score >= -1.5]
        for name, numbers in scores.items()
    }
    assert kept(["web-?.tsv", "no-scores.tsv", "web-last.tsv"], **given) == [
        *expected["1"],
        *expected["2"],
        "good",
        *expected["last"],
    ]
    assert "last 3" in expected["last"] and 5 < sum(map(len, expected.values())) < 55


def test_scores_belong_to_their_lines_whatever_other_filters_leave_out():
    write("text.tsv", ["\tx", "a copy\ta copy", "a\tb", "c\td", "a\tb"])
    write("scores", [0.9, "1e0", 0.1, " .5", 0.7])
    settings = dict(remove_copies=True, remove_duplicates=True)
    # The first "a" counts as a duplicate of nothing, since its score leaves it out.
    assert kept(["text.tsv"], scores=["scores"], min_score=0.5, **settings) == ["c", "a"]


def test_check_data_counts_what_scores_leave_out(capsys):
    write("text.tsv", ["a\tb", "c\td", "e\tf"])
    write("scores", [0.9, 0.1, 0.2])
    main(
        ["check-data", "--pairs", "text.tsv", "--set", "data.scores=[scores]", "data.min_score=0.2"]
    )
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "  empty               0   0.00%",
        "  data.min_score=0.2  1  33.33%  text.tsv:2",
        "  kept                2  66.67%",
    ]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1, 2], "scores: there must be a line for each sentence pair of text.tsv; it has 2"),
        (
            [1, 2, 3, 4],
            "scores: there must be a line for each sentence pair of text.tsv; it has more than 3",
        ),
        ([1, "two", 3], "scores: line 2 must be a number; received 'two'"),
        ([1, 2, "nan"], "scores: line 3 must be a number; received 'nan'"),
        ([1, "", 3], "scores: line 2 must be a number; received ''"),
    ],
)
def test_a_file_without_a_number_for_each_pair_is_an_error(scores, message):
    write("text.tsv", ["a\tb", "c\td", "e\tf"])
    write("scores", scores)
    with pytest.raises(InvalidFileError) as error:
        kept(["text.tsv"], scores=["scores"], min_score=0)
    assert str(error.value) == message


def test_mistakes_in_the_settings_are_one_line(fails):
    write("text.tsv", ["a\tb"])
    for settings, message in (
        (
            ["data.scores=[x, y]", "data.min_score=0"],
            "data.scores must be a list of one file or null for each corpus",
        ),
        (["data.scores=[missing]", "data.min_score=0"], "missing: No such file or directory"),
        (
            ["data.min_score=0"],
            "data.scores must be given together with data.min_score; received data.scores=None",
        ),
        (["data.scores=[scores]"], "data.min_score must be given together with data.scores"),
        (
            ["data.scores=scores", "data.min_score=0"],
            "data.scores must be a list of one or more values",
        ),
    ):
        assert message in fails("check-data", "--pairs", "text.tsv", "--set", *settings)
    with pytest.raises(
        ConfigError, match=r"^data.scores\[0\] must be a text that is not empty; received"
    ):
        DataConfig(scores=[""], min_score=0)
