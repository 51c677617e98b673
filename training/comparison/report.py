"""Writes comparisons on one or several test sets as plain text, Markdown, HTML or JSON."""

import html
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import tabulate

from .compare import Comparison, Result, Score

Format = Literal["text", "markdown", "html", "json"]
_TABLES = {"text": "simple", "markdown": "pipe", "html": "html"}
_SCORES_HEADER = ["system", "BLEU", "chrF2", "compared with the first"]
_LENGTHS_HEADER = [
    "system",
    "brevity penalty",
    "length",
    "repetitions",
    "copies",
    "unknown",
    "lost numbers",
    "speed",
]
_SCORES_NOTE = (
    "±: half of the 95% confidence interval. "
    "p: the probability of a difference from the first system that is at least this large, "
    "if the two systems do not differ."
)
_LENGTHS_NOTE = (
    "Length: how many tokens, as BLEU counts them, the translations have per token of the "
    "references. "
    "Repetitions, copies of the source, unknown tokens: share of the translations. "
    "Lost numbers: share of the numbers in both source and reference. "
    "Speed: sentences per second, compilation included."
)
_OVERVIEW_NOTE = (
    "BLEU and chrF2 on each test set. *: the difference from the first system is significant."
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
div { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #8888; padding: .3rem .7rem; }
th, td { text-align: left; vertical-align: top; }
"""


def write_report(comparison: Comparison, format: Format) -> str:
    """Returns a comparison as plain text, Markdown, HTML or JSON.

    Args:
        format: "text" for a terminal, "markdown", "html" for a self-contained page, or "json" for a
            single line.
    """
    if format == "json":
        return json.dumps(_record(comparison), ensure_ascii=False)
    return _document(_parts(comparison, format), format)


def write_reports(comparisons: Mapping[str, Comparison], format: Format) -> str:
    """Returns comparisons of the same systems on several test sets.

    The result begins with the scores on all test sets, side by side. A section with the report for
    each test set follows. For a single test set, the result equals `write_report`'s.

    Args:
        comparisons: The comparison on each test set, by name.
        format: "text" for a terminal, "markdown", "html" for a self-contained page, or "json" for a
            single line. The JSON object contains a list "test_sets" with the result of
            `write_report` for each test set and its "name".
    """
    if len(comparisons) == 1:
        (comparison,) = comparisons.values()
        return write_report(comparison, format)
    if format == "json":
        records = [
            {"name": name, **_record(comparison)} for name, comparison in comparisons.items()
        ]
        return json.dumps({"test_sets": records}, ensure_ascii=False)
    systems = zip(*(comparison.results for comparison in comparisons.values()), strict=True)
    rows = [_overview_row(results) for results in systems]
    parts = [
        _table(["system", *comparisons], rows, format),
        _paragraph(_OVERVIEW_NOTE, format),
    ]
    for name, comparison in comparisons.items():
        heading = _heading(name, format, 2)
        if format == "text":
            heading = f"{name}\n{'=' * len(name)}"
        parts += [heading, *_parts(comparison, format, 3)]
    return _document(parts, format)


def _document(parts: list[str], format: Format) -> str:
    # Replace control characters, so sentences cannot control a terminal.
    text = _CONTROLS.sub("\ufffd", "\n\n".join(parts) + "\n")
    if format != "html":
        return text
    policy = "default-src 'none'; style-src 'unsafe-inline'"  # The page loads nothing.
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{_STYLE}</style>'
    )
    title = "Comparison of translations"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>{title}</title></head>\n'
        f"<body><main><h1>{title}</h1>\n{text}</main></body></html>\n"
    )


def _parts(comparison: Comparison, format: Format, level: int = 2) -> list[str]:
    """Returns the tables and paragraphs of a comparison, with headings of the given level."""
    score_rows = [
        [result.name, *map(_score, result.scores.values()), _verdict(result)]
        for result in comparison.results
    ]
    lengths_header = list(_LENGTHS_HEADER)
    length_rows = [_length_row(result) for result in comparison.results]
    if any(result.terms is not None for result in comparison.results):
        lengths_header.append("terms used")
        for row, result in zip(length_rows, comparison.results, strict=True):
            row.append(str(result.terms))
    parts = [
        _table(_SCORES_HEADER, score_rows, format),
        _paragraph(_SCORES_NOTE, format),
        _table(lengths_header, length_rows, format),
        _paragraph(_LENGTHS_NOTE, format),
    ]
    for name, signature in comparison.signatures.items():
        parts.append(_paragraph(f"{name}: {signature}", format))
    for name, low_scores in comparison.low_scores.items():
        if low_scores:
            parts.append(_heading(f"Lowest chrF of {name}", format, level))
        for sentence in low_scores:
            rows = [
                ["source", sentence.source],
                ["reference", sentence.reference],
                [f"translation ({sentence.score:.1f} chrF)", sentence.translation],
            ]
            parts.append(_table([f"line {sentence.number}", ""], rows, format))
    first = comparison.results[0].name
    for name, differences in comparison.differences.items():
        parts.append(_heading(f"Where {name} differs most from {first}", format, level))
        if not differences:
            parts.append(_paragraph("All translations are the same.", format))
        for difference in differences:
            rows = [
                ["source", difference.source],
                ["reference", difference.reference],
                ["first", difference.first],
                [f"other ({difference.gain:+.1f} chrF)", difference.other],
            ]
            parts.append(_table([f"line {difference.number}", ""], rows, format))
    return parts


def _record(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _record(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_record(item) for item in value]
    if hasattr(value, "_asdict"):
        return _record(value._asdict())
    return value


def _overview_row(results: Sequence[Result]) -> list[str]:
    """Returns the scores of a system, which may have another file name on each test set."""
    name = results[0].name
    if any(result.name != name for result in results):
        name += ", …"
    cells = [
        " / ".join(
            f"{score.score:.2f}{'*' if score.is_significant else ''}"
            for score in result.scores.values()
        )
        for result in results
    ]
    return [name, *cells]


def _score(score: Score) -> str:
    text = f"{score.score:.2f} ± {score.interval:.2f}"
    if score.p_value is None:
        return text
    return f"{text} (p = {score.p_value:.4f})"


def _verdict(result: Result) -> str:
    """Describes the significant differences from the first system."""
    if result.equals_first is None:
        return ""
    if result.equals_first:
        return "the same translations"
    words = [
        f"{name} {'higher' if score.gain > 0 else 'lower'}"
        for name, score in result.scores.items()
        if score.is_significant
    ]
    return ", ".join(words) or "not significant"


def _length_row(result: Result) -> list[str]:
    speed = result.sentences_per_second
    return [
        result.name,
        f"{result.brevity_penalty:.3f}",
        f"{result.length_ratio:.3f}",
        *(f"{share:.2%}" for share in result.faults),
        "" if speed is None else f"{speed:.1f}",
    ]


def _table(header: list[str], rows: list[list[str]], format: Format) -> str:
    header, *rows = [[_escaped(cell, format, "|") for cell in row] for row in (header, *rows)]
    table = tabulate.tabulate(rows, header, tablefmt=_TABLES[format], disable_numparse=True)
    if format != "html":
        return table
    # Cells may be in languages that are written from left to right or from right to left.
    table = re.sub(r"<(t[dh])\b", r'<\1 dir="auto"', table)
    return f"<div>{table}</div>"


def _paragraph(text: str, format: Format) -> str:
    if format == "html":
        return f'<p dir="auto">{html.escape(text)}</p>'
    if format == "markdown":
        return _escaped(text, format)
    return textwrap.fill(text, 100)


def _heading(text: str, format: Format, level: int) -> str:
    if format == "html":
        return f'<h{level} dir="auto">{html.escape(text)}</h{level}>'
    if format == "markdown":
        return f"{'#' * level} {_escaped(text, format)}"
    return text


def _escaped(text: str, format: Format, also: str = "") -> str:
    """Returns text with HTML, links and pictures escaped in Markdown."""
    if format != "markdown":
        return text
    return text.translate({ord(character): f"&#{ord(character)};" for character in f"&<>[{also}"})
