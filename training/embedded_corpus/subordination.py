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


