"""Clauses at random: somebody does something, and may do it somewhere, some time."""

from dataclasses import replace

from .adjectives import ADJECTIVES
from .clauses import Clause
from .determiners import NOT_A, NOT_ANY, THE, THIS
from .nouns import NOUN, NOUNS
from .phrases import (
    PERSONAL,
    described,
    name,
    noun_phrase,
    object_of,
    person,
    relative_of,
    some_adjectives,
)
from .places import direction, surroundings, to_town
from .tenses import FRAME, MODALS
from .text import NOTHING, words
from .times import time_phrase
from .verbs import GIVING, INTRANSITIVE, MOTION, TRANSITIVE, verbs_with

INVOLUNTARY = ("see", "lose", "need", "forget", "understand", "dream", "break", "fall", "wake")
ADVERBS = [  # english, german, the tenses they go with
    ("already", "schon", "perfect pluperfect"),
    ("just", "gerade", "perfect pluperfect"),
    ("never", "nie", "present past perfect"),
    ("often", "oft", "present past perfect"),
    ("always", "immer", "present past"),
    ("rarely", "selten", "present past"),
    ("finally", "endlich", "past perfect"),
    ("probably", "wahrscheinlich", "future"),
]


def action(pick, who, tense, negated=False):
    kind = pick.number(1, 100)
    if kind <= 66:
        clause = transitive(pick, who, pick(TRANSITIVE), tense, negated)
    elif kind <= 78:
        clause = giving(pick, who, tense, negated)
    elif kind <= 90:
        clause = motion(pick, who, tense, negated)
    else:
        clause = Clause(who, pick(INTRANSITIVE), tense, negated=negated)
    ambiguous = tense == "present" and who.agreement != "3" and not clause.verb.tense_is_audible
    if ambiguous or tense in MODALS and clause.verb.en in INVOLUNTARY:
        return action(pick, who, tense, negated)
    return clause


def intended(pick, who):
    clause = action(pick, who, "future")
    return intended(pick, who) if clause.verb.en in INVOLUNTARY else clause


def transitive(pick, who, verb, tense, negated=False):
    noun = pick(verb.objects)
    if negated and not verb.preposition and verb.governs == "acc" and pick.chance(0.5):
        target = described(pick, noun, NOT_ANY if noun.kind == "mass" else NOT_A)
        if noun.kind == "family":
            target = object_of(pick, noun, who.pronoun)
    elif noun.is_human and pick.chance(0.15):
        target = pick([p for p in PERSONAL if p.en != who.en and {p.en, who.en} != {"I", "we"}])
    elif noun.is_human and pick.chance(0.2):
        target = name(pick)
    else:
        target = object_of(pick, noun, who.pronoun, definite=negated)
    if target.en == who.en or target.pronoun == who.pronoun and target.status == "pronoun":
        return transitive(pick, who, verb, tense, negated)
    return Clause(who, verb, tense, target, negated=negated)


def giving(pick, who, tense, negated):
    verb, recipient = pick(GIVING), recipient_of(pick, who.pronoun)
    if recipient.en == who.en:
        return giving(pick, who, tense, negated)
    target = object_of(pick, pick(verb.objects), who.pronoun, definite=negated)
    return Clause(who, verb, tense, target, recipient, negated=negated)


def recipient_of(pick, own):
    kind = pick.number(1, 10)
    if kind <= 3:
        return person(pick, (THE,))
    if kind <= 6:
        return relative_of(pick, own)
    return name(pick) if kind <= 8 else noun_phrase(NOUN["child"], THE, plural=pick.chance(0.3))


def motion(pick, who, tense, negated=False):
    verb = pick(MOTION)
    far = verb.en in ("travel", "fly") or verb.en == "drive" and pick.chance(0.4)
    where = to_town(pick) if far else direction(pick)
    return Clause(who, verb, tense, complement=where, negated=negated)


def decorated(pick, clause):
    """The clause with a time, a place, a companion or an adverb that suits it."""
    if clause.negated:
        return sometimes_timed(pick, clause, 0.3)
    fitting = [(en, de) for en, de, tenses in ADVERBS if clause.tense in tenses.split()]
    if fitting and pick.chance(0.4 if "perfect" in clause.tense else 0.12):
        return replace(clause, adverb=pick(fitting))
    clause = sometimes_timed(pick, clause, 0.6)
    if clause.complement == NOTHING and pick.chance(0.35):
        clause = replace(clause, place=surroundings(pick, clause.subject))
    return clause


def timed(pick, clause):
    frame = FRAME.get(clause.tense)
    return replace(clause, time=time_phrase(pick, frame)) if frame else clause


def sometimes_timed(pick, clause, chance):
    return timed(pick, clause) if pick.chance(chance) else clause


def quality(pick, kind, degree=True, known=""):
    """A predicative adjective that is not in what is known already."""
    adjective = pick([a for a in ADJECTIVES[kind] if a.en not in known.split()])
    degrees = (NOTHING, NOTHING, ("very", "sehr"), ("too", "zu"))
    english, german = pick(degrees) if degree and adjective.en != "broken" else NOTHING
    return words(english, adjective.en), words(german, adjective.de)


def some_thing(pick, kinds=("thing", "clothes", "text", "vehicle", "animal", "food")):
    """A noun, its phrase, which `it` or `they` can stand for, and verbs with it as object."""
    noun = pick(NOUNS[pick(kinds)])
    determiner, adjectives = pick((THE, THE, THIS)), some_adjectives(pick, noun, 0.25)
    phrase = noun_phrase(noun, determiner, adjectives, plural=pick.chance(0.2))
    return noun, phrase, [v for v in verbs_with(noun) if v.governs == "acc" and not v.preposition]
