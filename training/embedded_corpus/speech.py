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


