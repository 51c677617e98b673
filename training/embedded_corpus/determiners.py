"""Determiners and pronouns, and the endings German gives them and the adjectives after them."""

from dataclasses import dataclass

CASES = ("nom", "acc", "dat", "gen")


def _paradigm(rows):
    """Endings by (case, gender); the genders are m, f, n and p for every plural."""
    return {
        (case, gender): ending.strip("-")
        for case, row in zip(CASES, rows.split("|"))
        for gender, ending in zip("mfnp", row.split())
    }


DEFINITE = _paradigm("der die das die|den die das die|dem der dem den|des der des der")
DER_ENDINGS = _paradigm("er e es e|en e es e|em er em en|es er es er")
EIN_ENDINGS = _paradigm("- e - e|en e - e|em er em en|es er es er")
NO_ENDINGS = _paradigm("- - - -|- - - -|- - - -|- - - -")
WEAK = _paradigm("e e e en|en e e en|en en en en|en en en en")
MIXED = _paradigm("er e es en|en e es en|en en en en|en en en en")
STRONG = _paradigm("er e es e|en e es e|em er em en|en er en er")
RELATIVE = _paradigm("der die das die|den die das die|dem der dem denen|dessen deren dessen deren")


@dataclass(frozen=True, eq=False)
class Determiner:
    en: str
    de: str
    endings: dict
    adjective_endings: dict
    status: str  # definite, indefinite or negative: decides where German puts the noun phrase
    en_plural: str = ""


THE = Determiner("the", "", DEFINITE, WEAK, "definite", "the")
THIS = Determiner("this", "dies", DER_ENDINGS, WEAK, "definite", "these")
EVERY = Determiner("every", "jed", DER_ENDINGS, WEAK, "definite")
WHICH = Determiner("which", "welch", DER_ENDINGS, WEAK, "definite", "which")
A = Determiner("a", "ein", EIN_ENDINGS, MIXED, "indefinite")
NOT_A = Determiner("a", "kein", EIN_ENDINGS, MIXED, "negative")
NO = Determiner("no", "kein", EIN_ENDINGS, MIXED, "negative", "no")
BARE = Determiner("", "", NO_ENDINGS, STRONG, "indefinite")
NOT_ANY = Determiner("", "kein", EIN_ENDINGS, MIXED, "negative")  # he does not drink milk
HOW_MANY = Determiner("", "wie viel", DER_ENDINGS, STRONG, "indefinite", "how many")
QUANTIFIERS = (
    Determiner("", "viel", DER_ENDINGS, STRONG, "indefinite", "many"),
    Determiner("", "einig", DER_ENDINGS, STRONG, "indefinite", "some"),
    Determiner("", "mehrer", DER_ENDINGS, STRONG, "indefinite", "several"),
)

# subject object | nominative accusative dative | possessives | agreement
_PRONOUNS = """
    I: I me | ich mich mir | my mein | 1
    we: we us | wir uns uns | our unser | p
    you: you you | Sie Sie Ihnen | your Ihr | p
    he: he him | er ihn ihm | his sein | 3
    she: she her | sie sie ihr | her ihr | 3
    they: they them | sie sie ihnen | their ihr | p
    it.m: it it | er ihn ihm | its sein | 3
    it.f: it it | sie sie ihr | its ihr | 3
    it.n: it it | es es ihm | its sein | 3
"""
PRONOUNS = {
    key.strip(): tuple(column.split() for column in columns.split("|"))
    for key, columns in (row.split(":") for row in _PRONOUNS.strip().splitlines())
}
POSSESSIVES = {
    key: Determiner(*words, EIN_ENDINGS, MIXED, "definite", words[0])
    for key, (_, _, words, _) in PRONOUNS.items()
}
