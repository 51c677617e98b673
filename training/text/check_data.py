"""Reports on a text, and on the pairs that filters would remove, in a single pass."""

import collections
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tabulate

from keras_transformer.config import DataConfig
from keras_transformer.runtime.progress import counted
from keras_transformer.scripts import forms_of_chinese, main_script, name_of_script
from keras_transformer.text import Corpus, Shard

from .corpus import judged_pairs, name_of_text, require_one_for_each
from .filters import RECOMMENDED, HeldOut, filters_of

if TYPE_CHECKING:
    from keras_transformer.tokenizers.placeholders import SpanFinder

_PERCENTILES = (1, 50, 90, 99)
_EXAMPLES = 2
_SIDES = ("source", "target")
_NORMAL_FORMS: tuple[Literal["NFC", "NFKC"], ...] = ("NFC", "NFKC")
_FORMS_OF_CHINESE = ("simplified", "traditional")
# Show only the most common scripts.
_MOST_SCRIPTS = 5
# Text is Japanese if at least this share of its sentences contains kana. Some sentences contain
# only kanji.
_LEAST_SHARE_OF_KANA = 0.1
# A report, which can be converted to JSON.
Report = dict[str, Any]


def check_data(
    corpora: Sequence[Corpus],
    data: DataConfig | None = None,
    held_out: HeldOut | None = None,
    spans: "SpanFinder | None" = None,
) -> Report:
    """Reads a text once and returns a report about it.

    If no filter is turned on, the report shows which pairs `filters.RECOMMENDED` would remove.

    Args:
        spans: Finds the spans that placeholders replace. The report then counts the pairs that
            contain spans, and the pairs whose sides contain different spans. Defaults to None.

    Returns:
        A report with the number of pairs: in total, in each corpus, removed by each filter (with
        the locations of the first pairs), kept, and held out. For "source" and "target", it
        contains the number of empty sentences; lengths in characters, with percentiles by percent,
        such as "90"; the number of sentences that the normal forms NFC and NFKC would change; the
        scripts of the sentences, the most common first, with the locations of the first sentences
        in the other scripts; and the numbers of sentences in simplified and in traditional Chinese,
        with the locations of the first sentences.

    Raises:
        ConfigError: As in `read_text`, except that the filters may remove all pairs.
        InvalidFileError: As in `read_text`.
    """
    data = data or DataConfig()
    require_one_for_each(corpora, data)
    configured = filters_of(data)
    filters = configured or filters_of(RECOMMENDED)
    sizes = [0] * len(corpora)
    lengths: tuple[collections.Counter[int], ...] = (collections.Counter(), collections.Counter())
    num_empty = [0, 0]
    counts = np.zeros(len(filters) + 1, np.int64)
    examples: list[list[str]] = [[] for _ in counts]
    forms = (Forms(), Forms())
    num_with_spans = num_different = 0
    different: list[str] = []
    for part in judged_pairs(corpora, filters, data.scores):
        for side, sentences in enumerate(zip(*part.pairs)):
            forms[side].add(sentences, part.shard, part.first_line, side)
            lengths[side].update(map(len, sentences))
            num_empty[side] += sum(not sentence.strip() for sentence in sentences)
        counts += np.bincount(part.verdicts, minlength=len(counts))
        for verdict in np.unique(part.verdicts):
            num_missing = _EXAMPLES - len(examples[verdict])
            for place in np.flatnonzero(part.verdicts == verdict)[:num_missing]:
                examples[verdict].append(f"{part.shard.source_name}:{part.first_line + place}")
        if spans is not None:
            for place, (source, target) in enumerate(_spans_of(part.pairs, spans)):
                num_with_spans += bool(source or target)
                if source != target:
                    num_different += 1
                    if len(different) < _EXAMPLES:
                        different.append(f"{part.shard.source_name}:{part.first_line + place}")
        if held_out:
            if configured:
                kept = np.flatnonzero(part.verdicts == 0)
            else:
                kept = np.arange(len(part.pairs))
            held_out.add([part.pairs[place] for place in kept], sum(sizes) + kept)
        sizes[part.corpus] += len(part.pairs)
    report = {
        "text": name_of_text(corpora),
        "pairs": sum(sizes),
        "corpora": [{"name": corpus.name, "pairs": size} for corpus, size in zip(corpora, sizes)],
        "characters": {"source": _describe(lengths[0]), "target": _describe(lengths[1])},
        "empty": {"source": num_empty[0], "target": num_empty[1]},
        "normalization": {side: form.changed for side, form in zip(_SIDES, forms)},
        "scripts": {side: form.scripts() for side, form in zip(_SIDES, forms)},
        "chinese": {side: form.chinese() for side, form in zip(_SIDES, forms)},
        "filters": "configured" if configured else "recommended",
        "left_out": [
            {
                "filter": filter_.name,
                "value": filter_.value,
                "pairs": int(count),
                "examples": places,
            }
            for filter_, count, places in zip(filters, counts[1:], examples[1:])
        ],
        "kept": int(counts[0]),
        "held_out": len(held_out.finish()[0]) if held_out else 0,
    }
    if spans is not None:
        report["placeholders"] = {
            "pairs": num_with_spans,
            "different": num_different,
            "examples": different,
        }
    return report


def _spans_of(
    pairs: Sequence[tuple[str, str]], spans: "SpanFinder"
) -> Iterator[tuple[collections.Counter[bytes], ...]]:
    """Yields, for each pair, the number of times that each side contains each span."""
    sides = ([*map(collections.Counter, spans.spans(side))] for side in zip(*pairs))
    return zip(*sides, strict=True)


class Forms:
    """Counts of a side's sentences by script, and of sentences that a normal form would change."""

    def __init__(self) -> None:
        self.changed = {form.lower(): 0 for form in _NORMAL_FORMS}
        self._scripts = Examples()
        self._forms_of_chinese = Examples()

    def add(self, sentences: Sequence[str], shard: Shard, first_line: int, side: int) -> None:
        """Counts consecutive sentences of a shard."""
        for place, sentence in enumerate(sentences):
            if sentence.isascii():
                script = "Latn" if any(map(str.isalpha, sentence)) else None
            else:
                for form in _NORMAL_FORMS:
                    self.changed[form.lower()] += not unicodedata.is_normalized(form, sentence)
                script = main_script([sentence])
            if script is None:
                continue
            file = shard.target_name if side else shard.source_name
            self._scripts.count(script, f"{file}:{first_line + place}")
            if script == "Hani":
                for chinese in forms_of_chinese(sentence):
                    self._forms_of_chinese.count(chinese, f"{file}:{first_line + place}")

    def chinese(self) -> dict[str, dict[str, Any]]:
        """Returns the numbers of sentences in simplified and in traditional Chinese.

        Sentences that mix the two count for both. Japanese sentences do not count.
        """
        forms = Examples() if self._is_japanese() else self._forms_of_chinese
        return {
            form: {"sentences": forms.counts[form], "examples": forms.places[form]}
            for form in _FORMS_OF_CHINESE
        }

    def scripts(self) -> list[dict[str, Any]]:
        """Returns the scripts and their numbers of sentences, the most common first."""
        counts = self._scripts.counts.copy()
        if self._is_japanese():
            # These are Japanese sentences that contain only kanji.
            counts["Jpan"] += counts.pop("Hani", 0)
        return [
            {
                "script": script,
                "sentences": number,
                "examples": self._scripts.places[script] if i else [],
            }
            for i, (script, number) in enumerate(counts.most_common())
            if number
        ]

    def _is_japanese(self) -> bool:
        counts = self._scripts.counts
        least = _LEAST_SHARE_OF_KANA * (counts["Jpan"] + counts["Hani"])
        return counts["Jpan"] > 0 and counts["Jpan"] >= least


class Examples:
    """Counts of sentences by kind, with the locations of the first sentences of each kind."""

    def __init__(self) -> None:
        self.counts = collections.Counter[str]()
        self.places = collections.defaultdict[str, list[str]](list)

    def count(self, kind: str, place: str) -> None:
        self.counts[kind] += 1
        if len(self.places[kind]) < _EXAMPLES:
            self.places[kind].append(place)


def _describe(lengths: collections.Counter[int]) -> dict[str, Any]:
    values = np.array(list(lengths))
    counts = np.array(list(lengths.values()))
    percentiles = np.percentile(values, _PERCENTILES, weights=counts, method="inverted_cdf")
    return {
        "mean": round(float(np.average(values, weights=counts)), 2),
        "percentiles": {
            str(percent): int(value) for percent, value in zip(_PERCENTILES, percentiles)
        },
        "max": max(lengths),
    }


def report_lines(title: str, report: Report) -> Iterator[str]:
    """Yields a report as lines of text.

    The title names the text, such as "training".
    """
    num_pairs = report["pairs"]
    yield f"{title} text: {report['text']}: {counted(num_pairs, 'sentence pair')}"
    if len(report["corpora"]) > 1:
        yield from (f"  {corpus['name']}: {corpus['pairs']:,}" for corpus in report["corpora"])
    rows = [["characters", "mean", *(f"{percent}%" for percent in _PERCENTILES), "max"]]
    for side, sizes in report["characters"].items():
        percentiles = [f"{value:,}" for value in sizes["percentiles"].values()]
        rows.append([side, f"{sizes['mean']:.1f}", *percentiles, f"{sizes['max']:,}"])
    yield from _table(rows, "right")
    yield f"empty: {report['empty']['source']:,} of source, {report['empty']['target']:,} of target"
    for form in _NORMAL_FORMS:
        changed = {side: report["normalization"][side][form.lower()] for side in _SIDES}
        if any(changed.values()):
            yield (
                f"{form} would change: {changed['source']:,} of source, "
                f"{changed['target']:,} of target (data.normalize={form.lower()})"
            )
    for side, scripts in report["scripts"].items():
        if len(scripts) > 1:
            yield f"sentences of {side} in several scripts:"
            rows = [
                [
                    name_of_script(item["script"]),
                    f"{item['sentences']:,}",
                    f"{item['sentences'] / num_pairs:.2%}",
                    "  ".join(item["examples"]),
                ]
                for item in scripts[:_MOST_SCRIPTS]
            ]
            yield from _table(rows, "left")
    for side, forms in report["chinese"].items():
        if all(item["sentences"] for item in forms.values()):
            rarer = min(forms.values(), key=lambda item: item["sentences"])
            numbers = ", ".join(f"{item['sentences']:,} {form}" for form, item in forms.items())
            places = "  ".join(rarer["examples"])
            yield f"Chinese sentences of {side}: {numbers}  {places} (OpenCC converts them)"
    if "placeholders" in report:
        found = report["placeholders"]
        places = "  ".join(found["examples"])
        yield (
            f"placeholders: {counted(found['pairs'], 'pair')} with spans; not the same on both "
            f"sides: {found['different']:,}  {places}".rstrip()
        )
    if report["filters"] == "configured":
        yield "removed by the filters of the configuration:"
    else:
        yield "no filter is on; the recommended ones would remove:"
    rows = []
    for item in report["left_out"]:
        share = f"{item['pairs'] / num_pairs:.2%}"
        rows.append([_setting(item), f"{item['pairs']:,}", share, "  ".join(item["examples"])])
    rows.append(["kept", f"{report['kept']:,}", f"{report['kept'] / num_pairs:.2%}", ""])
    yield from _table(rows, "left")
    if report["held_out"]:
        yield f"held out to validate on: {report['held_out']:,}"


def _setting(item: dict[str, Any]) -> str:
    if item["value"] is None:
        return item["filter"]
    return f"data.{item['filter']}={'true' if item['value'] is True else item['value']}"


def _table(rows: Sequence[Sequence[str]], last: str) -> Iterator[str]:
    """Returns lines with aligned columns.

    The first column is aligned to the left, the last column to the given side, and all other
    columns to the right.
    """
    sides = ["left", *["right"] * (len(rows[0]) - 2), last]
    table = tabulate.tabulate(rows, tablefmt="plain", colalign=sides, disable_numparse=True)
    return (f"  {line}".rstrip() for line in table.splitlines())
