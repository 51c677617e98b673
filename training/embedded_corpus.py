"""A parallel English-German corpus from a grammar of its own: a demonstration needs no other text.

    python -m keras_transformer.training.embedded_corpus DIRECTORY

Every function builds the two languages side by side. The German follows from the English alone
(the English past is a preterite, in questions a perfect; "you" is always formal). What makes
translation hard is there: verb-final clauses, separable verbs, case and gender, pronouns that agree
with a noun far away, numbers, dates and prices.
"""

import argparse
import os
import pathlib
import random
import re
from dataclasses import dataclass, replace

from .embedded_lexicon import (
    A, ADJECTIVES, ADVERBS, ADVERBS_OF_TIME, BARE, CASES, CITIES, COUNTRIES, DEFINITE,
    DER_ENDINGS, EVERY, GIVING, INTRANSITIVE, KIND, MEN, MODALS, MONTHS, MOTION, NO, NO_ENDINGS,
    NOT_A, NOUN, NOUNS, PLACES, POSSESSIVES, PRONOUNS, QUANTIFIERS, RELATIVE, STRONG, SURNAMES, THE,
    THIS, TRANSITIVE, TWO_WAY, VERB, WEAK, WEEKDAYS, WHICH, WOMEN, Determiner, Noun, Verb,
    english_number, german_number,
)

TRAIN_PAIRS, VALID_PAIRS, TEST_PAIRS = 30_000, 500, 1_000
MIN_WORDS, MAX_WORDS = 4, 22

Pair = tuple[str, str]
NOTHING: Pair = ("", "")


class Pick:
    """Random choices, the same on every Python: only `random()` is promised to be stable."""

    def __init__(self, seed):
        self._random = random.Random(seed).random

    def __call__(self, options):
        return options[int(self._random() * len(options))]

    def chance(self, probability):
        return self._random() < probability

    def number(self, low, high):
        return low + int(self._random() * (high - low + 1))


def words(*parts):
    return " ".join(filter(None, parts))


def sentence(english, german, mark="."):
    return _finished(english.removesuffix("." * (mark == ".")) + mark), _finished(german + mark)


def _finished(text):
    text = re.sub(
        r",+(?=[.,?!“])", "", text
    )  # a clause that ends the sentence closes with no comma
    start = re.search(r"\w", text).start()
    return text[:start] + text[start].upper() + text[start + 1 :]


# Noun phrases


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


def english_article(word):
    vowel = re.match(r"[aeiou]|hon|hou", word) and not re.match(r"use|uni|eu|one", word)
    return "an" if vowel else "a"


def noun_phrase(noun: Noun, determiner, adjectives=(), plural=False, german_tail=""):
    number = "p" if plural else noun.gender
    described = words(*(a.en for a in adjectives), noun.en_plural if plural else noun.en)
    english = determiner.en_plural if plural else determiner.en
    if english == "a":
        english = english_article(described)
    english = words(english, described)
    german = {
        case: words(
            determiner.de + determiner.endings[case, number],
            *(a.stem + determiner.adjective_endings[case, number] for a in adjectives),
            noun.form(case, plural),
            german_tail,
        )
        for case in CASES
    }
    human = KIND[noun.en] in ("person", "family")
    if plural:
        pronoun = "they"
    elif human:
        pronoun = {"m": "he", "f": "she"}[noun.gender]
    else:
        pronoun = "it." + noun.gender
    agreement = "p" if plural else "3"
    return Phrase(english, english, german, agreement, determiner.status, pronoun, number)


def some_adjectives(pick, noun, chance=0.45):
    kind = KIND[noun.en]
    adjectives = [pick(ADJECTIVES[kind])] if kind in ADJECTIVES and pick.chance(chance) else []
    if kind in ("thing", "clothes", "vehicle") and pick.chance(0.12):
        adjectives.append(pick(ADJECTIVES["color"]))
    if kind == "animal" and pick.chance(0.12):
        adjectives.append(pick(ADJECTIVES["fur"]))
    return adjectives


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


def possessed_by(possessor: Phrase):
    """A determiner and what follows the noun: the teacher's car, das Auto des Lehrers."""
    owner = possessor.en + "'s"
    if " " not in possessor.en:
        return Determiner(owner, possessor.de["gen"], NO_ENDINGS, STRONG, "definite", owner), ""
    return Determiner(owner, "", DEFINITE, WEAK, "definite", owner), possessor.de["gen"]


def possessor(pick):
    return given_name(pick) if pick.chance(0.5) else person(pick, (THE,), 0)


def given_name(pick):
    phrase = name(pick)
    return phrase if " " not in phrase.en else given_name(pick)


def person(pick, determiners=(THE, THE, THE, A, THIS), plural_chance=0.15):
    noun, determiner = pick(NOUNS["person"]), pick(determiners)
    plural = bool(determiner.en_plural) and pick.chance(plural_chance)
    return noun_phrase(noun, determiner, some_adjectives(pick, noun, 0.25), plural)


def relative_of(pick, owner=""):
    """A member of somebody's family; of the owner's own, where an owner is given."""
    noun = pick(NOUNS["family"])
    if not owner and pick.chance(0.25):
        determiner, tail = possessed_by(possessor(pick))
    else:
        determiner, tail = POSSESSIVES[owner or pick(PERSONAL).pronoun], ""
    return noun_phrase(noun, determiner, some_adjectives(pick, noun, 0.15), german_tail=tail)


def subject(pick, definite=False):
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


def couple(pick):
    first = given_name(pick)
    second = given_name(pick) if pick.chance(0.5) else relative_of(pick, first.pronoun)
    if first.en == second.en:
        return couple(pick)
    german = {case: f"{first.de[case]} und {second.de[case]}" for case in CASES}
    english = f"{first.en} and {second.en}"
    return Phrase(english, english, german, "p", "definite", "they")


def object_of(pick, noun, owner, definite=False):
    """What somebody, whose pronoun is `owner`, does something to."""
    kind = KIND[noun.en]
    adjectives = some_adjectives(pick, noun)
    if kind == "family":
        return noun_phrase(noun, POSSESSIVES[owner or pick(PERSONAL).pronoun], adjectives[:1])
    if kind == "mass":
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


def numeral(n, digits=False):
    english, german = digits_of(n) if digits else (english_number(n), german_number(n))
    return Determiner("", german, NO_ENDINGS, STRONG, "indefinite", english)


def digits_of(n, cents=None):
    english = f"{n:,}" + (f".{cents:02}" if cents is not None else "")
    return english, english.translate(str.maketrans(",.", ".,"))


# Clauses


def english_verb(verb: Verb, agreement, tense):
    """(finite, rest) for a statement, and (auxiliary, rest) for negation and questions."""
    third = agreement == "3"
    if tense in MODALS:
        _, _, *finites, lead = MODALS[tense]
        plain, auxiliary = finites[:2][not third], finites[2:][not third]
        rest = words(lead, verb.en)
        return (plain, rest if plain == auxiliary else verb.en), (auxiliary, rest)
    if tense == "future":
        return (("will", verb.en),) * 2
    if tense in ("perfect", "pluperfect"):
        return ((VERB["have"].english(agreement, tense == "pluperfect"), verb.en_participle),) * 2
    finite = verb.english(agreement, tense == "past")
    if verb.en == "be":
        return ((finite, ""),) * 2
    return (finite, ""), ("did" if tense == "past" else "does" if third else "do", verb.en)


def german_verb(verb: Verb, agreement, tense):
    """(finite, what ends the clause, what a simple tense separates)."""
    infinitive = verb.prefix + verb.infinitive
    if tense in MODALS:
        return MODALS[tense][agreement == "p"], infinitive, ""
    if tense == "future":
        return VERB["become"].german(agreement), infinitive, ""
    if tense in ("perfect", "pluperfect"):
        auxiliary = VERB["be" if verb.auxiliary == "sein" else "have"]
        return auxiliary.german(agreement, tense == "pluperfect"), verb.participle, ""
    return verb.german(agreement, tense == "past"), "", verb.prefix


CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}


def with_preposition(preposition, german):
    contracted = CONTRACTIONS.get(f"{preposition} {german.split()[0]}")
    return words(contracted, german.partition(" ")[2]) if contracted else f"{preposition} {german}"


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    verb: Verb
    tense: str
    object: Phrase | None = None
    recipient: Phrase | None = None
    complement: Pair = (
        NOTHING  # belongs to the verb and stands last: an adjective, a direction, a price
    )
    place: Pair = NOTHING
    time: Pair = NOTHING
    adverb: Pair = NOTHING
    negated: bool = False

    def english(self):
        return words(self.subject.en, self.english_predicate())

    def english_predicate(self):
        plain, helped = english_verb(self.verb, self.subject.agreement, self.tense)
        if self.negated:
            negation = "cannot" if helped[0] == "can" else f"{helped[0]} not"
            return words(negation, helped[1], self.english_tail())
        before, after = ("", self.adverb[0]) if plain == helped else (self.adverb[0], "")
        return words(before, plain[0], after, plain[1], self.english_tail())

    def english_question(self, front=""):
        _, (auxiliary, rest) = english_verb(self.verb, self.subject.agreement, self.tense)
        return words(front, auxiliary, self.subject.en, rest, self.english_tail())

    def english_to(self):
        return words("to", self.verb.en, self.english_tail())

    def english_tail(self):
        particle, target = self.verb.en_particle, self.object.en_object if self.object else ""
        core = [particle, self.verb.en_preposition, target]
        if self.object and self.object.status == "pronoun" and not self.verb.en_preposition:
            core = [target, particle]
        recipient = f"to {self.recipient.en_object}" if self.recipient else ""
        return words(*core, recipient, self.complement[0], self.place[0], self.time[0])

    def german(self):
        return self.german_inverted(self.subject.de["nom"], with_subject=False)

    def german_inverted(self, front="", with_subject=True):
        """The verb second, or first where nothing stands in front."""
        finite, end, separated = german_verb(self.verb, self.subject.agreement, self.tense)
        return words(front, finite, self.german_middle(with_subject), end, separated)

    def german_final(self, front="", with_subject=True):
        finite, end, separated = german_verb(self.verb, self.subject.agreement, self.tense)
        return words(front, self.german_middle(with_subject), end, separated + finite)

    def german_zu(self):
        return words(self.german_middle(with_subject=False), self.verb.zu_infinitive)

    def german_middle(self, with_subject):
        opening = [self.subject.de["nom"] if with_subject else ""]
        if self.verb.reflexive:
            myself = {"I": "mich", "we": "uns"}.get(self.subject.pronoun, "sich")
            opening.insert(1 if self.subject.status == "pronoun" else 0, myself)
        objects = {"pronoun": [], "definite": [], "indefinite": [], "negative": []}
        for phrase, case in ((self.recipient, "dat"), (self.object, self.verb.governs)):
            if phrase and not self.verb.preposition:
                objects[phrase.status].append(phrase.de[case])
        prepositional, particle = "", self.adverb[1]
        if self.object and self.verb.preposition:
            german = self.object.de[self.verb.governs]
            prepositional = with_preposition(self.verb.preposition, german)
        if self.negated and not objects["negative"]:
            particle = "nicht"
        known, time = words(*objects["definite"]), self.time[1]
        return words(
            *opening,
            *reversed(objects["pronoun"]),  # gibt es ihm, but gibt dem Kind das Buch
            *((known, time) if self.negated else (time, known)),  # nicht follows at once
            particle,
            self.place[1],
            *objects["indefinite"],
            *objects["negative"],
            prepositional,
            self.complement[1],
        )


VERBS_WITH_OBJECT = {}  # noun: the verbs that make sense with it
for _verb in TRANSITIVE:
    for _kind in _verb.objects:
        for _noun in NOUNS.get(_kind) or [NOUN[_kind]]:
            VERBS_WITH_OBJECT.setdefault(_noun.en, []).append(_verb)

PRESENT = ("present",) * 5 + (
    "future",
    "can",
    "has to",
    "wants to",
    "should",
    "may",
    "would like to",
)
PAST = ("past",) * 6 + ("had to", "could", "wanted to")
TENSES = PRESENT + PAST + ("perfect",) * 3
FRAME = {tense: "present" for tense in PRESENT} | {tense: "past" for tense in PAST}
FRAME |= {"future": "future", "wants to": "future", "has to": "future"}


INVOLUNTARY = ("see", "lose", "need", "forget", "understand", "dream", "break", "fall", "wake")


def objects_of(verb):
    return [noun for kind in verb.objects for noun in NOUNS.get(kind) or [NOUN[kind]]]


def transitive(pick, who, verb, tense, negated=False):
    noun = pick(objects_of(verb))
    people = KIND[noun.en] in ("person", "family")
    own = who.pronoun
    if negated and not verb.preposition and verb.governs == "acc" and pick.chance(0.5):
        bare = KIND[noun.en] == "mass"
        determiner = replace(NOT_A, en="") if bare else NOT_A
        target = noun_phrase(noun, determiner, some_adjectives(pick, noun))
        if KIND[noun.en] == "family":
            target = object_of(pick, noun, own)
    elif people and pick.chance(0.15):
        target = pick([p for p in PERSONAL if p.en != who.en and {p.en, who.en} != {"I", "we"}])
    elif people and pick.chance(0.2):
        target = name(pick)
    else:
        target = object_of(pick, noun, own, definite=negated)
    if target.en == who.en or target.pronoun == who.pronoun and target.status == "pronoun":
        return transitive(pick, who, verb, tense, negated)
    return Clause(who, verb, tense, target, negated=negated)


def recipient_of(pick, own):
    kind = pick.number(1, 10)
    if kind <= 3:
        return person(pick, (THE,))
    if kind <= 6:
        return relative_of(pick, own)
    return name(pick) if kind <= 8 else noun_phrase(NOUN["child"], THE, plural=pick.chance(0.3))


def giving(pick, who, tense, negated):
    verb = pick(GIVING)
    recipient = recipient_of(pick, who.pronoun)
    if recipient.en == who.en:
        return giving(pick, who, tense, negated)
    target = object_of(pick, pick(objects_of(verb)), who.pronoun, definite=negated)
    return Clause(who, verb, tense, target, recipient, negated=negated)


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


def motion(pick, who, tense, negated=False):
    verb = pick(MOTION)
    if verb.en in ("travel", "fly") or verb.en == "drive" and pick.chance(0.4):
        english, german = pick(CITIES + COUNTRIES)
        return Clause(
            who, verb, tense, complement=(f"to {english}", f"nach {german}"), negated=negated
        )
    return Clause(who, verb, tense, complement=direction(pick), negated=negated)


def direction(pick):
    noun = NOUN[pick(list(PLACES))]
    preposition, case = PLACES[noun.en][2].split(":")
    target = noun_phrase(noun, THE, some_adjectives(pick, noun, 0.2))
    return f"to {target.en}", with_preposition(preposition, target.de[case])


def location(pick, town=False):
    if town or pick.chance(0.35):
        english, german = pick(CITIES)
        return f"in {english}", f"in {german}"
    noun = NOUN[pick(list(PLACES))]
    english, german, _ = PLACES[noun.en]
    target = noun_phrase(noun, THE, some_adjectives(pick, noun, 0.2))
    return f"{english} {target.en}", with_preposition(german, target.de["dat"])


def surroundings(pick, who):
    return company(pick, who) if pick.chance(0.3) else location(pick)


def company(pick, who):
    partner = relative_of(pick, who.pronoun)
    return f"with {partner.en}", f"mit {partner.de['dat']}"


# Times


def date(pick):
    (english, german), day, year = pick(MONTHS), pick.number(1, 28), pick.number(1900, 2029)
    if pick.chance(0.5):
        return f"on {english} {day}", f"am {day}. {german}"
    return f"on {english} {day}, {year}", f"am {day}. {german} {year}"


def past_date(pick):
    kind, (month, monat), year = pick.number(1, 3), pick(MONTHS), pick.number(1900, 2025)
    if kind == 1:
        return f"in {year}", f"im Jahr {year}"
    return (f"in {month} {year}", f"im {monat} {year}") if kind == 2 else date(pick)


def ago(pick):
    noun, count = pick(NOUNS["unit"]), numeral(pick.number(2, 30))
    span = noun_phrase(noun, count, plural=True)
    return f"{span.en} ago", f"vor {span.de['dat']}"


def clock(pick):
    hour, minute = pick.number(1, 12), pick((5, 10, 15, 20))
    now, following = spoken_hour(hour), spoken_hour(hour % 12 + 1)
    kind = pick.number(1, 5)
    if kind == 1:
        german = "ein" if hour == 1 else now[1]
        return f"at {now[0]} o'clock", f"um {german} Uhr"
    if kind == 2:
        return f"at half past {now[0]}", f"um halb {following[1]}"
    if kind == 3:
        return digital_clock(hour, pick.number(0, 11) * 5, pick(("a.m.", "p.m.")))
    spoken = ("a quarter", "Viertel") if minute == 15 else spoken_hour(minute)
    if kind == 4:
        return f"at {spoken[0]} past {now[0]}", f"um {spoken[1]} nach {now[1]}"
    return f"at {spoken[0]} to {following[0]}", f"um {spoken[1]} vor {following[1]}"


def spoken_hour(n):
    return english_number(n), german_number(n)


def digital_clock(hour, minute, half):
    german_hour = hour % 12 + 12 * (half == "p.m.")
    return f"at {hour}:{minute:02} {half}", f"um {german_hour}:{minute:02} Uhr"


def weekday(pick, frame="past", parts=True):
    english, german = pick(WEEKDAYS)
    if frame == "present":
        return f"on {english}s", f"{german.lower()}s"
    part = pick((NOTHING, (" morning", "morgen"), (" evening", "abend"))) if parts else NOTHING
    return f"on {english}{part[0]}", f"am {german}{part[1]}"


def appointment(pick, frame="past"):
    day, hour = weekday(pick, frame, parts=False), clock(pick)
    return words(day[0], hour[0]), words(day[1], hour[1])


def time_phrase(pick, frame):
    kind = pick.number(1, 10)
    if kind <= 5:
        return pick(ADVERBS_OF_TIME[frame])
    if kind <= 7:
        return weekday(pick, frame)
    if kind == 8:
        event = noun_phrase(pick(NOUNS["event"]), THE)
        return f"during {event.en}", f"während {event.de['gen']}"
    if kind == 9:
        return appointment(pick, frame)
    if frame == "past":
        return past_date(pick) if pick.chance(0.5) else ago(pick)
    if frame == "future":
        span = noun_phrase(pick(NOUNS["unit"]), numeral(pick.number(2, 12)), plural=True)
        return f"in {span.en}", f"in {span.de['dat']}"
    return clock(pick)


def decorated(pick, clause):
    """The clause with a time, a place, a companion or an adverb that suits it."""
    fitting = [(en, de) for en, de, tenses in ADVERBS if clause.tense in tenses.split()]
    if clause.negated:
        return timed(pick, clause) if pick.chance(0.3) else clause
    if fitting and pick.chance(0.4 if "perfect" in clause.tense else 0.12):
        return replace(clause, adverb=pick(fitting))
    if pick.chance(0.6):
        clause = timed(pick, clause)
    if clause.complement == NOTHING and pick.chance(0.35):
        clause = replace(clause, place=surroundings(pick, clause.subject))
    return clause


def timed(pick, clause):
    frame = FRAME.get(clause.tense)
    return replace(clause, time=time_phrase(pick, frame)) if frame else clause


def be(who, tense, complement, **rest):
    return Clause(who, VERB["be"], tense, complement=complement, **rest)


def quality(pick, kind, degree=True, known=""):
    """A predicative adjective that is not in what is known already."""
    adjective = pick([a for a in ADJECTIVES[kind] if a.en not in known.split()])
    degrees = (NOTHING, NOTHING, ("very", "sehr"), ("too", "zu"))
    english, german = pick(degrees) if degree and adjective.en != "broken" else NOTHING
    return words(english, adjective.en), words(german, adjective.de)


def comma_after(time):
    return time + "," if " " in time else time


# Sentences


def statement(pick):
    tense, negated = pick(TENSES), pick.chance(0.2)
    clause = decorated(pick, action(pick, subject(pick, definite=negated), tense, negated))
    return sentence(clause.english(), clause.german())


def fronted(pick):
    """Something else than the subject stands first: the German verb stays second."""
    tense, negated = pick(PRESENT + PAST), pick.chance(0.2)
    clause = action(pick, subject(pick, definite=True), tense, negated)
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


def state(pick):
    who = subject(pick, definite=True)
    tense, negated = pick(("present", "present", "past", "past", "perfect", "future")), pick.chance(
        0.2
    )
    if pick.chance(0.5):
        clause = be(who, tense, quality(pick, "person", not negated), negated=negated)
    else:
        clause = decorated(pick, be(who, tense, quality(pick, "mood", False), negated=negated))
    return sentence(clause.english(), clause.german())


def back_reference(who):
    return PRONOUN[who.pronoun]


def subordinate(pick):
    """A verb-final clause after or before the main clause, whose subject is often the same."""
    past = pick.chance(0.6)
    english, german, tense = pick(
        (
            ("because", "weil", "past"),
            ("because", "weil", "pluperfect"),
            ("although", "obwohl", "past"),
            ("when", "als", "past"),
            ("before", "bevor", "past"),
            ("after", "nachdem", "pluperfect"),
        )
        if past
        else (
            ("because", "weil", "present"),
            ("although", "obwohl", "present"),
            ("if", "wenn", "present"),
            ("because", "weil", "perfect"),
            ("as soon as", "sobald", "present"),
            ("if", "wenn", "can"),
            ("when", "wenn", "present"),
            ("because", "weil", "wants to"),
            ("because", "weil", "has to"),
        )
    )
    who = subject(pick, definite=True)
    other = back_reference(who) if pick.chance(0.6) else subject(pick, definite=True)
    first_main = pick.chance(0.6)
    who, other = (who, other) if first_main else (other, who)
    can_negate = english in ("because", "although", "if")
    main = action(pick, who, pick(PAST if past else PRESENT), not can_negate and pick.chance(0.1))
    if can_negate and tense in ("past", "present") and pick.chance(0.35):
        side = be(other, tense, quality(pick, "person"))
    else:
        side = action(pick, other, tense, can_negate and pick.chance(0.25))
    if pick.chance(0.35):
        side = timed(pick, side)
    if first_main:
        comma = "," if english == "although" else ""
        return sentence(
            f"{main.english()}{comma} {english} {side.english()}",
            f"{main.german()}, {side.german_final(german)}",
        )
    return sentence(
        f"{english} {side.english()}, {main.english()}",
        f"{side.german_final(german)}, {main.german_inverted()}",
    )


def reported(pick):
    who = subject(pick, definite=True)
    past = pick.chance(0.4)
    tense = "past" if past else "present"
    clause = action(
        pick, subject(pick, definite=True), pick(PAST if past else PRESENT + ("perfect",))
    )
    clause = timed(pick, clause) if pick.chance(0.5) else clause
    verb, english, german = pick(
        (
            ("know", "that", "dass"),
            ("say", "that", "dass"),
            ("hope", "that", "dass"),
            ("believe", "that", "dass"),
            ("ask", "whether", "ob"),
            ("wonder", "why", "warum"),
            ("know", "where", "wo"),
            ("ask", "when", "wann"),
            ("wonder", "whether", "ob"),
        )
    )
    if english in ("where", "when"):
        clause = replace(clause, time=NOTHING)
    report = Clause(who, VERB[verb], tense)
    said = (
        f"{report.english()} {english} {clause.english()}",
        f"{report.german()}, {clause.german_final(german)}",
    )
    if english != "that" or pick.chance(0.6):
        return sentence(*said)
    reason = action(
        pick,
        back_reference(clause.subject),
        tense if past else pick(("present", "perfect", "has to")),
    )
    return sentence(
        f"{said[0]} because {reason.english()}", f"{said[1]}, {reason.german_final('weil')}"
    )


def with_relative_clause(pick, head, noun):
    """The head with a clause that describes it, in which it is the subject or the object."""
    german = {case: RELATIVE[case, head.gender] for case in CASES}
    human = KIND[noun.en] in ("person", "family", "child")
    tense = pick(("past", "past", "perfect", "present", "wants to" if human else "past"))
    if human and pick.chance(0.5):
        pronoun = Phrase(
            "who", "whom", german, head.agreement, "pronoun", head.pronoun, head.gender
        )
        clause = action(
            pick, replace(pronoun, pronoun="" if noun.en == "child" else head.pronoun), tense
        )
        clause = timed(pick, clause) if pick.chance(0.3) else clause
        english, german = clause.english(), clause.german_final()
    else:
        verb, who = pick(VERBS_WITH_OBJECT[noun.en]), subject(pick, definite=True)
        tense = tense if verb.tense_is_audible else "perfect"
        clause = (
            timed(pick, Clause(who, verb, tense)) if pick.chance(0.3) else Clause(who, verb, tense)
        )
        front = words(verb.preposition, german[verb.governs])
        english = f"{'whom' if human else 'that'} {clause.english()}"
        german = clause.german_final(front)
    return replace(
        head,
        en=f"{head.en} {english}",
        en_object=f"{head.en} {english}",
        de={case: f"{head.de[case]}, {german}," for case in CASES},
    )


def relative_clause(pick):
    kind = pick(
        ("person", "person", "child", "animal", "thing", "text", "clothes", "vehicle", "building")
    )
    noun = pick(NOUNS[kind])
    plural = pick.chance(0.25)
    head = noun_phrase(noun, THE, some_adjectives(pick, noun, 0.2), plural)
    if pick.chance(0.55):
        described = with_relative_clause(pick, head, noun)
        clause = be(described, pick(("present", "past")), quality(pick, kind, known=head.en))
    else:
        verb = pick([v for v in VERBS_WITH_OBJECT[noun.en] if not v.prefix])
        who = subject(pick, definite=True)
        tense = "past" if not verb.tense_is_audible else pick(("past", "present"))
        described = with_relative_clause(pick, head, noun)
        if who.status != "pronoun" and who.en in described.en:
            return relative_clause(pick)
        clause = Clause(who, verb, tense, described)
    return sentence(clause.english(), clause.german())


def question_tense(clause):
    """Spoken German asks about the past in the perfect."""
    if clause.tense == "past" and clause.verb.en != "be":
        return replace(clause, tense="perfect")
    return clause


def question(pick):
    who = subject(pick, definite=True)
    tense = pick(PRESENT + PAST)
    if pick.chance(0.15):
        clause = be(who, pick(("present", "past")), quality(pick, "mood"))
    else:
        clause = action(pick, who, tense)
        clause = timed(pick, clause) if pick.chance(0.4) else clause
    english, german = pick(
        (NOTHING, NOTHING, NOTHING, ("when", "wann"), ("why", "warum"), ("where", "wo"))
    )
    if clause.verb.en == "be" and english:
        english, german = "why", "warum"
    if english == "where" and clause.complement != NOTHING:
        english, german = "when", "wann"
    if english == "when":
        clause = replace(clause, time=NOTHING)
    return sentence(
        clause.english_question(english), question_tense(clause).german_inverted(german), "?"
    )


HOW_MANY = Determiner("", "wie viel", DER_ENDINGS, STRONG, "indefinite", "how many")
WHO = Phrase("who", "whom", {"nom": "wer", "acc": "wen", "dat": "wem"}, "3", "pronoun")


def question_word(pick):
    """Who, whom, which or how many: German declines them, and puts a preposition before them."""
    tense = pick(("past", "past", "past", "present", "wants to", "has to", "future"))
    if pick.chance(0.3):
        clause = action(pick, WHO, tense)
        clause = timed(pick, clause) if pick.chance(0.4) else clause
        return sentence(clause.english(), question_tense(clause).german_inverted("wer", False), "?")
    who, verb = subject(pick, definite=True), pick(TRANSITIVE)
    if who.agreement != "3" and not verb.tense_is_audible:
        tense = "past"
    noun = pick(objects_of(verb))
    if KIND[noun.en] in ("person", "family"):
        asked = WHO
    elif KIND[noun.en] != "mass" and pick.chance(0.4) and not verb.preposition:
        asked = noun_phrase(noun, HOW_MANY, some_adjectives(pick, noun, 0.2), plural=True)
    else:
        asked = noun_phrase(noun, WHICH, some_adjectives(pick, noun, 0.2))
    clause = Clause(who, verb, tense)
    front = words(verb.preposition, asked.de[verb.governs])
    return sentence(
        clause.english_question(asked.en_object), question_tense(clause).german_inverted(front), "?"
    )


def some_thing(pick, kinds=("thing", "clothes", "text", "vehicle", "animal", "food")):
    """A noun, its phrase, which `it` or `they` can stand for, and verbs with it as object."""
    noun = pick(NOUNS[pick(kinds)])
    phrase = noun_phrase(
        noun, pick((THE, THE, THIS)), some_adjectives(pick, noun, 0.25), pick.chance(0.2)
    )
    verbs = [v for v in VERBS_WITH_OBJECT[noun.en] if v.governs == "acc" and not v.preposition]
    return noun, phrase, verbs


def it_is_why(pick):
    noun, thing, verbs = some_thing(pick)
    who, negated = subject(pick, definite=True), pick.chance(0.3)
    if not negated and thing.agreement == "3" and pick.chance(0.3):
        thing = noun_phrase(noun, A, some_adjectives(pick, noun, 0.2))
    main = Clause(who, pick(verbs), "past", thing, negated=negated)
    side = be(back_reference(thing), "past", quality(pick, KIND[noun.en], known=thing.en))
    return sentence(
        f"{main.english()} because {side.english()}",
        f"{main.german()}, {side.german_final('weil')}",
    )


def it_after_all(pick):
    noun, thing, verbs = some_thing(pick)
    english, german, tense, main_tenses = pick(
        (
            ("although", "obwohl", "past", ("past", "had to", "wanted to")),
            ("because", "weil", "past", ("past", "could", "wanted to")),
            ("if", "wenn", "present", ("future", "can", "has to", "wants to", "should")),
        )
    )
    side = be(thing, tense, quality(pick, KIND[noun.en], known=thing.en))
    verb = pick([verb for verb in verbs if verb.en not in INVOLUNTARY])
    main = Clause(
        subject(pick, definite=True),
        verb,
        pick(main_tenses),
        back_reference(thing),
        negated=pick.chance(0.3),
    )
    return sentence(
        f"{english} {side.english()}, {main.english()}",
        f"{side.german_final(german)}, {main.german_inverted()}",
    )


def it_is_done_too(pick):
    noun, thing, verbs = some_thing(pick)
    beginnings = [verb for verb in verbs if verb.en in ("buy", "find", "order", "see", "catch")]
    endings = [verb for verb in verbs if verb not in beginnings]
    who, first, second = subject(pick, definite=True), pick(beginnings), pick(endings)
    clause, then = Clause(who, first, "past", thing), Clause(
        who, second, "past", back_reference(thing)
    )
    return sentence(
        f"{clause.english()} and {then.english_predicate()}",
        f"{clause.german()} und {then.german_inverted(with_subject=False)}",
    )


def it_is_given(pick):
    giver = VERB[pick(("give", "show", "lend", "bring"))]
    noun = pick([noun for noun in objects_of(giver) if KIND[noun.en] in ("thing", "clothes")])
    thing = noun_phrase(noun, THE, some_adjectives(pick, noun, 0.25))
    finder = VERB[pick(("find", "buy", "see", "repair", "wash", "describe"))]
    if noun not in objects_of(finder):
        finder = VERB["find"]
    who = person(pick, (THE, THIS)) if pick.chance(0.6) else name(pick)
    recipient = recipient_of(pick, who.pronoun)
    if recipient.en == who.en:
        return it_is_given(pick)
    side = Clause(who, finder, "past", thing)
    main = Clause(back_reference(who), giver, "past", back_reference(thing), recipient)
    if pick.chance(0.5):
        return sentence(
            f"when {side.english()}, {main.english()}",
            f"{side.german_final('als')}, {main.german_inverted()}",
        )
    side = replace(side, tense="pluperfect")
    return sentence(
        f"after {side.english()}, {main.english()}",
        f"{side.german_final('nachdem')}, {main.german_inverted()}",
    )


def it_is_but(pick):
    kind = pick(("thing", "vehicle", "text", "clothes", "building", "area", "animal"))
    noun = pick(NOUNS[kind])
    thing = noun_phrase(noun, pick((THE, THIS)), plural=pick.chance(0.2))
    tense, first = pick(("present", "past")), quality(pick, kind)
    second = quality(pick, kind, known=first[0])
    clause, then = be(thing, tense, first), be(back_reference(thing), tense, second)
    return sentence(
        f"{clause.english()}, but {then.english()}", f"{clause.german()}, aber {then.german()}"
    )


def intended(pick, who):
    clause = action(pick, who, "future")
    return intended(pick, who) if clause.verb.en in INVOLUNTARY else clause


def purpose(pick):
    who = subject(pick, definite=True)
    main = motion(pick, who, pick(("present", "past", "perfect", "wants to", "future")))
    aim = intended(pick, who)
    if aim.verb.preposition == "um":  # um um Hilfe zu bitten
        return purpose(pick)
    return sentence(
        f"{main.english()} in order {aim.english_to()}", f"{main.german()}, um {aim.german_zu()}"
    )


def intention(pick):
    who = subject(pick, definite=True)
    verb, tense = VERB[pick(("try", "decide", "promise", "hope"))], pick(
        ("present", "past", "perfect")
    )
    plan = intended(pick, who)
    plan = timed(pick, plan) if verb.en != "try" and pick.chance(0.5) else plan
    main = Clause(who, verb, tense)
    return sentence(f"{main.english()} {plan.english_to()}", f"{main.german()}, {plan.german_zu()}")


def quotation(pick):
    speaker = name(pick) if pick.chance(0.5) else person(pick, (THE,))
    kind = pick.number(1, 3)
    if kind == 1:
        clause = action(pick, subject(pick, definite=True), pick(PRESENT))
        said = Clause(speaker, VERB["ask"], pick(("present", "past")))
        english, german = clause.english_question(), clause.german_inverted()
        return sentence(
            f'"{capital(english)}?" {said.verb.english("3", said.tense == "past")} {speaker.en}',
            f"„{capital(german)}?“, {said.german_inverted()}",
        )
    clause = action(
        pick, subject(pick, definite=True), pick(PRESENT + ("perfect",)), pick.chance(0.2)
    )
    if pick.chance(0.3):
        clause = be(clause.subject, "present", quality(pick, "person"))
    english, german = capital(clause.english()), capital(clause.german())
    said = Clause(speaker, VERB["say"], pick(("present", "past")))
    if kind == 2:
        return sentence(
            f'"{english}," {said.verb.english("3", said.tense == "past")} {speaker.en}',
            f"„{german}“, {said.german_inverted()}",
        )
    return sentence(f'{said.english()}, "{english}."', f"{said.german()}: „{german}.“", "")


def capital(text):
    return text[0].upper() + text[1:]


def amount(pick):
    whole = pick.number(*pick(((2, 99), (100, 999), (1_000, 9_999))))
    kind = pick.number(1, 5)
    unit = pick((("euros", "Euro"), ("dollars", "Dollar")))
    if kind == 1 and whole % 100 != 1:
        return price(whole, None, unit, spelled=True)
    cents = pick((None, None, 50, 95, 99, 25, 75, 80, 5))
    return price(whole, cents, pick((unit, ("€", "€"), ("$", "$"))))


def price(whole, cents, unit, spelled=False):
    english, german = (
        (english_number(whole), german_number(whole)) if spelled else digits_of(whole, cents)
    )
    if unit[0] in "€$":
        return unit[0] + english, f"{german} {unit[1]}"
    return f"{english} {unit[0]}", f"{german} {unit[1]}"


def shopping(pick):
    noun, thing, _ = some_thing(pick, ("thing", "clothes", "text", "vehicle"))
    cost, kind = amount(pick), pick.number(1, 5)
    if kind == 1:
        clause = Clause(thing, VERB["cost"], "present", complement=cost)
        if thing.agreement == "3" and pick.chance(0.5):
            clause = replace(clause, tense=pick(("future", "past")))
        return sentence(clause.english(), clause.german())
    who = subject(pick, definite=True)
    tense = pick(("past", "past", "perfect", "future", "had to", "wants to"))
    if kind == 2:
        return sentence(
            Clause(thing, VERB["cost"], "present").english_question("how much"),
            Clause(thing, VERB["cost"], "present").german_inverted("wie viel"),
            "?",
        )
    if kind == 3:
        toward = f"{cost[0]} for {thing.en}", f"{cost[1]} für {thing.de['acc']}"
        clause = Clause(who, VERB["pay"], tense, complement=toward)
    else:
        verb = VERB[pick(("buy", "sell", "order"))]
        verb = verb if noun in objects_of(verb) else VERB["buy"]
        toward = f"for {cost[0]}", f"für {cost[1]}"
        if pick.chance(0.4):
            thing = noun_phrase(noun, A, some_adjectives(pick, noun))
        clause = Clause(who, verb, tense, thing, complement=toward)
    clause = timed(pick, clause) if pick.chance(0.3) else clause
    return sentence(clause.english(), clause.german())


def counted(pick, noun, high, digits=None):
    n = pick.number(2, high)
    if n % 100 == 1:
        n += 1
    digits = pick.chance(0.4) if digits is None else digits
    return noun_phrase(noun, numeral(n, digits), some_adjectives(pick, noun, 0.3), plural=True)


def counting(pick):
    kind, tense = pick.number(1, 6), pick(("present", "past"))
    if kind == 1:
        place = noun_phrase(
            NOUN["village"], pick((THE, THIS)), some_adjectives(pick, NOUN["village"])
        )
        clause = Clause(place, VERB["have"], tense, counted(pick, NOUN["inhabitant"], 9_999))
    elif kind == 2:
        noun = NOUN[pick(("book", "novel", "report", "contract"))]
        text = noun_phrase(noun, pick((THE, THIS)), some_adjectives(pick, noun))
        clause = Clause(text, VERB["have"], tense, counted(pick, NOUN["page"], 999))
    elif kind == 3:
        who = person(pick, (THE,), 0) if pick.chance(0.6) else name(pick)
        noun = pick(NOUNS[pick(("animal", "text", "clothes", "vehicle"))])
        clause = Clause(who, VERB["own"], tense, counted(pick, noun, pick((99, 999, 9_999))))
    elif kind == 4:
        years = pick.number(2, 99)
        old = f"{english_number(years)} years old", f"{german_number(years)} Jahre alt"
        clause = be(subject(pick, definite=True), tense, old)
    elif kind == 5:
        far = noun_phrase(NOUN[pick(("station", "airport", "lake", "market"))], THE)
        english, german = digits_of(pick.number(2, 60), None)
        tenth = pick((None, 5, 2, 8))
        if tenth:
            english, german = f"{english}.{tenth}", f"{german},{tenth}"
        noun = pick(NOUNS["building"])
        house = noun_phrase(noun, THE, some_adjectives(pick, noun))
        away = (
            f"{english} kilometers from {far.en}",
            f"{german} Kilometer {with_preposition('von', far.de['dat'])} entfernt",
        )
        clause = be(house, tense, away)
    else:
        who = subject(pick, definite=True)
        verb = VERB[pick(("buy", "sell", "find", "see"))]
        noun = pick(objects_of(verb))
        clause = timed(pick, Clause(who, verb, "past", counted(pick, noun, pick((99, 999)))))
    return sentence(clause.english(), clause.german())


def existence(pick):
    """There is: German says `gibt es`, with the accusative, after the place."""
    past, kind = pick.chance(0.3), pick.number(1, 4)
    noun = pick(NOUNS[pick(("building", "person", "animal"))])
    english, german = location(pick, town=KIND[noun.en] == "building")
    if kind == 1:
        what = noun_phrase(noun, A, some_adjectives(pick, noun))
    elif kind == 2:
        what = noun_phrase(noun, NO, some_adjectives(pick, noun), pick.chance(0.5))
    elif kind == 3:
        what = noun_phrase(noun, pick(QUANTIFIERS), some_adjectives(pick, noun), plural=True)
    else:
        what = counted(pick, noun, 99, digits=False)
    is_, gibt = VERB["be"].english(what.agreement, past), VERB["give"].german("3", past)
    return sentence(f"there {is_} {what.en} {english}", f"{german} {gibt} es {what.de['acc']}")


COMPARABLE = {
    kind: [a for a in adjectives if a.en_comparative]
    for kind, adjectives in ADJECTIVES.items()
    if kind in ("person", "thing", "clothes", "text", "vehicle", "building")
}


def comparison(pick):
    kind = pick(list(COMPARABLE))
    adjective = pick(COMPARABLE[kind])
    one, other = pick(NOUNS[kind]), pick(NOUNS[kind])
    if one == other:
        return comparison(pick)
    first, second = (
        noun_phrase(
            noun,
            pick((THE, THIS, POSSESSIVES[pick(PERSONAL).pronoun])),
            (
                [pick(ADJECTIVES["color"])]
                if kind in ("thing", "clothes", "vehicle") and pick.chance(0.4)
                else []
            ),
        )
        for noun in (one, other)
    )
    degree = adjective.en_comparative, adjective.de_comparative, "than", "als"
    if pick.chance(0.3):
        degree = f"as {adjective.en}", f"so {adjective.de}", "as", "wie"
    english, german, than, als = degree
    complement = f"{english} {than} {second.en}", f"{german} {als} {second.de['nom']}"
    clause = be(
        first, pick(("present", "past")), complement, negated=than == "as" and pick.chance(0.4)
    )
    return sentence(clause.english(), clause.german())


def passive(pick):
    if pick.chance(0.4):
        verb, noun = VERB["build"], pick(NOUNS["building"])
    else:
        verb = pick(
            [
                v
                for v in TRANSITIVE
                if v.governs == "acc" and not v.preposition and not v.en_particle
            ]
        )
        noun = pick([noun for noun in objects_of(verb) if KIND[noun.en] != "family"])
    what = noun_phrase(
        noun, THE, some_adjectives(pick, noun, 0.3), pick.chance(0.2) and KIND[noun.en] != "mass"
    )
    english = words(
        VERB["be"].english(what.agreement, True), verb.en_participle, verb.en_preposition
    )
    german, agent = VERB["become"].german(what.agreement, True), NOTHING
    if verb.en == "build" or pick.chance(0.5):
        when = past_date(pick)
    else:
        when = pick(ADVERBS_OF_TIME["past"]) if pick.chance(0.5) else ago(pick)
    if pick.chance(0.5):
        doer = pick((person(pick, (THE,)), relative_of(pick), name(pick)))
        agent = f"by {doer.en}", with_preposition("von", doer.de["dat"])
    if pick.chance(0.3):
        return sentence(
            words(comma_after(when[0]), what.en, english, agent[0]),
            words(when[1], german, what.de["nom"], agent[1], verb.participle),
        )
    return sentence(
        words(what.en, english, agent[0], when[0]),
        words(what.de["nom"], german, when[1], agent[1], verb.participle),
    )


def spot(pick, case):
    english, german = pick(TWO_WAY)
    noun = pick(NOUNS["surface"])
    adjectives = some_adjectives(pick, noun, 0.25)
    target = noun_phrase(noun, pick((THE, THE, POSSESSIVES[pick(PERSONAL).pronoun])), adjectives)
    return f"{english} {target.en}", with_preposition(german, target.de[case])


def placement(pick):
    """Where something lies is dative, where somebody puts it accusative."""
    kind, tense = pick.number(1, 4), pick(("present", "past", "past"))
    flat = pick.chance(0.5)
    noun = pick(NOUNS["flat" if flat else "upright"])
    what = noun_phrase(noun, pick((THE, THE, A, THIS)), some_adjectives(pick, noun))
    if kind <= 2:
        tense = pick(("past", "perfect", "future", "has to", "wanted to"))
        clause = Clause(
            subject(pick, definite=True),
            VERB["put" if flat else "place"],
            tense,
            what,
            complement=spot(pick, "acc"),
        )
        if pick.chance(0.3):
            clause = timed(pick, clause)
    elif kind == 3:
        clause = Clause(what, VERB["lie" if flat else "stand"], tense, complement=spot(pick, "dat"))
    else:
        noun = pick(NOUNS["hanging"])
        what = noun_phrase(noun, pick((THE, A)), some_adjectives(pick, noun))
        clause = Clause(what, VERB["hang"], tense, complement=("on the wall", "an der Wand"))
    return sentence(clause.english(), clause.german())


def schedule(pick):
    kind, at = pick.number(1, 3), clock(pick)
    if kind == 1:
        noun = pick(NOUNS["event"])
        event = noun_phrase(noun, THE, some_adjectives(pick, noun, 0.3))
        when = appointment(pick) if pick.chance(0.5) else at
        clause = Clause(
            event, VERB[pick(("begin", "end"))], pick(("present", "past", "future")), time=when
        )
        return sentence(clause.english(), clause.german())
    (here, hier), (there, dort) = pick(CITIES), pick(CITIES)
    noun = NOUN[pick(("train", "bus", "ship"))]
    train = noun_phrase(noun, pick((THE, THE, THIS)))
    train = replace(
        train, en=f"{train.en} to {there}", de={"nom": f"{train.de['nom']} nach {dort}"}
    )
    tense = pick(("present", "past", "future", "perfect"))
    if kind == 2 or here == there:
        clause = Clause(train, VERB["depart"], tense, time=at)
        return sentence(clause.english(), clause.german())
    leaves = Clause(
        train, VERB["depart"], "present", complement=(f"from {here}", f"in {hier}"), time=at
    )
    arrives = Clause(train, VERB["arrive"], "present", time=clock(pick))
    return sentence(
        f"{leaves.english()} and {arrives.english_predicate()}",
        f"{leaves.german()} und {arrives.german_inverted(with_subject=False)}",
    )


def birth(pick):
    who = subject(pick, definite=True)
    english, german = pick(CITIES)
    when = date(pick) if pick.chance(0.6) else past_date(pick)
    place = (f"in {english}", f"in {german}") if pick.chance(0.7) else NOTHING
    was, wurde = VERB["be"].english(who.agreement, True), VERB["become"].german(who.agreement, True)
    return sentence(
        words(who.en, was, "born", place[0], when[0]),
        words(who.de["nom"], wurde, when[1], place[1], "geboren"),
    )


def residence(pick):
    who, tense = subject(pick, definite=True), pick(("present", "past", "future", "would like to"))
    english, german = pick(CITIES + COUNTRIES)
    clause = Clause(
        who,
        VERB["live"],
        tense,
        complement=(f"in {english}", f"in {german}"),
        negated=pick.chance(0.25),
    )
    if tense in ("past", "future") and pick.chance(0.4):
        last, letztes = ("last", "letztes") if tense == "past" else ("next", "nächstes")
        clause = replace(clause, time=(f"{last} year", f"{letztes} Jahr"))
    return sentence(clause.english(), clause.german())


def profession(pick):
    """German drops the article before a bare profession: Er ist Arzt, but er ist ein guter Arzt."""
    female = pick.chance(0.4)
    noun = pick([n for n in NOUNS["profession"] if (n.gender == "f") == female])
    who = pick((relative_of(pick), name(pick), pick(PERSONAL[3:5])))
    if (who.pronoun == "she") != female:
        return profession(pick)
    adjective = [pick(ADJECTIVES["person"])] if pick.chance(0.5) else []
    what = noun_phrase(noun, A, adjective)
    complement = what.en, what.de["nom"] if adjective else noun.de
    verb, tense = pick(
        (
            ("be", "present"),
            ("be", "past"),
            ("become", "future"),
            ("become", "wants to"),
            ("become", "would like to"),
            ("become", "past"),
            ("become", "perfect"),
        )
    )
    clause = Clause(who, VERB[verb], tense, complement=complement)
    return sentence(clause.english(), clause.german())


def coordination(pick):
    who, tense = subject(pick, definite=True), pick(("past", "past", "present"))
    first, second = action(pick, who, tense), action(pick, who, tense)
    if first.verb == second.verb:
        return coordination(pick)
    if pick.chance(0.5):
        return sentence(
            f"{first.english()} and {second.english_predicate()}",
            f"{first.german()} und {second.german_inverted(with_subject=False)}",
        )
    then = action(pick, back_reference(who), tense, negated=True)
    return sentence(
        f"{first.english()}, but {then.english()}", f"{first.german()}, aber {then.german()}"
    )


def contrast(pick):
    one, _, verbs = some_thing(pick)
    verb = pick(verbs)
    other = pick([noun for noun in objects_of(verb) if KIND[noun.en] not in ("family", "mass")])
    if one == other:
        return contrast(pick)
    first, second = (noun_phrase(n, THE, some_adjectives(pick, n, 0.2)) for n in (one, other))
    english = f"not {first.en} but {second.en}"
    both = replace(
        first,
        en_object=english,
        status="definite",
        de={"acc": f"nicht {first.de['acc']}, sondern {second.de['acc']}"},
    )
    clause = Clause(subject(pick, definite=True), verb, pick(("past", "perfect", "future")), both)
    return sentence(clause.english(), clause.german())


def request(pick):
    negated = pick.chance(0.3)
    clause = action(pick, PRONOUN["you"], "future", negated)
    clause = replace(clause, tense="present")
    if clause.verb in INTRANSITIVE or clause.verb.en in INVOLUNTARY and not negated:
        return request(pick)
    tail = words(clause.verb.en, clause.english_tail())
    if negated:
        return sentence(f"do not {tail}", clause.german_inverted(), "!")
    return sentence(f"please {tail}", clause.german_inverted("bitte"))


def generality(pick):
    noun = pick(NOUNS["person"] + NOUNS["child"])
    who = replace(noun_phrase(noun, EVERY, some_adjectives(pick, noun, 0.3)), pronoun="")
    clause = decorated(
        pick, action(pick, who, pick(("present", "has to", "can", "wants to", "past")))
    )
    return sentence(clause.english(), clause.german())


SENTENCES = (
    [statement] * 14
    + [fronted] * 14
    + [state] * 2
    + [subordinate] * 18
    + [reported] * 8
    + [relative_clause] * 9
    + [question] * 6
    + [question_word] * 4
    + [it_is_why] * 4
    + [it_after_all] * 5
    + [it_is_done_too] * 2
    + [it_is_given] * 3
    + [it_is_but] * 1
    + [purpose] * 4
    + [intention] * 3
    + [quotation] * 5
    + [shopping] * 6
    + [counting] * 5
    + [existence] * 2
    + [comparison] * 2
    + [passive] * 4
    + [placement] * 4
    + [schedule] * 5
    + [birth] * 1
    + [residence] * 1
    + [profession] * 1
    + [coordination] * 6
    + [contrast] * 1
    + [request] * 2
    + [generality] * 2
)


def generate(num_pairs: int, seed: int = 0) -> list[tuple[str, str]]:
    """Distinct English-German sentence pairs.

    No English sentence and no German sentence occurs twice, so that any division into training and
    test data keeps the test unseen. A longer list with the same seed begins with the shorter one.

    Args:
        num_pairs: how many.
        seed: an integer; the pairs depend on nothing else.

    Example:
        >>> len(generate(3, seed=1))
        3
    """
    if num_pairs < 0:
        raise ValueError(f"num_pairs must not be negative, received {num_pairs}")
    pick = Pick(seed)
    pairs, seen_english, seen_german = [], set(), set()
    while len(pairs) < num_pairs:
        english, german = pick(SENTENCES)(pick)
        stutters = re.search(r"\b(\w{4,}) \1\b", german)  # dass die Frau Frau Weber anruft
        fits = MIN_WORDS <= len(english.split()) <= MAX_WORDS and not stutters
        if fits and english not in seen_english and german not in seen_german:
            seen_english.add(english)
            seen_german.add(german)
            pairs.append((english, german))
    return pairs


def write(
    directory,
    train_pairs: int = TRAIN_PAIRS,
    valid_pairs: int = VALID_PAIRS,
    test_pairs: int = TEST_PAIRS,
    seed: int = 0,
) -> list[pathlib.Path]:
    """Writes train.en, train.de, valid.en, valid.de, test.en and test.de: a sentence a line, UTF-8.

    Returns:
        The paths of the files, in that order.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {"train": train_pairs, "valid": valid_pairs, "test": test_pairs}
    pairs = iter(generate(sum(sizes.values()), seed))
    paths = []
    for split, size in sizes.items():
        columns = zip(*(next(pairs) for _ in range(size))) if size else ((), ())
        for language, lines in zip(("en", "de"), columns):
            path = directory / f"{split}.{language}"
            partial = path.with_name(path.name + ".partial")
            partial.write_bytes("".join(line + "\n" for line in lines).encode())
            os.replace(partial, path)
            paths.append(path)
    return paths


def main():
    parser = argparse.ArgumentParser(description="Write the embedded English-German corpus.")
    parser.add_argument("directory", metavar="DIRECTORY")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in write(arguments.directory, seed=arguments.seed):
        print(path)


if __name__ == "__main__":
    main()
