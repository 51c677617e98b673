"""Noun phrases: who and what, declined in every case."""

import re
from dataclasses import dataclass

from .adjectives import ADJECTIVES
from .determiners import (
    A,
    BARE,
    CASES,
    DEFINITE,
    NO_ENDINGS,
    POSSESSIVES,
    PRONOUNS,
    QUANTIFIERS,
    STRONG,
    THE,
    THIS,
    WEAK,
    Determiner,
)
from .nouns import NOUNS, Noun
from .numbers import numeral
from .text import words

WOMEN = "Anna Maria Clara Emma Sophie Julia Laura Lena".split()
MEN = "Peter Paul Martin Daniel Stefan David Simon Oliver".split()
SURNAMES = "Schmidt Weber Fischer Wagner Becker Hoffmann Krüger Köhler".split()
CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}


@dataclass(frozen=True)
class Phrase:
    en: str
    en_object: str
    de: dict  # by case
    agreement: str  # 1 as ich, 3 as er, p as wir and sie
    status: str  # pronoun, definite, indefinite or negative
    pronoun: str = ""  # the key of the pronoun that can stand for it
    gender: str = "p"  # of a relative pronoun that refers to it


def _pronoun_phrase(key):
    (subject, object_), german, _, (agreement,) = PRONOUNS[key]
    return Phrase(subject, object_, dict(zip(CASES, german)), agreement, "pronoun", key)


PRONOUN = {key: _pronoun_phrase(key) for key in PRONOUNS}
PERSONAL = [PRONOUN[key] for key in ("I", "we", "you", "he", "she", "they")]


def back_reference(phrase):
    return PRONOUN[phrase.pronoun]


def english_article(word):
    vowel = re.match(r"[aeiou]|hon|hou", word) and not re.match(r"use|uni|eu|one", word)
    return "an" if vowel else "a"


def noun_phrase(noun: Noun, determiner, adjectives=(), plural=False, german_tail=""):
    english = words(*(a.en for a in adjectives), noun.en_plural if plural else noun.en)
    article = determiner.en_plural if plural else determiner.en
    english = words(english_article(english) if article == "a" else article, english)
    gender = "p" if plural else noun.gender
    german = {
        case: words(
            determiner.de + determiner.endings[case, gender],
            *(a.stem + determiner.adjective_endings[case, gender] for a in adjectives),
            noun.form(case, plural),
            german_tail,
        )
        for case in CASES
    }
    if plural:
        pronoun = "they"
    elif noun.is_human:
        pronoun = {"m": "he", "f": "she"}[gender]
    else:
        pronoun = "it." + gender
    agreement = "p" if plural else "3"
    return Phrase(english, english, german, agreement, determiner.status, pronoun, gender)


def with_preposition(preposition, german):
    article, _, rest = german.partition(" ")
    contracted = CONTRACTIONS.get(f"{preposition} {article}")
    return words(contracted, rest) if contracted else f"{preposition} {german}"


def possessed_by(possessor: Phrase):
    """A determiner and what follows the noun: the teacher's car, das Auto des Lehrers."""
    owner = possessor.en + "'s"
    if " " not in possessor.en:
        return Determiner(owner, possessor.de["gen"], NO_ENDINGS, STRONG, "definite", owner), ""
    return Determiner(owner, "", DEFINITE, WEAK, "definite", owner), possessor.de["gen"]


# Phrases at random


def some_adjectives(pick, noun, chance=0.45):
    suitable = ADJECTIVES.get(noun.kind)
    adjectives = [pick(suitable)] if suitable and pick.chance(chance) else []
    if noun.kind in ("thing", "clothes", "vehicle") and pick.chance(0.12):
        adjectives.append(pick(ADJECTIVES["color"]))
    if noun.kind == "animal" and pick.chance(0.12):
        adjectives.append(pick(ADJECTIVES["fur"]))
    return adjectives


def described(pick, noun, determiner, chance=0.45, plural=False):
    return noun_phrase(noun, determiner, some_adjectives(pick, noun, chance), plural)


def name(pick):
    key, given = pick((("she", WOMEN), ("he", MEN)))
    english = german = oblique = pick(given)
    if pick.chance(0.25):
        surname = pick(SURNAMES)
        english = ("Mrs. " if key == "she" else "Mr. ") + surname
        german = oblique = "Frau " + surname
        if key == "he":
            german, oblique = "Herr " + surname, "Herrn " + surname
    cases = {"nom": german, "acc": oblique, "dat": oblique, "gen": oblique + "s"}
    return Phrase(english, english, cases, "3", "definite", key, key)


def given_name(pick):
    phrase = name(pick)
    return phrase if " " not in phrase.en else given_name(pick)


def possessor(pick):
    return given_name(pick) if pick.chance(0.5) else person(pick, (THE,), 0)


def person(pick, determiners=(THE, THE, THE, A, THIS), plural_chance=0.15):
    noun, determiner = pick(NOUNS["person"]), pick(determiners)
    plural = bool(determiner.en_plural) and pick.chance(plural_chance)
    return described(pick, noun, determiner, 0.25, plural)


def relative_of(pick, owner=""):
    """A member of somebody's family; of the owner's own, where an owner is given."""
    noun = pick(NOUNS["family"])
    if not owner and pick.chance(0.25):
        determiner, tail = possessed_by(possessor(pick))
    else:
        determiner, tail = POSSESSIVES[owner or pick(PERSONAL).pronoun], ""
    return noun_phrase(noun, determiner, some_adjectives(pick, noun, 0.15), german_tail=tail)


def couple(pick):
    first = given_name(pick)
    second = given_name(pick) if pick.chance(0.5) else relative_of(pick, first.pronoun)
    if first.en == second.en:
        return couple(pick)
    german = {case: f"{first.de[case]} und {second.de[case]}" for case in CASES}
    english = f"{first.en} and {second.en}"
    return Phrase(english, english, german, "p", "definite", "they")


def subject(pick, definite=True):
    kind = pick.number(1, 100)
    if kind <= 27:
        return pick(PERSONAL)
    if kind <= 48:
        return name(pick)
    if kind <= 63:
        return relative_of(pick)
    if kind <= 67:
        return couple(pick)
    return person(pick, (THE, THE, THIS) if definite else (THE, THE, THE, A, THIS))


def object_of(pick, noun, owner, definite=False):
    """What somebody, whose pronoun is `owner`, does something to."""
    adjectives = some_adjectives(pick, noun)
    if noun.kind == "family":
        return noun_phrase(noun, POSSESSIVES[owner or pick(PERSONAL).pronoun], adjectives[:1])
    if noun.kind == "mass":
        return noun_phrase(noun, THE if definite or pick.chance(0.4) else BARE, adjectives)
    choice = pick.number(1, 100)
    if choice <= 6:
        determiner, tail = possessed_by(possessor(pick))
        return noun_phrase(noun, determiner, adjectives, pick.chance(0.2), tail)
    if choice <= 20 and owner:
        return noun_phrase(noun, POSSESSIVES[owner], adjectives, pick.chance(0.2))
    if choice <= 26:
        return noun_phrase(noun, THIS, adjectives, pick.chance(0.3))
    if definite or choice <= 62:
        return noun_phrase(noun, THE, adjectives, pick.chance(0.2))
    if choice <= 90:
        return noun_phrase(noun, A, adjectives)
    if choice <= 95:
        return noun_phrase(noun, pick(QUANTIFIERS), adjectives, plural=True)
    return noun_phrase(noun, numeral(pick.number(2, 12)), adjectives, plural=True)


def counted(pick, noun, high, digits=None):
    n = pick.number(2, high)
    if n % 100 == 1:  # German would say einhundertein
        n += 1
    digits = pick.chance(0.4) if digits is None else digits
    return described(pick, noun, numeral(n, digits), 0.3, plural=True)
