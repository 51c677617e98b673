"""Pages give one answer to each question of docs/figures.yaml, whose first lines describe its entries.

Pages in docs/notes keep the measurements of a day under their own conditions, and are not compared.
"""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
QUESTIONS = yaml.safe_load((ROOT / "docs" / "figures.yaml").read_text(encoding="utf-8"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "training" / "recipes").rglob("*.yaml")),
]
NUMBER = r"\d+(?:\.\d+)?"
# The figures of a passage: "0.7 to 3.7 times" and "0.88, 0.64 and 0.96 times" are one figure each.
UNITS = {
    "times": rf"{NUMBER}(?:(?:; |, | and | or | to ){NUMBER})*(?= times| ?×|x\b)|\btwice\b",
    "million": rf"{NUMBER}(?= million)",
    "BLEU": r"(?<![\d.±-])(?<!± )[2-6]\d\.\d+(?!\d|\.\d|%)",
}


def passages(text):
    """Yields the context and the text of each paragraph, list item, line of code and table cell.

    The context of a cell is its row and the heading of its column; otherwise, context and text are
    the same.
    """
    for block in re.split(
        r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\s*```)|^#+ .*$", text, flags=re.M
    ):
        lines = [line.strip() for line in block.splitlines()]
        if lines and lines[0].startswith("|"):
            heading, *rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in lines)
            for row in rows:
                for column, cell in zip(heading, row):
                    yield f"{column} | {' | '.join(row)}", cell
        elif lines and lines[0].startswith("```"):
            yield from ((line, line) for line in lines[1:])
        else:
            yield (" ".join(lines),) * 2


def numbers(text):
    return [float(number) for number in re.findall(NUMBER, text)]


def is_rounded(given, exact):
    """Whether a page may give "1.4" or "1.39" for the answer "1.39"."""
    pairs = list(zip(re.findall(NUMBER, given), numbers(exact)))
    return len(numbers(given)) == len(numbers(exact)) and all(
        float(text) == round(number, len(text.partition(".")[2])) for text, number in pairs
    )


def given_answers(question, text):
    """Yields the figures with which a page answers a question."""
    for context, passage in passages(text):
        if not all(re.search(about, context, re.IGNORECASE) for about in question["about"]):
            continue
        if "unless" in question and re.search(question["unless"], context, re.IGNORECASE):
            continue
        yield from (figure[0] for figure in re.finditer(UNITS[question["unit"]], passage))


def text_of(page):
    text = page.read_text(encoding="utf-8")
    return re.sub("^# ", "", text, flags=re.M) if page.suffix == ".yaml" else text


def answers_on_pages(question):
    """Returns the answers of each page that answers a question, by its path."""
    pages = [page for page in PAGES if "notes" not in page.relative_to(ROOT).parts]
    answers = {
        str(page.relative_to(ROOT)): [*given_answers(question, text_of(page))] for page in pages
    }
    return {page: given for page, given in answers.items() if given}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["question"])
def test_pages_give_one_answer(question):
    given = answers_on_pages(question)
    others = [
        (page, figure)
        for page, figures in given.items()
        for figure in figures
        if not any(is_rounded(figure, answer) for answer in question["answers"])
    ]
    assert others == [], question["answers"]
    assert sorted(given) == sorted(question["pages"])


# Different answers that pages gave to one question.
@pytest.mark.parametrize(
    "text, figures",
    [
        (
            "- For one sentence at a time on a CPU, [CTranslate2](docs/engines.md) is up to\n"
            "  3.7 times as fast with small models: export to it.",
            ["3.7"],
        ),
        (
            "- **A sentence alone**, with a shortlist, takes `multi30k-tiny` 1.7 to 3.6 times as\n"
            "  long as CTranslate2 without one, each at its best.",
            ["1.7 to 3.6"],
        ),
        (
            "| | compared with | ratio |\n| --- | --- | --- |\n"
            "| training | stock Keras layers | 1.9 times as fast |\n"
            "| one sentence, one thread, beam 4 | CTranslate2 | takes 0.7 to 3.7 times as long |",
            ["0.7 to 3.7"],
        ),
        ("| | CTranslate2 |\n| --- | --- |\n| one sentence | twice as fast |", ["twice"]),
        ("```sh\nexport # for one sentence, CTranslate2 is 5x as fast\n```", ["5"]),
        ("CTranslate2 is 2 times as fast.\n\nOne sentence takes 3 times as long.", []),
    ],
)
def test_each_way_to_answer_is_found(text, figures):
    assert [*given_answers(QUESTIONS[0], text)] == figures


def test_answers_may_be_rounded():
    assert is_rounded("41.4", "41.44") and is_rounded("1 to 2", "1.3 to 1.6")
    assert not is_rounded("41.5", "41.44") and not is_rounded("1.3", "1.3 to 1.6")
