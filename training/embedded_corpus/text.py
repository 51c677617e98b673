"""Text in two languages: pairs of an English and a German string."""

import re

Pair = tuple[str, str]
NOTHING: Pair = ("", "")


def words(*parts):
    return " ".join(filter(None, parts))


def capital(text):
    start = re.search(r"\w", text).start()
    return text[:start] + text[start].upper() + text[start + 1 :]


def sentence(english, german, mark=".") -> Pair:
    if mark == ".":
        english = english.removesuffix(".")  # at 3 p.m.
    return _finished(english + mark), _finished(german + mark)


def _finished(text):
    # A clause that ends the sentence closes with no comma.
    return capital(re.sub(r",+(?=[.,?!“])", "", text))
