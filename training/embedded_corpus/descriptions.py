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


