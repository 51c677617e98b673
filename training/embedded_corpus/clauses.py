"""A clause in both languages: what stands in it, and the orders of words it can take."""

from dataclasses import dataclass, replace

from .phrases import Phrase, with_preposition
from .tenses import english_verb, german_verb
from .text import NOTHING, Pair, words
from .verbs import VERB, Verb


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    verb: Verb
    tense: str
    object: Phrase | None = None
    recipient: Phrase | None = None
    complement: Pair = NOTHING  # stands last: an adjective, a direction, a price
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


def be(who, tense, complement, **rest):
    return Clause(who, VERB["be"], tense, complement=complement, **rest)


def question_tense(clause):
    """Spoken German asks about the past in the perfect."""
    if clause.tense == "past" and clause.verb.en != "be":
        return replace(clause, tense="perfect")
    return clause


def was_and_wurde(who):
    """The finite verbs of a passive in the past."""
    was = VERB["be"].english(who.agreement, past=True)
    return was, VERB["become"].german(who.agreement, past=True)
