"""Comparisons of systems, against sacreBLEU's own command and by hand."""

import html.parser
import json
import pathlib
import re
import subprocess
import sys

import pytest
from keras_transformer.training.comparison import compare as compare_module
from keras_transformer.training.comparison.compare import System, compare
from keras_transformer.training.comparison.faults import Faults, count_faults
from keras_transformer.training.comparison.report import write_report
from keras_transformer.training.text.corpus import SentencePairs

from keras_transformer.commands.main import main
from keras_transformer.errors import ConfigError

SOURCES = [f"{number} dogs run in the park with {number + 1} cats ." for number in range(40)]
REFERENCES = [f"{number} Hunde laufen im Park mit {number + 1} Katzen ." for number in range(40)]
FIRST = [line.replace("laufen", "rennen") if number % 2 else line for number, line in enumerate(REFERENCES)]
OTHER = [line.replace("Park", "Garten") if number % 5 else line for number, line in enumerate(REFERENCES)]
PAIRS = SentencePairs(SOURCES, REFERENCES, "dogs")


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "--paired-bs"), ("randomization", "--paired-ar")])
def test_scores_intervals_and_p_values_are_those_of_sacrebleu_s_command(tmp_path, test, option):
    for name, lines in (("reference", REFERENCES), ("first", FIRST), ("other", OTHER)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "reference",
        "-i",
        "first",
        "other",
        "-m",
        "bleu",
        "chrf",
        "-f",
        "text",
    ]
    finished = subprocess.run(
        [*command, option, "-w", "6"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    table = finished.stdout[: finished.stdout.index("╛")]
    first, other = compare([System("first", FIRST), System("other", OTHER)], PAIRS, test=test).results
    scores = [*first.scores.values(), *other.scores.values()]
    intervals = r" \([\d.]+ ± ([\d.]+)\)" if test == "bootstrap" else "()"
    for score, theirs in zip(scores, re.findall(rf"(\d+\.\d{{6}}){intervals} [│ ]", table), strict=True):
        assert (f"{score.score:.6f}", f"{score.interval:.6f}") == (theirs[0], theirs[1] or f"{score.interval:.6f}")
    p_values = [f"{score.p_value:.4f}" for score in other.scores.values()]
    assert p_values == re.findall(r"\(p = ([\d.]+)\)", table)


def test_systems_with_the_same_translations_are_equal():
    comparison = compare([System("a", FIRST), System("b", list(FIRST)), System("c", OTHER)], PAIRS)
    first, same, other = comparison.results
    assert (first.equals_first, same.equals_first, other.equals_first) == (None, True, False)
    assert all(score.p_value is None and score.gain == 0 for score in same.scores.values())
    assert all(score.p_value is not None for score in other.scores.values())
    assert comparison.differences["b"] == []
    assert "the same translations" in write_report(comparison, "text")


def test_small_differences_are_not_significant():
    other = [*REFERENCES[:-1], REFERENCES[-1].replace("Park", "Garten")]
    comparison = compare([System("a", REFERENCES), System("b", other)], PAIRS)
    assert not any(score.is_significant for score in comparison.results[1].scores.values())
    assert "not significant" in write_report(comparison, "text")


def test_the_sentences_that_differ_most_come_from_both_ends():
    better = FIRST[:1] + REFERENCES[1:2] + ["nichts"] + FIRST[3:]
    (found,) = compare([System("a", FIRST), System("b", better)], PAIRS).differences.values()
    assert [(each.number, each.other) for each in found] == [(2, REFERENCES[1]), (3, "nichts")]
    assert found[0].gain > 0 > found[1].gain
    assert (found[0].source, found[0].reference, found[0].first) == (SOURCES[1], REFERENCES[1], FIRST[1])


def test_faults_by_hand():
    sources = ["1 and 22", "Berlin", "go go", "a b", "3"]
    references = ["1 und 22", "Berlin", "los los", "x y", "drei"]
    translations = ["1 und 2", "Berlin", "geh, geh", "a b", "ein Hund, ein Hund ⁇ "]
    # "geh, geh" repeats as its reference does, "Berlin" is a copy as it should be; 22 is one of two numbers.
    assert count_faults(sources, references, translations) == Faults(1 / 5, 1 / 5, 1 / 5, 1 / 2)


@pytest.mark.parametrize("text", ["the the", "ab cd ab cd", "a b c d a b c d", "Ja! ja."])
def test_repetitions_are_found(text):
    assert count_faults([""], [""], [text]).repetitions == 1


@pytest.mark.parametrize("text", ["the then", "bathe the", "a b c a", "1 2 3", "a b c d e a b c d e"])
def test_what_only_looks_like_a_repetition_is_none(text):
    assert count_faults([""], [""], [text]).repetitions == 0


def test_a_test_set_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(compare_module, "MAX_SENTENCES", 39)
    with pytest.raises(ConfigError, match="at most 39 sentences; received 40"):
        compare([System("a", FIRST)], PAIRS)


def test_references_without_a_word_have_scores():
    (result,) = compare([System("a", ["hallo", "du"])], SentencePairs(["hello", "you"], ["", ""], "blank")).results
    assert result.scores["BLEU"].score == 0 and result.length_ratio == 2


class Cells(html.parser.HTMLParser):
    """Collects the text of a page, and its tags."""

    def __init__(self):
        super().__init__()
        self.text, self.open, self.tags = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data.strip())


def test_reports_keep_the_characters_of_every_text():
    hostile = ["<script>alert('|')</script> & so", *FIRST[1:]]
    comparison = compare([System("a|b", hostile), System("<i>", REFERENCES)], PAIRS)
    page = Cells()
    page.feed(write_report(comparison, "html"))
    assert page.open == [] and "script" not in page.tags and "i" not in page.tags
    assert hostile[0] in page.text
    assert not re.search("https?://|src=|href=", write_report(comparison, "html"))
    markdown = write_report(comparison, "markdown")
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows if "a\\|b" in row} == {5, 9}
    assert json.loads(write_report(comparison, "json"))["results"][0]["name"] == "a|b"


def write(path: pathlib.Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "keras_transformer", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_compares_models_with_files(model_dirs, tmp_path, capsys):
    source = write(tmp_path / "source", ["Anna sees a tree.", "the dog buys two apples."])
    # What the model answers.
    reference = write(tmp_path / "reference", ["Anna hat einen Baum, sieht!", "der Hund hat zwei Äpfel, kauft!"])
    copy = write(tmp_path / "copy", pathlib.Path(reference).read_text("utf-8").splitlines())
    report = tmp_path / "report.html"
    options = ["--source", source, "--reference", reference, "--model-dir", str(model_dirs["tiny"])]
    main(["compare", *options, "--hypotheses", copy, "--output", str(report), "--json"])
    first, other = json.loads(capsys.readouterr().out)["results"]
    assert first["sentences_per_second"] > 0 and other["sentences_per_second"] is None
    assert other["equals_first"] is True and other["scores"] == first["scores"]
    assert report.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to compare: give --model-dir, --hypotheses or both"),
        (["--hypotheses", "other", "other"], "each system must be given once; received other twice"),
        (["--hypotheses", "short"], "must have the same number of lines: source has 40, short has 1"),
        (["--hypotheses", "nowhere"], "--hypotheses must be a file that exists; received --hypotheses='nowhere'"),
        (["--hypotheses", "other", "--output", "report.pdf"], "--output must be a path that ends in .html or .md"),
        (["--model-dir", "nowhere"], "nowhere: not a model directory"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    files = {"source": SOURCES, "reference": REFERENCES, "other": OTHER, "short": OTHER[:1]}
    for name, lines in files.items():
        write(tmp_path / name, lines)
    finished = run("--source", "source", "--reference", "reference", *options)
    assert finished.returncode == 1 and finished.stdout == ""
    assert finished.stderr.count("\n") == 1 and message in finished.stderr
