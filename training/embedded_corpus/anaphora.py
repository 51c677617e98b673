"""`It` and `they` in a second clause: German chooses the pronoun by the gender of the noun."""

from dataclasses import replace

from .actions import INVOLUNTARY, quality, recipient_of, some_thing
from .clauses import Clause, be
from .determiners import A, THE, THIS
from .nouns import NOUNS
from .phrases import back_reference, described, name, noun_phrase, person, subject
from .sentences import main_first, side_first, with_and, with_but
from .verbs import VERB


def it_is_why(pick):
    noun, thing, verbs = some_thing(pick)
    who, negated = subject(pick), pick.chance(0.3)
    if not negated and thing.agreement == "3" and pick.chance(0.3):
        thing = described(pick, noun, A, 0.2)
    main = Clause(who, pick(verbs), "past", thing, negated=negated)
    side = be(back_reference(thing), "past", quality(pick, noun.kind, known=thing.en))
    return main_first(main, ("because", "weil"), side)


def it_after_all(pick):
    noun, thing, verbs = some_thing(pick)
    conjunction, tense, main_tenses = pick(
        (
            (("although", "obwohl"), "past", ("past", "had to", "wanted to")),
            (("because", "weil"), "past", ("past", "could", "wanted to")),
            (("if", "wenn"), "present", ("future", "can", "has to", "wants to", "should")),
        )
    )
    side = be(thing, tense, quality(pick, noun.kind, known=thing.en))
    verb = pick([verb for verb in verbs if verb.en not in INVOLUNTARY])
    who, main_tense, negated = subject(pick), pick(main_tenses), pick.chance(0.3)
    main = Clause(who, verb, main_tense, back_reference(thing), negated=negated)
    return side_first(conjunction, side, main)


def it_is_done_too(pick):
    _, thing, verbs = some_thing(pick)
    beginnings = [verb for verb in verbs if verb.en in ("buy", "find", "order", "see", "catch")]
    endings = [verb for verb in verbs if verb not in beginnings]
    who, first, second = subject(pick), pick(beginnings), pick(endings)
    then = Clause(who, second, "past", back_reference(thing))
    return with_and(Clause(who, first, "past", thing), then)


def it_is_given(pick):
    giver = VERB[pick(("give", "show", "lend", "bring"))]
    noun = pick([noun for noun in giver.objects if noun.kind in ("thing", "clothes")])
    thing = described(pick, noun, THE, 0.25)
    finder = VERB[pick(("find", "buy", "see", "repair", "wash", "describe"))]
    if noun not in finder.objects:
        finder = VERB["find"]
    who = person(pick, (THE, THIS)) if pick.chance(0.6) else name(pick)
    recipient = recipient_of(pick, who.pronoun)
    if recipient.en == who.en:
        return it_is_given(pick)
    side = Clause(who, finder, "past", thing)
    main = Clause(back_reference(who), giver, "past", back_reference(thing), recipient)
    if pick.chance(0.5):
        return side_first(("when", "als"), side, main)
    return side_first(("after", "nachdem"), replace(side, tense="pluperfect"), main)


def it_is_but(pick):
    kind = pick(("thing", "vehicle", "text", "clothes", "building", "area", "animal"))
    noun = pick(NOUNS[kind])
    thing = noun_phrase(noun, pick((THE, THIS)), plural=pick.chance(0.2))
    tense, first = pick(("present", "past")), quality(pick, kind)
    second = quality(pick, kind, known=first[0])
    return with_but(be(thing, tense, first), be(back_reference(thing), tense, second))
