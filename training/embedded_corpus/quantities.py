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


