"""What somebody does, one clause or two, with the orders of words that German and English allow."""

from dataclasses import replace

from .actions import action, decorated, quality, some_thing
from .adjectives import ADJECTIVES
from .clauses import Clause, be, was_and_wurde
from .determiners import EVERY, THE
from .nouns import NOUNS
from .phrases import (
    back_reference,
    described,
    name,
    noun_phrase,
    person,
    relative_of,
    some_adjectives,
    subject,
    with_preposition,
)
from .places import location, surroundings
from .sentences import told, with_and, with_but
from .tenses import FRAME, PAST, PRESENT, TENSES
from .text import NOTHING, sentence, words
from .times import ADVERBS_OF_TIME, ago, comma_after, past_date, time_phrase
from .verbs import TRANSITIVE, VERB


def statement(pick):
    tense, negated = pick(TENSES), pick.chance(0.2)
    who = subject(pick, definite=negated)
    return told(decorated(pick, action(pick, who, tense, negated)))


def generality(pick):
    noun = pick(NOUNS["person"] + NOUNS["child"])
    who = replace(described(pick, noun, EVERY, 0.3), pronoun="")
    tense = pick(("present", "has to", "can", "wants to", "past"))
    return told(decorated(pick, action(pick, who, tense)))


def state(pick):
    who = subject(pick)
    tense = pick(("present", "present", "past", "past", "perfect", "future"))
    negated = pick.chance(0.2)
    if pick.chance(0.5):
        return told(be(who, tense, quality(pick, "person", not negated), negated=negated))
    mood = quality(pick, "mood", degree=False)
    return told(decorated(pick, be(who, tense, mood, negated=negated)))


def fronted(pick):
    """Something else than the subject stands first: the German verb stays second."""
    tense, negated = pick(PRESENT + PAST), pick.chance(0.2)
    clause = action(pick, subject(pick), tense, negated)
    if clause.complement == NOTHING and not negated and pick.chance(0.4):
        clause = replace(clause, place=surroundings(pick, clause.subject))
    kind = pick.number(1, 10)
    if kind == 1:
        english, german = pick((("unfortunately,", "leider"), ("luckily,", "zum Glück")))
    elif kind == 2:
        event = noun_phrase(pick(NOUNS["event"]), THE, [pick(ADJECTIVES["event"])])
        english, german = f"because of {event.en},", f"wegen {event.de['gen']}"
    elif kind == 3 and clause.complement == clause.place == NOTHING and not negated:
        english, german = location(pick)
        english += ","
    else:
        english, german = time_phrase(pick, FRAME[tense])
        english = comma_after(english)
    return sentence(f"{english} {clause.english()}", clause.german_inverted(german))


def coordination(pick):
    who, tense = subject(pick), pick(("past", "past", "present"))
    first, second = action(pick, who, tense), action(pick, who, tense)
    if first.verb == second.verb:
        return coordination(pick)
    if pick.chance(0.5):
        return with_and(first, second)
    return with_but(first, action(pick, back_reference(who), tense, negated=True))


def contrast(pick):
    """Not this but that."""
    one, _, verbs = some_thing(pick)
    verb = pick(verbs)
    other = pick([noun for noun in verb.objects if noun.kind not in ("family", "mass")])
    if one == other:
        return contrast(pick)
    first, second = (described(pick, noun, THE, 0.2) for noun in (one, other))
    both = replace(
        first,
        en_object=f"not {first.en} but {second.en}",
        de={"acc": f"nicht {first.de['acc']}, sondern {second.de['acc']}"},
    )
    return told(Clause(subject(pick), verb, pick(("past", "perfect", "future")), both))


def passive(pick):
    if pick.chance(0.4):
        verb, noun = VERB["build"], pick(NOUNS["building"])
    else:
        accusative = [v for v in TRANSITIVE if v.governs == "acc" and not v.preposition]
        verb = pick([v for v in accusative if not v.en_particle])
        noun = pick([noun for noun in verb.objects if noun.kind != "family"])
    adjectives = some_adjectives(pick, noun, 0.3)
    what = noun_phrase(noun, THE, adjectives, pick.chance(0.2) and noun.kind != "mass")
    was, wurde = was_and_wurde(what)
    if verb.en == "build" or pick.chance(0.5):
        when = past_date(pick)
    else:
        when = pick(ADVERBS_OF_TIME["past"]) if pick.chance(0.5) else ago(pick)
    agent = NOTHING
    if pick.chance(0.5):
        doer = pick((person(pick, (THE,)), relative_of(pick), name(pick)))
        agent = f"by {doer.en}", with_preposition("von", doer.de["dat"])
    english = words(what.en, was, verb.en_participle, verb.en_preposition, agent[0])
    if pick.chance(0.3):
        return sentence(
            words(comma_after(when[0]), english),
            words(when[1], wurde, what.de["nom"], agent[1], verb.participle),
        )
    return sentence(
        words(english, when[0]),
        words(what.de["nom"], wurde, when[1], agent[1], verb.participle),
    )
