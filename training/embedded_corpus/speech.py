"""What is asked, requested and quoted."""

from dataclasses import replace

from .actions import INVOLUNTARY, action, quality, sometimes_timed
from .clauses import Clause, be, question_tense
from .determiners import HOW_MANY, THE, WHICH
from .phrases import PRONOUN, Phrase, described, name, person, subject
from .tenses import PAST, PRESENT
from .text import NOTHING, capital, sentence, words
from .verbs import INTRANSITIVE, TRANSITIVE, VERB

WHO = Phrase("who", "whom", {"nom": "wer", "acc": "wen", "dat": "wem"}, "3", "pronoun")


def question(pick):
    who, tense = subject(pick), pick(PRESENT + PAST)
    if pick.chance(0.15):
        clause = be(who, pick(("present", "past")), quality(pick, "mood"))
    else:
        clause = sometimes_timed(pick, action(pick, who, tense), 0.4)
    when, why, where = ("when", "wann"), ("why", "warum"), ("where", "wo")
    asked = pick((NOTHING, NOTHING, NOTHING, when, why, where))
    if clause.verb.en == "be" and asked != NOTHING:
        asked = why
    if asked == where and clause.complement != NOTHING:
        asked = when
    if asked == when:
        clause = replace(clause, time=NOTHING)
    english, german = asked
    return sentence(
        clause.english_question(english), question_tense(clause).german_inverted(german), "?"
    )


def question_word(pick):
    """Who, whom, which or how many: German declines them, and puts a preposition before them."""
    tense = pick(("past", "past", "past", "present", "wants to", "has to", "future"))
    if pick.chance(0.3):
        clause = sometimes_timed(pick, action(pick, WHO, tense), 0.4)
        german = question_tense(clause).german_inverted("wer", with_subject=False)
        return sentence(clause.english(), german, "?")
    who, verb = subject(pick), pick(TRANSITIVE)
    if who.agreement != "3" and not verb.tense_is_audible:
        tense = "past"
    noun = pick(verb.objects)
    if noun.is_human:
        asked = WHO
    elif noun.kind != "mass" and pick.chance(0.4) and not verb.preposition:
        asked = described(pick, noun, HOW_MANY, 0.2, plural=True)
    else:
        asked = described(pick, noun, WHICH, 0.2)
    clause = Clause(who, verb, tense)
    front = words(verb.preposition, asked.de[verb.governs])
    return sentence(
        clause.english_question(asked.en_object), question_tense(clause).german_inverted(front), "?"
    )


def request(pick):
    negated = pick.chance(0.3)
    clause = replace(action(pick, PRONOUN["you"], "future", negated), tense="present")
    if clause.verb in INTRANSITIVE or clause.verb.en in INVOLUNTARY and not negated:
        return request(pick)
    english = words(clause.verb.en, clause.english_tail())
    if negated:
        return sentence(f"do not {english}", clause.german_inverted(), "!")
    return sentence(f"please {english}", clause.german_inverted("bitte"))


def quotation(pick):
    speaker = name(pick) if pick.chance(0.5) else person(pick, (THE,))
    kind = pick.number(1, 3)
    if kind == 1:
        clause, verb = action(pick, subject(pick), pick(PRESENT)), VERB["ask"]
        english, german = clause.english_question() + "?", clause.german_inverted() + "?"
    else:
        who, tense = subject(pick), pick(PRESENT + ("perfect",))
        clause, verb = action(pick, who, tense, pick.chance(0.2)), VERB["say"]
        if pick.chance(0.3):
            clause = be(who, "present", quality(pick, "person"))
        english, german = clause.english(), clause.german()
    english, german = capital(english), capital(german)
    said = Clause(speaker, verb, pick(("present", "past")))
    if kind == 3:
        return sentence(f'{said.english()}, "{english}."', f"{said.german()}: „{german}.“", "")
    comma = "," if kind == 2 else ""
    says = verb.english(speaker.agreement, past=said.tense == "past")
    return sentence(
        f'"{english}{comma}" {says} {speaker.en}', f"„{german}“, {said.german_inverted()}"
    )
