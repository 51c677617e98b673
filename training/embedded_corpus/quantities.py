"""Prices, numbers of things, distances and timetables."""

from dataclasses import replace

from .actions import some_thing, sometimes_timed, timed
from .clauses import Clause, be
from .determiners import A, THE, THIS
from .nouns import NOUN, NOUNS
from .numbers import amount, in_digits, in_words
from .phrases import counted, described, name, noun_phrase, person, subject, with_preposition
from .places import CITIES
from .sentences import told, with_and
from .text import sentence
from .times import appointment, clock
from .verbs import VERB


def shopping(pick):
    noun, thing, _ = some_thing(pick, ("thing", "clothes", "text", "vehicle"))
    cost, kind = amount(pick), pick.number(1, 5)
    if kind == 1:
        clause = Clause(thing, VERB["cost"], "present", complement=cost)
        if thing.agreement == "3" and pick.chance(0.5):
            clause = replace(clause, tense=pick(("future", "past")))
        return told(clause)
    who = subject(pick)
    tense = pick(("past", "past", "perfect", "future", "had to", "wants to"))
    if kind == 2:
        clause = Clause(thing, VERB["cost"], "present")
        return sentence(
            clause.english_question("how much"), clause.german_inverted("wie viel"), "?"
        )
    if kind == 3:
        toward = f"{cost[0]} for {thing.en}", f"{cost[1]} für {thing.de['acc']}"
        clause = Clause(who, VERB["pay"], tense, complement=toward)
    else:
        verb = VERB[pick(("buy", "sell", "order"))]
        verb = verb if noun in verb.objects else VERB["buy"]
        if pick.chance(0.4):
            thing = described(pick, noun, A)
        toward = f"for {cost[0]}", f"für {cost[1]}"
        clause = Clause(who, verb, tense, thing, complement=toward)
    return told(sometimes_timed(pick, clause, 0.3))


def counting(pick):
    kind, tense = pick.number(1, 6), pick(("present", "past"))
    if kind == 1:
        village = described(pick, NOUN["village"], pick((THE, THIS)))
        inhabitants = counted(pick, NOUN["inhabitant"], 9_999)
        return told(Clause(village, VERB["have"], tense, inhabitants))
    if kind == 2:
        noun = NOUN[pick(("book", "novel", "report", "contract"))]
        text = described(pick, noun, pick((THE, THIS)))
        return told(Clause(text, VERB["have"], tense, counted(pick, NOUN["page"], 999)))
    if kind == 3:
        who = person(pick, (THE,), 0) if pick.chance(0.6) else name(pick)
        noun = pick(NOUNS[pick(("animal", "text", "clothes", "vehicle"))])
        possessions = counted(pick, noun, pick((99, 999, 9_999)))
        return told(Clause(who, VERB["own"], tense, possessions))
    if kind == 4:
        english, german = in_words(pick.number(2, 99))
        return told(be(subject(pick), tense, (f"{english} years old", f"{german} Jahre alt")))
    if kind == 5:
        return told(distance(pick, tense))
    who = subject(pick)
    verb = VERB[pick(("buy", "sell", "find", "see"))]
    things = counted(pick, pick(verb.objects), pick((99, 999)))
    return told(timed(pick, Clause(who, verb, "past", things)))


def distance(pick, tense):
    far = noun_phrase(NOUN[pick(("station", "airport", "lake", "market"))], THE)
    english, german = in_digits(pick.number(2, 60))
    tenth = pick((None, 5, 2, 8))
    if tenth:
        english, german = f"{english}.{tenth}", f"{german},{tenth}"
    house = described(pick, pick(NOUNS["building"]), THE)
    away = (
        f"{english} kilometers from {far.en}",
        f"{german} Kilometer {with_preposition('von', far.de['dat'])} entfernt",
    )
    return be(house, tense, away)


def schedule(pick):
    kind, at = pick.number(1, 3), clock(pick)
    if kind == 1:
        event = described(pick, pick(NOUNS["event"]), THE, 0.3)
        at = appointment(pick) if pick.chance(0.5) else at
        verb, tense = VERB[pick(("begin", "end"))], pick(("present", "past", "future"))
        return told(Clause(event, verb, tense, time=at))
    (here, hier), (there, dort) = pick(CITIES), pick(CITIES)
    noun = NOUN[pick(("train", "bus", "ship"))]
    train = noun_phrase(noun, pick((THE, THE, THIS)))
    german = {"nom": f"{train.de['nom']} nach {dort}"}
    train = replace(train, en=f"{train.en} to {there}", de=german)
    tense = pick(("present", "past", "future", "perfect"))
    if kind == 2 or here == there:
        return told(Clause(train, VERB["depart"], tense, time=at))
    origin = f"from {here}", f"in {hier}"
    leaves = Clause(train, VERB["depart"], "present", complement=origin, time=at)
    return with_and(leaves, Clause(train, VERB["arrive"], "present", time=clock(pick)))
