"""How clauses make a sentence in both languages."""

from .text import sentence


def told(clause):
    return sentence(clause.english(), clause.german())


def with_and(first, second):
    """Two clauses that share their subject."""
    return sentence(
        f"{first.english()} and {second.english_predicate()}",
        f"{first.german()} und {second.german_inverted(with_subject=False)}",
    )


def with_but(first, second):
    return sentence(
        f"{first.english()}, but {second.english()}", f"{first.german()}, aber {second.german()}"
    )


def main_first(main, conjunction, side):
    english, german = conjunction
    comma = "," if english == "although" else ""
    return sentence(
        f"{main.english()}{comma} {english} {side.english()}",
        f"{main.german()}, {side.german_final(german)}",
    )


def side_first(conjunction, side, main):
    english, german = conjunction
    return sentence(
        f"{english} {side.english()}, {main.english()}",
        f"{side.german_final(german)}, {main.german_inverted()}",
    )
