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


