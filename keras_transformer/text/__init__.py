"""Reads lines and sentence pairs from files, pipes and tensorflow-datasets."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .corpora import FORMATS, Corpus, Shard, open_corpora, pairs_of
    from .lines import CountedReread, Reread, name_of, read_lines, read_lines_once, read_texts

__all__ = [
    "FORMATS",
    "Corpus",
    "CountedReread",
    "Reread",
    "Shard",
    "name_of",
    "open_corpora",
    "pairs_of",
    "read_lines",
    "read_lines_once",
    "read_texts",
]
