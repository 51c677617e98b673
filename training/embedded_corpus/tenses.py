"""Verb forms by tense: the finite verb and what else the tense adds. A modal counts as a tense."""

from .verbs import VERB, Verb

# german singular and plural; english finite, third person and others; english auxiliary of negation
# and questions, third person and others; what follows that auxiliary
MODALS = {
    "can": ("kann", "können", "can", "can", "can", "can", ""),
    "could": ("konnte", "konnten", "could", "could", "could", "could", ""),
    "may": ("darf", "dürfen", "may", "may", "may", "may", ""),
    "should": ("sollte", "sollten", "should", "should", "should", "should", ""),
    "has to": ("muss", "müssen", "has to", "have to", "does", "do", "have to"),
    "had to": ("musste", "mussten", "had to", "had to", "did", "did", "have to"),
    "wants to": ("will", "wollen", "wants to", "want to", "does", "do", "want to"),
    "wanted to": ("wollte", "wollten", "wanted to", "wanted to", "did", "did", "want to"),
    "would like to": ("möchte", "möchten", "would", "would", "would", "would", "like to"),
}

# What is drawn from, the plain tense more often than any other.
PRESENT = ("present",) * 5 + ("future", "can", "has to", "wants to", "should", "may")
PRESENT += ("would like to",)
PAST = ("past",) * 6 + ("had to", "could", "wanted to")
TENSES = PRESENT + PAST + ("perfect",) * 3

# The adverbs of time that go with a tense; with a perfect, none.
FRAME = {tense: "present" for tense in PRESENT} | {tense: "past" for tense in PAST}
FRAME |= {tense: "future" for tense in ("future", "wants to", "has to")}


def english_verb(verb: Verb, agreement, tense):
    """(finite, rest) for a statement, and (auxiliary, rest) for negation and questions."""
    third = agreement == "3"
    if tense in MODALS:
        _, _, third_plain, plain, third_auxiliary, auxiliary, lead = MODALS[tense]
        if third:
            plain, auxiliary = third_plain, third_auxiliary
        rest = f"{lead} {verb.en}" if lead else verb.en
        return (plain, rest if plain == auxiliary else verb.en), (auxiliary, rest)
    if tense == "future":
        finite, rest = "will", verb.en
    elif tense in ("perfect", "pluperfect"):
        finite = VERB["have"].english(agreement, past=tense == "pluperfect")
        rest = verb.en_participle
    else:
        finite, rest = verb.english(agreement, past=tense == "past"), ""
        if verb.en != "be":
            auxiliary = "did" if tense == "past" else "does" if third else "do"
            return (finite, rest), (auxiliary, verb.en)
    return (finite, rest), (finite, rest)


def german_verb(verb: Verb, agreement, tense):
    """(finite, what ends the clause, what a simple tense separates)."""
    infinitive = verb.prefix + verb.infinitive
    if tense in MODALS:
        singular, plural, *_ = MODALS[tense]
        return plural if agreement == "p" else singular, infinitive, ""
    if tense == "future":
        return VERB["become"].german(agreement), infinitive, ""
    if tense in ("perfect", "pluperfect"):
        auxiliary = VERB["be" if verb.auxiliary == "sein" else "have"]
        return auxiliary.german(agreement, past=tense == "pluperfect"), verb.participle, ""
    return verb.german(agreement, past=tense == "past"), "", verb.prefix
