"""Clauses inside clauses: conjunctions, reports, relative clauses, infinitives with zu."""

from dataclasses import replace

from .actions import action, intended, motion, quality, sometimes_timed
from .clauses import Clause, be
from .determiners import CASES, RELATIVE, THE
from .nouns import NOUNS
from .phrases import Phrase, back_reference, described, subject
from .sentences import main_first, side_first, told
from .tenses import PAST, PRESENT
from .text import NOTHING, sentence, words
from .verbs import VERB, verbs_with

BECAUSE, ALTHOUGH, IF = ("because", "weil"), ("although", "obwohl"), ("if", "wenn")
THAT = ("that", "dass")
WITH_PAST = (  # conjunction, tense of the subordinate clause
    (BECAUSE, "past"),
    (BECAUSE, "pluperfect"),
    (ALTHOUGH, "past"),
    (("when", "als"), "past"),
    (("before", "bevor"), "past"),
    (("after", "nachdem"), "pluperfect"),
)
WITH_PRESENT = (
    (BECAUSE, "present"),
    (ALTHOUGH, "present"),
    (IF, "present"),
    (BECAUSE, "perfect"),
    (("as soon as", "sobald"), "present"),
    (IF, "can"),
    (("when", "wenn"), "present"),
    (BECAUSE, "wants to"),
    (BECAUSE, "has to"),
)
REPORTS = (
    ("know", THAT),
    ("say", THAT),
    ("hope", THAT),
    ("believe", THAT),
    ("ask", ("whether", "ob")),
    ("wonder", ("why", "warum")),
    ("know", ("where", "wo")),
    ("ask", ("when", "wann")),
    ("wonder", ("whether", "ob")),
)


def subordinate(pick):
    """A verb-final clause after or before the main clause, whose subject is often the same."""
    past = pick.chance(0.6)
    conjunction, tense = pick(WITH_PAST if past else WITH_PRESENT)
    who = subject(pick)
    other = back_reference(who) if pick.chance(0.6) else subject(pick)
    main_is_first = pick.chance(0.6)
    if not main_is_first:
        who, other = other, who
    can_negate = conjunction in (BECAUSE, ALTHOUGH, IF)
    main = action(pick, who, pick(PAST if past else PRESENT), not can_negate and pick.chance(0.1))
    if can_negate and tense in ("past", "present") and pick.chance(0.35):
        side = be(other, tense, quality(pick, "person"))
    else:
        side = action(pick, other, tense, can_negate and pick.chance(0.25))
    side = sometimes_timed(pick, side, 0.35)
    if main_is_first:
        return main_first(main, conjunction, side)
    return side_first(conjunction, side, main)


def reported(pick):
    who = subject(pick)
    past = pick.chance(0.4)
    tense = "past" if past else "present"
    clause = action(pick, subject(pick), pick(PAST if past else PRESENT + ("perfect",)))
    clause = sometimes_timed(pick, clause, 0.5)
    verb, conjunction = pick(REPORTS)
    english, german = conjunction
    if english in ("where", "when"):
        clause = replace(clause, time=NOTHING)
    report = Clause(who, VERB[verb], tense)
    english = f"{report.english()} {english} {clause.english()}"
    german = f"{report.german()}, {clause.german_final(german)}"
    if conjunction != THAT or pick.chance(0.6):
        return sentence(english, german)
    reason_tense = tense if past else pick(("present", "perfect", "has to"))
    reason = action(pick, back_reference(clause.subject), reason_tense)
    return sentence(
        f"{english} because {reason.english()}", f"{german}, {reason.german_final('weil')}"
    )


def relative_clause(pick):
    kind = pick(
        ("person", "person", "child", "animal", "thing", "text", "clothes", "vehicle", "building")
    )
    noun, plural = pick(NOUNS[kind]), pick.chance(0.25)
    head = described(pick, noun, THE, 0.2, plural)
    if pick.chance(0.55):
        whole = with_relative_clause(pick, head, noun)
        tense = pick(("present", "past"))
        return told(be(whole, tense, quality(pick, kind, known=head.en)))
    verb = pick([verb for verb in verbs_with(noun) if not verb.prefix])
    who = subject(pick)
    tense = pick(("past", "present")) if verb.tense_is_audible else "past"
    whole = with_relative_clause(pick, head, noun)
    if who.status != "pronoun" and who.en in whole.en:
        return relative_clause(pick)
    return told(Clause(who, verb, tense, whole))


def with_relative_clause(pick, head, noun):
    """The head with a clause that describes it, in which it is the subject or the object."""
    pronoun = {case: RELATIVE[case, head.gender] for case in CASES}
    human = noun.is_human or noun.kind == "child"
    tense = pick(("past", "past", "perfect", "present", "wants to" if human else "past"))
    if human and pick.chance(0.5):
        owner = "" if noun.kind == "child" else head.pronoun
        who = Phrase("who", "whom", pronoun, head.agreement, "pronoun", owner, head.gender)
        clause = sometimes_timed(pick, action(pick, who, tense), 0.3)
        english, german = clause.english(), clause.german_final()
    else:
        verb, who = pick(verbs_with(noun)), subject(pick)
        tense = tense if verb.tense_is_audible else "perfect"
        clause = sometimes_timed(pick, Clause(who, verb, tense), 0.3)
        english = f"{'whom' if human else 'that'} {clause.english()}"
        german = clause.german_final(words(verb.preposition, pronoun[verb.governs]))
    english = f"{head.en} {english}"
    german = {case: f"{head.de[case]}, {german}," for case in CASES}
    return replace(head, en=english, en_object=english, de=german)


def purpose(pick):
    who = subject(pick)
    main = motion(pick, who, pick(("present", "past", "perfect", "wants to", "future")))
    aim = intended(pick, who)
    if aim.verb.preposition == "um":  # um um Hilfe zu bitten
        return purpose(pick)
    return sentence(
        f"{main.english()} in order {aim.english_to()}", f"{main.german()}, um {aim.german_zu()}"
    )


def intention(pick):
    who = subject(pick)
    verb = VERB[pick(("try", "decide", "promise", "hope"))]
    main = Clause(who, verb, pick(("present", "past", "perfect")))
    plan = intended(pick, who)
    if verb.en != "try":
        plan = sometimes_timed(pick, plan, 0.5)
    return sentence(f"{main.english()} {plan.english_to()}", f"{main.german()}, {plan.german_zu()}")
