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


def generality(pick):
    noun = pick(NOUNS["person"] + NOUNS["child"])
    who = replace(noun_phrase(noun, EVERY, some_adjectives(pick, noun, 0.3)), pronoun="")
    clause = decorated(
        pick, action(pick, who, pick(("present", "has to", "can", "wants to", "past")))
    )
    return sentence(clause.english(), clause.german())


