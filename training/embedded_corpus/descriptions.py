"""What and where people and things are: comparisons, places, birth, residence and profession."""

from dataclasses import replace

from .actions import sometimes_timed
from .adjectives import ADJECTIVES
from .clauses import Clause, be, was_and_wurde
from .determiners import A, NO, POSSESSIVES, QUANTIFIERS, THE, THIS
from .nouns import NOUNS
from .phrases import (
    PERSONAL,
    counted,
    described,
    name,
    noun_phrase,
    relative_of,
    some_adjectives,
    subject,
)
from .places import CITIES, COUNTRIES, location, spot, town
from .sentences import told
from .text import NOTHING, sentence, words
from .times import date, past_date
from .verbs import VERB

COMPARABLE = {
    kind: [a for a in adjectives if a.en_comparative]
    for kind, adjectives in ADJECTIVES.items()
    if kind in ("person", "thing", "clothes", "text", "vehicle", "building")
}


def comparison(pick):
    kind = pick(list(COMPARABLE))
    adjective = pick(COMPARABLE[kind])
    nouns = pick(NOUNS[kind]), pick(NOUNS[kind])
    if nouns[0] == nouns[1]:
        return comparison(pick)
    first, second = (compared(pick, noun) for noun in nouns)
    english, german = f"{adjective.en_comparative} than", f"{adjective.de_comparative} als"
    equal = pick.chance(0.3)
    if equal:
        english, german = f"as {adjective.en} as", f"so {adjective.de} wie"
    complement = f"{english} {second.en}", f"{german} {second.de['nom']}"
    tense = pick(("present", "past"))
    return told(be(first, tense, complement, negated=equal and pick.chance(0.4)))


def compared(pick, noun):
    determiner = pick((THE, THIS, POSSESSIVES[pick(PERSONAL).pronoun]))
    colored = noun.kind in ("thing", "clothes", "vehicle") and pick.chance(0.4)
    return noun_phrase(noun, determiner, [pick(ADJECTIVES["color"])] if colored else [])


def existence(pick):
    """There is: German says `gibt es`, with the accusative, after the place."""
    past, kind = pick.chance(0.3), pick.number(1, 4)
    noun = pick(NOUNS[pick(("building", "person", "animal"))])
    english, german = town(pick) if noun.kind == "building" else location(pick)
    if kind == 1:
        what = described(pick, noun, A)
    elif kind == 2:
        what = noun_phrase(noun, NO, some_adjectives(pick, noun), plural=pick.chance(0.5))
    elif kind == 3:
        what = described(pick, noun, pick(QUANTIFIERS), plural=True)
    else:
        what = counted(pick, noun, 99, digits=False)
    is_, gibt = VERB["be"].english(what.agreement, past), VERB["give"].german("3", past)
    return sentence(f"there {is_} {what.en} {english}", f"{german} {gibt} es {what.de['acc']}")


def placement(pick):
    """Where something lies is dative, where somebody puts it accusative."""
    kind, tense = pick.number(1, 4), pick(("present", "past", "past"))
    flat = pick.chance(0.5)
    noun = pick(NOUNS["flat" if flat else "upright"])
    what = described(pick, noun, pick((THE, THE, A, THIS)))
    if kind <= 2:
        tense = pick(("past", "perfect", "future", "has to", "wanted to"))
        who, verb = subject(pick), VERB["put" if flat else "place"]
        clause = Clause(who, verb, tense, what, complement=spot(pick, "acc"))
        return told(sometimes_timed(pick, clause, 0.3))
    if kind == 3:
        verb = VERB["lie" if flat else "stand"]
        return told(Clause(what, verb, tense, complement=spot(pick, "dat")))
    what = described(pick, pick(NOUNS["hanging"]), pick((THE, A)))
    return told(Clause(what, VERB["hang"], tense, complement=("on the wall", "an der Wand")))


def birth(pick):
    who, place = subject(pick), town(pick)
    when = date(pick) if pick.chance(0.6) else past_date(pick)
    place = place if pick.chance(0.7) else NOTHING
    was, wurde = was_and_wurde(who)
    return sentence(
        words(who.en, was, "born", place[0], when[0]),
        words(who.de["nom"], wurde, when[1], place[1], "geboren"),
    )


def residence(pick):
    who, tense = subject(pick), pick(("present", "past", "future", "would like to"))
    place, negated = town(pick, CITIES + COUNTRIES), pick.chance(0.25)
    clause = Clause(who, VERB["live"], tense, complement=place, negated=negated)
    year = {"past": ("last year", "letztes Jahr"), "future": ("next year", "nächstes Jahr")}
    if tense in year and pick.chance(0.4):
        clause = replace(clause, time=year[tense])
    return told(clause)


def profession(pick):
    """German drops the article before a bare profession: er ist Arzt, but er ist ein guter Arzt."""
    female = pick.chance(0.4)
    noun = pick([n for n in NOUNS["profession"] if (n.gender == "f") == female])
    who = pick((relative_of(pick), name(pick), pick(PERSONAL[3:5])))
    if (who.pronoun == "she") != female:
        return profession(pick)
    adjective = [pick(ADJECTIVES["person"])] if pick.chance(0.5) else []
    what = noun_phrase(noun, A, adjective)
    complement = what.en, what.de["nom"] if adjective else noun.de
    becoming = ("future", "wants to", "would like to", "past", "perfect")
    verbs = [("be", "present"), ("be", "past"), *(("become", tense) for tense in becoming)]
    verb, tense = pick(verbs)
    return told(Clause(who, VERB[verb], tense, complement=complement))
