"""The command `check-data`: statistics of a text, and what filters remove from it."""

import json
import subprocess

import numpy as np
import pytest
from fresh_process import run_python

from keras_transformer.commands.main import main
from keras_transformer.text import Corpus, Shard
from keras_transformer.training.text.check_data import check_data

PAIRS = [
    ("a dog runs", "ein Hund rennt"),
    ("a cat", "a cat"),
    ("", "leer"),
    ("a dog runs", "ein Hund rennt"),
    ("hi", "ein Wort, und sehr viele mehr"),
    ("a dog runs", "ein Hund rennt"),
    ("медведь", "der Bär"),
    ("a cat", "eine Katze"),
]


@pytest.fixture
def files(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text("1.tsv", ["\t".join(pair) for pair in PAIRS[:5]])
    text("2.tsv", ["\t".join(pair) for pair in PAIRS[5:]])
    return ("--pairs", "?.tsv")


def report(capsys, *arguments):
    main(["check-data", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def left_out(report):
    return {item["filter"]: (item["pairs"], item["examples"]) for item in report["left_out"]}


def test_without_filters_the_report_says_what_recommended_ones_would_leave_out(files, capsys):
    training = report(capsys, *files)["training"]
    assert (training["pairs"], training["kept"], training["filters"]) == (8, 3, "recommended")
    assert left_out(training) == {
        "empty": (1, ["1.tsv:3"]),
        "max_characters": (0, []),
        "max_length_ratio": (1, ["1.tsv:5"]),
        "remove_copies": (1, ["1.tsv:2"]),
        "remove_duplicates": (2, ["1.tsv:4", "2.tsv:1"]),
    }
    assert training["empty"] == {"source": 1, "target": 0}


def test_pairs_whose_spans_differ_are_counted(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = ["%1 of {a}\t{a} 的 %1", "%1\t%2", "no\t否", "#x# #x#\t#x#", "<b>\tnichts"]
    text("a.tsv", pairs)
    settings = ["decoding.placeholders=true", r'decoding.placeholder_patterns=["%[0-9]", "#x#"]']
    actual = report(capsys, "--pairs", "a.tsv", "--set", *settings)["training"]["placeholders"]
    assert actual == {"pairs": 4, "different": 3, "examples": ["a.tsv:2", "a.tsv:4"]}
    main(["check-data", "--pairs", "a.tsv", "--set", *settings])
    line = "placeholders: 4 pairs with spans; not the same on both sides: 3  a.tsv:2  a.tsv:4"
    assert line in capsys.readouterr().out.splitlines()
    assert "placeholders" not in report(capsys, "--pairs", "a.tsv")["training"]


def test_filters_of_the_configuration_are_the_only_ones_where_some_are_on(files, capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("data: {source_script: Latin, max_characters: 10}")
    training = report(capsys, *files, "--config", "mine.yaml", "--set", "data.max_characters=20")[
        "training"
    ]
    assert (training["kept"], training["filters"]) == (5, "configured")
    assert left_out(training) == {
        "empty": (1, ["1.tsv:3"]),
        "max_characters": (1, ["1.tsv:5"]),
        "source_script": (1, ["2.tsv:2"]),
    }


def test_the_report_for_people_has_the_same_figures(files, capsys):
    main(
        [
            "check-data",
            *files,
            "2.tsv",
            "--valid-pairs",
            "1.tsv",
            "--set",
            "data.remove_duplicates=true",
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "training text: ?.tsv and 1 more: 11 sentence pairs",
        "  ?.tsv: 8",
        "  2.tsv: 3",
        "  characters  mean  1%  50%  90%  99%  max",
        "  source       6.5   0    7   10   10   10",
        "  target      11.6   4   10   14   29   29",
        "empty: 1 of source, 0 of target",
        "sentences of source in several scripts:",
        "  Latin     8  72.73%",
        "  Cyrillic  2  18.18%  2.tsv:2  2.tsv:2",
        "removed by the filters of the configuration:",
        "  empty                        1   9.09%  1.tsv:3",
        "  data.remove_duplicates=true  5  45.45%  1.tsv:4  2.tsv:1",
        "  kept                         5  45.45%",
        "validation text: 1.tsv: 5 sentence pairs",
        "  characters  mean  1%  50%  90%  99%  max",
        "  source       5.4   0    5   10   10   10",
        "  target      13.2   4   14   29   29   29",
        "empty: 1 of source, 0 of target",
        "no filter is on; the recommended ones would remove:",
        "  empty                        1  20.00%  1.tsv:3",
        "  data.max_characters=1000     0   0.00%",
        "  data.max_length_ratio=9.0    1  20.00%  1.tsv:5",
        "  data.remove_copies=true      1  20.00%  1.tsv:2",
        "  data.remove_duplicates=true  1  20.00%  1.tsv:4",
        "  kept                         1  20.00%",
    ]


def test_the_report_says_how_many_pairs_are_held_out(files, capsys):
    assert report(capsys, *files, "--valid-size", "3")["training"]["held_out"] == 3
    main(["check-data", *files, "--valid-size", "3"])
    assert capsys.readouterr().out.splitlines()[-1] == "held out to validate on: 3"


def test_lengths_are_those_of_numpy():
    lengths = np.random.default_rng(5).geometric(0.02, 2000)
    sentences = ["x" * length for length in lengths]
    corpus = Corpus("text", [Shard(sentences, sentences, "text", "text")])
    described = check_data([corpus])["characters"]["source"]
    assert (
        described["mean"] == pytest.approx(lengths.mean(), abs=0.005)
        and described["max"] == lengths.max()
    )
    expected = np.percentile(lengths, [1, 50, 90, 99], method="inverted_cdf")
    assert list(described["percentiles"].values()) == expected.tolist()


def test_a_text_is_checked_without_tensorflow(files):
    code = """
import sys
for name in ("tensorflow", "keras", "tensorflow_text"):
    sys.modules[name] = None
from keras_transformer.commands.main import main
main(["check-data", *sys.argv[1:]])
"""
    report = run_python("-c", code, *files)
    assert "8 sentence pairs" in report
    assert run_python("-c", code, *files, stderr=subprocess.STDOUT) == report


def test_the_report_says_what_normal_forms_change_and_which_scripts_there_are(capsys, text):
    sources = ["e\u0301a", "\u00e9a", "ok", "\uff01a", "12", "Ελένη"]
    targets = ["犬が走る", "東京都庁", "犬は犬", "A dog", "犬と猫", "狗"]
    files = ("--source", text("source", sources), "--target", text("target", targets))
    training = report(capsys, *files)["training"]
    assert training["normalization"] == {
        "source": {"nfc": 1, "nfkc": 2},
        "target": {"nfc": 0, "nfkc": 0},
    }
    scripts = {
        side: [(item["script"], item["sentences"]) for item in items]
        for side, items in training["scripts"].items()
    }
    assert scripts == {
        "source": [("Latn", 4), ("Grek", 1)],
        # Sentences of kanji only are Japanese among others with kana.
        "target": [("Jpan", 5), ("Latn", 1)],
    }
    (latin,) = (item for item in training["scripts"]["target"] if item["script"] == "Latn")
    assert latin["examples"] == [f"{files[3]}:4"]
    main(["check-data", *files])
    lines = capsys.readouterr().out.splitlines()
    assert "NFKC would change: 2 of source, 0 of target (data.normalize=nfkc)" in lines


def test_the_report_counts_simplified_and_traditional_chinese(capsys, text):
    targets = ["这是马。", "這是馬。", "你好。", "这个來了。", "说吧。"]
    files = ("--source", text("source", [*"abcde"]), "--target", text("target", targets))
    chinese = report(capsys, *files)["training"]["chinese"]
    assert chinese["source"]["simplified"] == {"sentences": 0, "examples": []}
    assert chinese["target"] == {
        "simplified": {"sentences": 3, "examples": [f"{files[3]}:1", f"{files[3]}:4"]},
        "traditional": {"sentences": 2, "examples": [f"{files[3]}:2", f"{files[3]}:4"]},
    }
    main(["check-data", *files])
    assert (
        f"Chinese sentences of target: 3 simplified, 2 traditional  {files[3]}:2  {files[3]}:4 "
        "(OpenCC converts them)"
    ) in capsys.readouterr().out.splitlines()


def test_sentences_in_another_language_are_left_out(capsys, text):
    german = "Der Hund rennt mit einem Ball durch den Park."
    targets = [german, "The dog runs through the park with a ball.", "Hm.", "这是一匹马。"]
    files = ("--source", text("source", [*"abcd"]), "--target", text("target", targets))
    training = report(capsys, *files, "--set", "data.target_language=de")["training"]
    assert left_out(training)["target_language"] == (2, [f"{files[1]}:2", f"{files[1]}:4"])
    training = report(capsys, *files, "--set", "data.target_language=en")["training"]
    assert left_out(training)["target_language"] == (2, [f"{files[1]}:1", f"{files[1]}:4"])


def test_the_language_must_be_one_that_the_identifier_knows(fails, text):
    files = ("--source", text("source", "a"), "--target", text("target", "b"))
    line = fails("check-data", *files, "--set", "data.source_language=xx")
    assert line.endswith(
        "data.source_language must be the code of a language that py3langid knows, such as de, zh "
        "or yue; received data.source_language='xx'"
    )
    line = fails("check-data", *files, "--set", "data.source_language=German")
    assert (
        "the code of a language, such as de, zh or yue; received data.source_language='German'"
        in line
    )
