"""Comparisons of systems, against sacreBLEU's own command and by hand."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import sentence_pairs

from keras_transformer.commands import evaluate as command
from keras_transformer.commands.main import main
from keras_transformer.training.bleu import make_bleu
from keras_transformer.training.comparison import compare as compare_module
from keras_transformer.training.comparison.compare import Faults, System, compare, count_faults
from keras_transformer.training.comparison.report import write_report, write_reports
from keras_transformer.training.text.corpus import SentencePairs

SOURCES = [f"{number} dogs run in the park with {number + 1} cats ." for number in range(40)]
REFERENCES = [f"{number} Hunde laufen im Park mit {number + 1} Katzen ." for number in range(40)]
FIRST = [
    line.replace("laufen", "rennen") if number % 2 else line
    for number, line in enumerate(REFERENCES)
]
OTHER = [
    line.replace("Park", "Garten") if number % 5 else line for number, line in enumerate(REFERENCES)
]
PAIRS = SentencePairs(SOURCES, REFERENCES, "dogs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "option"), [("bootstrap", "--paired-bs"), ("randomization", "--paired-ar")]
)
def test_scores_intervals_and_p_values_are_those_of_sacrebleu_s_command(
    text, tmp_path, test, option
):
    text("reference", REFERENCES), text("first", FIRST), text("other", OTHER)
    arguments = [
        "reference",
        "-i",
        "first",
        "other",
        "-m",
        "bleu",
        "chrf",
        "-f",
        "text",
        option,
        "-w",
        "6",
    ]
    command = [sys.executable, "-m", "sacrebleu", *arguments]
    finished = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    table = finished.stdout[: finished.stdout.index("╛")]
    first, other = compare(
        [System("first", FIRST), System("other", OTHER)], PAIRS, test=test
    ).results
    scores = [*first.scores.values(), *other.scores.values()]
    intervals = r" \([\d.]+ ± ([\d.]+)\)" if test == "bootstrap" else "()"
    for score, theirs in zip(
        scores, re.findall(rf"(\d+\.\d{{6}}){intervals} [│ ]", table), strict=True
    ):
        assert (f"{score.score:.6f}", f"{score.interval:.6f}") == (
            theirs[0],
            theirs[1] or f"{score.interval:.6f}",
        )
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


@pytest.mark.parametrize(
    "other",
    [
        [*REFERENCES[:-1], REFERENCES[-1].replace("Park", "Garten")],
        [f"{line} " for line in REFERENCES],
    ],
)
def test_small_differences_are_not_significant(other):
    comparison = compare([System("a", REFERENCES), System("b", other)], PAIRS)
    assert not any(score.is_significant for score in comparison.results[1].scores.values())
    assert "not significant" in write_report(comparison, "text")


def test_the_sentences_that_differ_most_come_from_both_ends():
    better = FIRST[:1] + REFERENCES[1:2] + ["nichts"] + FIRST[3:]
    (actual,) = compare([System("a", FIRST), System("b", better)], PAIRS).differences.values()
    assert [(result.number, result.other) for result in actual] == [
        (2, REFERENCES[1]),
        (3, "nichts"),
    ]
    assert actual[0].gain > 0 > actual[1].gain
    assert (actual[0].source, actual[0].reference, actual[0].first) == (
        SOURCES[1],
        REFERENCES[1],
        FIRST[1],
    )


def test_the_sentences_with_the_lowest_scores_come_lowest_first():
    translations = REFERENCES[:2] + [""] + REFERENCES[3:5] + ["5 Hunde"] + REFERENCES[6:]
    comparison = compare([System("a", translations)], PAIRS, num_low_scores=2)
    lowest, second = comparison.low_scores["a"]
    assert lowest == (3, SOURCES[2], REFERENCES[2], "", 0.0)
    assert (second.number, second.translation) == (6, "5 Hunde") and 0 < second.score < 100
    report = write_report(comparison, "text")
    assert "Lowest chrF of a\n" in report and report.index("line 3") < report.index("line 6")
    assert "translation (0.0 chrF)" in report
    # The other translations are their references.
    assert len(compare([System("a", translations)], PAIRS).low_scores["a"]) == 2


def test_faults_by_hand():
    sources = ["1 and 22", "Berlin", "go go", "a b", "3"]
    references = ["1 und 22", "Berlin", "los los", "x y", "drei"]
    translations = ["1 und 2", "Berlin", "geh, geh", "a b", "ein Hund, ein Hund ⁇ "]
    # "geh, geh" repeats as its reference does, "Berlin" is a copy as it should be; 22 is one of two
    # numbers.
    faults = count_faults(sources, references, translations, make_bleu("13a"))
    assert faults == Faults(1 / 5, 1 / 5, 1 / 5, 1 / 2)


def test_repetitions_are_found_and_what_only_looks_like_one_is_none():
    repetitions = ["the the", "ab cd ab cd", "a b c d a b c d", "Ja! ja."]
    others = ["the then", "bathe the", "a b c a", "1 2 3", "a b c d e a b c d e"]
    actual = [
        count_faults([""], [""], [text], make_bleu("13a")).repetitions
        for text in repetitions + others
    ]
    assert actual == [1] * len(repetitions) + [0] * len(others)


def test_a_test_set_that_is_too_long_is_refused(text, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare_module, "MAX_SENTENCES", 39)
    text("short", SOURCES[:39]), text("long", SOURCES)
    both = ("--source", "short", "long", "--reference", "short", "long")
    message = fails("compare", *both, "--hypotheses", "short", "long")
    assert "long, long: a test set must have at most 39 sentences; received 40" in message


def test_references_without_a_word_have_scores():
    (result,) = compare(
        [System("a", ["hallo", "du"])], SentencePairs(["hello", "you"], ["", ""], "blank")
    ).results
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
    assert {row.count("|") for row in rows if "a&#124;b" in row} == {5, 9}
    assert "<script" not in markdown and "&#60;script&#62;" in markdown
    assert json.loads(write_report(comparison, "json"))["results"][0]["name"] == "a|b"


def two_comparisons(others=("b|2", "c")):
    """Comparisons on a test set where the other systems differ, and on one where they do not."""
    lines = [System("a", FIRST), *(System(name, OTHER) for name in others)]
    same = [System(name, list(REFERENCES)) for name in ("a", *others)]
    return {"news|1": compare(lines, PAIRS), "talks <2>": compare(same, PAIRS)}


def test_reports_of_several_test_sets_begin_with_the_scores_side_by_side():
    comparisons = two_comparisons()
    text = write_reports(comparisons, "text")
    first, other, _ = (
        [f"{score.score:.2f}" for score in result.scores.values()]
        for result in comparisons["news|1"].results
    )
    worse = [f"{other[0]}*", "/", f"{other[1]}*"]
    perfect = ["100.00", "/", "100.00"]
    rows = [line.split() for line in text.splitlines()[:5]]
    assert [rows[0], *rows[2:]] == [
        ["system", "news|1", "talks", "<2>"],
        ["a", first[0], "/", first[1], *perfect],
        ["b|2", *worse, *perfect],
        ["c", *worse, *perfect],
    ]
    # Then the report of each test set, with its name.
    sections = re.split(r"\n\n(news\|1\n======|talks <2>\n=========)\n\n", text)
    assert [section.strip() for section in sections[2::2]] == [
        write_report(comparison, "text").strip() for comparison in comparisons.values()
    ]


def test_reports_of_several_test_sets_have_a_section_for_each():
    comparisons = two_comparisons()
    markdown = write_reports(comparisons, "markdown")
    where = ["### Where b|2 differs most from a", "### Where c differs most from a"]
    headings = [line for line in markdown.splitlines() if line.startswith("#")]
    lowest = [f"### Lowest chrF of {name}" for name in ("a", "b|2", "c")]
    assert headings == ["## news|1", *lowest, *where, "## talks &#60;2&#62;", *where]
    assert markdown.splitlines()[0].count("|") == 4
    page = write_reports(comparisons, "html")
    cells = Cells()
    cells.feed(page)
    assert cells.open == []
    assert re.findall('<h2 dir="auto">(.*?)</h2>', page) == ["news|1", "talks &lt;2&gt;"]
    assert len(re.findall("<h1>", page)) == 1
    assert len(re.findall('<h3 dir="auto">', page)) == 7
    assert json.loads(write_reports(comparisons, "json")) == {
        "test_sets": [
            {"name": name, **json.loads(write_report(comparison, "json"))}
            for name, comparison in comparisons.items()
        ]
    }


def test_a_system_of_several_files_has_the_name_of_the_first_in_the_overview():
    comparisons = two_comparisons(["b"])
    renamed = [
        result._replace(name=f"{result.name}.2") for result in comparisons["talks <2>"].results[1:]
    ]
    comparisons["talks <2>"].results[1:] = renamed
    assert [
        line.split("  ")[0] for line in write_reports(comparisons, "text").splitlines()[2:4]
    ] == ["a", "b, …"]


@pytest.mark.slow
def test_the_command_compares_models_with_files(tiny_model_dir, known_pairs, tmp_path, capsys):
    options = [part for pair in known_pairs.items() for part in pair]
    copy = shutil.copy(known_pairs["--reference"], tmp_path / "copy")
    report = tmp_path / "report.html"
    files = ["--hypotheses", str(copy), "--output", str(report)]
    main(["compare", *options, "--model-dir", str(tiny_model_dir), *files, "--json"])
    first, other = json.loads(capsys.readouterr().out)["results"]
    assert first["sentences_per_second"] > 0 and other["sentences_per_second"] is None
    assert other["equals_first"] is True and other["scores"] == first["scores"]
    assert report.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_the_command_takes_several_test_sets(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    texts = {
        "en": SOURCES,
        "de": REFERENCES,
        "a": FIRST,
        "b": OTHER,
        "terms": ["dogs\tHunde", "park\tPark"],
    }
    for name, lines in texts.items():
        text(f"val.{name}", lines[:10]), text(f"test.{name}", lines[10:])
    options = ["--terms", "val.terms", "--json"]
    both = ["--source", "val.en", "test.en", "--reference", "val.de", "test.de"]
    main(
        [
            "compare",
            *both,
            "--hypotheses",
            "val.a",
            "test.a",
            "val.b",
            "test.b",
            *options,
            "--output",
            "report.md",
        ]
    )
    actual = json.loads(capsys.readouterr().out)["test_sets"]
    expected = []
    for name in ("val", "test"):
        single = [
            "--source",
            f"{name}.en",
            "--reference",
            f"{name}.de",
            "--hypotheses",
            f"{name}.a",
            f"{name}.b",
        ]
        main(["compare", *single, *options])
        expected.append({"name": f"{name}.en", **json.loads(capsys.readouterr().out)})
    assert actual == expected
    assert [result["terms"]["number"] for report in actual for result in report["results"]] == [
        20,
        20,
        60,
        60,
    ]
    headings = re.findall("^##.*", (tmp_path / "report.md").read_text("utf-8"), re.MULTILINE)
    names = [("val.en", "val.b", "val.a"), ("test.en", "test.b", "test.a")]
    assert headings == [
        line
        for source, b, a in names
        for line in (
            f"## {source}",
            f"### Lowest chrF of {a}",
            f"### Lowest chrF of {b}",
            f"### Where {b} differs most from {a}",
        )
    ]


def test_compare_with_pairs_equals_compare_with_source_and_reference(
    text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text("source", SOURCES), text("reference", REFERENCES), text("a", FIRST)
    text("pairs", [f"{source}\t{target}" for source, target in zip(SOURCES, REFERENCES)])
    reports = []
    for given in (["--source", "source", "--reference", "reference"], ["--pairs", "pairs"]):
        main(["compare", *given, "--hypotheses", "a", "--json"])
        reports.append(json.loads(capsys.readouterr().out)["results"])
    assert reports[0] == reports[1]


def test_what_a_sentence_holds_ends_no_line_and_does_not_reach_the_terminal(
    text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    texts = {"en": "a\u2028b", "de": "x\x85y", "a": "x\u2028[2Jy", "b": "x\x00\x1b[2J"}
    for name, line in texts.items():
        text(name, [line])
    options = ["compare", "--source", "en", "--reference", "de", "--hypotheses", "a", "b"]
    main([*options, "--json"])
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed)["results"][1]["name"] == "b"
    main(options)
    assert not re.search("[\x00\x1b\x85]", capsys.readouterr().out)


@pytest.mark.slow
def test_a_text_that_comes_through_a_pipe_is_read_once(text, tmp_path):
    text("lines", FIRST)
    files = "--source <(cat lines) --reference <(cat lines) --hypotheses <(cat lines) <(cat lines)"
    terms = "--terms <(printf 'dogs\\tHunde\\n')"
    command = f"{sys.executable} -m keras_transformer compare {files} {terms} --json"
    finished = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["results"][1]["equals_first"] is True


def test_the_name_of_a_file_need_not_be_utf_8(text, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"fran\xe7ais")
    text("source", SOURCES), text(name, REFERENCES)
    options = [
        "--source",
        "source",
        "--reference",
        name,
        "--hypotheses",
        name,
        "--output",
        "report.md",
    ]
    main(["compare", *options])
    assert (tmp_path / "report.md").read_text("utf-8").splitlines()[2].startswith("| fran?ais ")
    assert b"\nfran\xe7ais " in capfdbinary.readouterr().out


@pytest.mark.slow
def test_a_model_is_loaded_once_for_all_test_sets(
    tiny_model_dir, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for number, (source, target) in enumerate(sentence_pairs()[:2]):
        text(f"{number}.en", [source]), text(f"{number}.de", [target])
    loaded = []

    def load(*arguments, **options):
        loaded.append(arguments[0].model_dir.path)
        return load_translator(*arguments, **options)

    load_translator = command.load_translator
    monkeypatch.setattr(command, "load_translator", load)
    files = [
        "--source",
        "0.en",
        "1.en",
        "--reference",
        "0.de",
        "1.de",
        "--hypotheses",
        "0.en",
        "1.de",
    ]
    main(
        ["compare", *files, "--model-dir", str(tiny_model_dir), "--precision", "float32", "--json"]
    )
    assert loaded == [tiny_model_dir]
    reports = json.loads(capsys.readouterr().out)["test_sets"]
    right = [
        [result["scores"]["BLEU"]["score"] > 99 for result in report["results"]]
        for report in reports
    ]
    assert right == [[True, False], [True, True]]
    assert all(report["results"][0]["sentences_per_second"] > 0 for report in reports)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to compare: give --model-dir, --hypotheses or both"),
        (
            ["--hypotheses", "other", "other"],
            "systems must be different; received other twice",
        ),
        (
            ["--hypotheses", "nowhere"],
            "--hypotheses must be a file that exists; received --hypotheses='nowhere'",
        ),
        (
            ["--hypotheses", "other", "--output", "report.pdf"],
            "--output must be a path that ends in .html or .md",
        ),
        (["--model-dir", "nowhere"], "nowhere: not a model directory"),
        (
            ["--source", "short", "--hypotheses", "other", "short"],
            "must have the same number of files; received 2",
        ),
        (
            [
                "--source",
                "short",
                "--reference",
                "short",
                "--hypotheses",
                "other",
                "short",
                "reference",
            ],
            "--hypotheses must be given, for each system, a file for each test set: a multiple of "
            "2 files; received 3",
        ),
        (
            ["--source", "short", "--reference", "short", "--hypotheses", "short", "other"],
            "must have the same number of lines: source has 40, short has 1",
        ),
        (
            ["--source", "source", "--reference", "other", "--hypotheses", "other", "short"],
            "received source twice",
        ),
    ],
)
def test_a_mistake_is_one_line(text, fails, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (
        text("source", SOURCES),
        text("reference", REFERENCES),
        text("other", OTHER),
        text("short", OTHER[:1]),
    )
    assert message in fails("compare", "--source", "source", "--reference", "reference", *options)
