"""Generates the parallel English-German corpus that `make demo` trains on.

    python -m examples.corpus DIRECTORY [--seed N]

A small grammar builds every sentence in both languages at the same time, and the German depends
only on the English. The vocabulary is small, but the sentences have much of what makes this
language pair hard to translate: three genders and three cases with their adjective endings, verbs
at the end of the clause, separable verbs, and pronouns that agree with a noun in another clause.

The file has five parts: words, noun phrases, clauses, sentences, and the random choices among them.
"""

import argparse
import itertools
import os
import pathlib
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Pair = tuple[str, str]  # English, German
NOTHING = ("", "")

# Words.

# Adjectives that fit | nouns: English (an irregular plural after a slash), gender, German, German
# plural.
NOUNS = {
    "person": """
        old young tired sick happy hungry | man/men m Mann Männer, woman/women f Frau Frauen,
        girl n Mädchen Mädchen, child/children n Kind Kinder, teacher m Lehrer Lehrer,
        doctor m Arzt Ärzte, baker m Bäcker Bäcker, friend m Freund Freunde, guest m Gast Gäste,
        waitress f Kellnerin Kellnerinnen, sister f Schwester Schwestern,
        mother f Mutter Mütter, brother m Bruder Brüder, aunt f Tante Tanten""",
    "animal": """
        old young big small black white hungry | dog m Hund Hunde, cat f Katze Katzen,
        horse n Pferd Pferde, bird m Vogel Vögel, cow f Kuh Kühe, pig n Schwein Schweine""",
    "text": """
        old new long good beautiful |
        book n Buch Bücher, letter m Brief Briefe, story f Geschichte Geschichten""",
    "clothing": """
        old new beautiful red black white cheap expensive | coat m Mantel Mäntel,
        jacket f Jacke Jacken, dress n Kleid Kleider, hat m Hut Hüte, shirt n Hemd Hemden,
        skirt m Rock Röcke""",
    "thing": """
        old new big small beautiful red black heavy cheap expensive | car n Auto Autos,
        lamp f Lampe Lampen, bicycle n Fahrrad Fahrräder, clock f Uhr Uhren,
        camera f Kamera Kameras, table m Tisch Tische, bag f Tasche Taschen,
        chair m Stuhl Stühle, key m Schlüssel Schlüssel, picture n Bild Bilder""",
    "opening": """
        old new big small heavy red white | door f Tür Türen, window n Fenster Fenster,
        box f Kiste Kisten, suitcase m Koffer Koffer""",
    "food": """
        good fresh big small cheap expensive | apple m Apfel Äpfel, pear f Birne Birnen,
        egg n Ei Eier, cake m Kuchen Kuchen, potato f Kartoffel Kartoffeln""",
    "place": """
        old new big small beautiful | garden m Garten Gärten, kitchen f Küche Küchen,
        house n Haus Häuser, school f Schule Schulen, church f Kirche Kirchen,
        museum n Museum Museen, park m Park Parks, hotel n Hotel Hotels, village n Dorf Dörfer,
        city f Stadt Städte""",
}
# English, German, and the stem that takes the endings if it differs.
ADJECTIVES = """
    old alt, young jung, tired müde müd, sick krank, happy glücklich, hungry hungrig, big groß,
    small klein, red rot, black schwarz, white weiß, new neu, long lang, good gut, fresh frisch,
    beautiful schön, heavy schwer, cheap billig, expensive teuer teur"""
# English singular and plural, German stem, declension.
DETERMINERS = """
    the the d der, a - ein ein, this these dies dieser, my my mein ein, our our unser ein,
    his his sein ein, her her ihr ein, your your Ihr ein"""
# Endings of the determiner | of the adjective, for masculine, feminine, neuter and plural; one
# string per case.
ENDINGS = {
    "der": ("er ie as ie | e e e en", "en ie as ie | en e e en", "em er em en | en en en en"),
    "dieser": ("er e es e | e e e en", "en e es e | en e e en", "em er em en | en en en en"),
    "ein": ("- e - e | er e es en", "en e - e | en e es en", "em er em en | en en en en"),
    "number": ("- - - - | er e es e", "- - - - | en e es e", "- - - - | em er em en"),
}
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
# The case that the German preposition takes; "for" only after "wait".
PREPOSITIONS = {
    "in": ("in", DATIVE),
    "into": ("in", ACCUSATIVE),
    "with": ("mit", DATIVE),
    "for": ("auf", ACCUSATIVE),
}
# English subject and object, agreement, German cases. There is one "it" for each gender.
PRONOUNS = """
    I I me first ich mich mir, you you you plural Sie Sie Ihnen, we we us plural wir uns uns,
    he he him singular er ihn ihm, she she her singular sie sie ihr,
    they they them plural sie sie ihnen, it-m it it singular er ihn ihm,
    it-f it it singular sie sie ihr, it-n it it singular es es ihm"""

# English verb, past, participle, and a particle or preposition | German infinitive with a + after a
# separable prefix, third person, perfect, "dative" if the object is dative | kinds of objects, "to"
# if the verb has a recipient.
VERBS = """
    buy bought bought | kaufen kauft hat gekauft | clothing thing food animal
    sell sold sold | verkaufen verkauft hat verkauft | clothing thing food animal
    find found found | finden findet hat gefunden | text clothing thing animal
    lose lost lost | verlieren verliert hat verloren | text clothing thing
    see saw seen | sehen sieht hat gesehen | person animal text clothing thing opening place
    repair repaired repaired | reparieren repariert hat repariert | thing opening
    wash washed washed | waschen wäscht hat gewaschen | clothing food animal
    eat ate eaten | essen isst hat gegessen | food
    write wrote written | schreiben schreibt hat geschrieben | text
    translate translated translated | übersetzen übersetzt hat übersetzt | text
    visit visited visited | besuchen besucht hat besucht | person place
    help helped helped | helfen hilft hat geholfen dative | person animal
    thank thanked thanked | danken dankt hat gedankt dative | person
    follow followed followed | folgen folgt ist gefolgt dative | person animal
    open opened opened | auf+machen macht hat aufgemacht | opening
    close closed closed | zu+machen macht hat zugemacht | opening
    call called called | an+rufen ruft hat angerufen | person
    invite invited invited | ein+laden lädt hat eingeladen | person
    pick picked picked up | ab+holen holt hat abgeholt | person
    wake woke woken up | auf+wecken weckt hat aufgeweckt | person animal
    try tried tried on | an+probieren probiert hat anprobiert | clothing
    give gave given | geben gibt hat gegeben | text clothing thing food to
    show showed shown | zeigen zeigt hat gezeigt | text clothing thing animal to
    go went gone into | gehen geht ist gegangen | place
    run ran run into | laufen läuft ist gelaufen | place
    wait waited waited for | warten wartet hat gewartet | person
    sleep slept slept | schlafen schläft hat geschlafen |
    work worked worked | arbeiten arbeitet hat gearbeitet |
    arrive arrived arrived | an+kommen kommt ist angekommen |
    say said said | sagen sagt hat gesagt |
    think thought thought | glauben glaubt hat geglaubt |
"""
# English and German auxiliaries of each tense, after "I", a singular and a plural.
AUXILIARIES = {
    "present": ("do does do", ""),
    "past": ("did did did", ""),
    "perfect": ("have has have", ""),
    "future": ("will will will", "werde wird werden"),
    "can": ("can can can", "kann kann können"),
    "should": ("should should should", "sollte sollte sollten"),
}
TENSES = ("past", *AUXILIARIES)  # the past is twice as frequent
PERFECT = {"hat": "habe hat haben", "ist": "bin ist sind"}
BE = {"present": ("am is are", "bin ist sind"), "past": ("was was were", "war war waren")}
CONJUNCTIONS = """
    and und, but aber, that dass, because weil, although obwohl, before bevor, when als, if wenn"""
QUESTION_WORDS = (NOTHING, NOTHING, ("why", "warum"), ("how often", "wie oft"))
TIMES = {
    "present": [("today", "heute"), ("every day", "jeden Tag")],
    "perfect": [("today", "heute"), ("this week", "diese Woche")],
    "past": [("yesterday", "gestern"), ("last week", "letzte Woche"), ("on Monday", "am Montag")],
    "future": [("tomorrow", "morgen"), ("next week", "nächste Woche"), ("on Sunday", "am Sonntag")],
}
NUMBERS = """
    one eins, two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht,
    nine neun, ten zehn, eleven elf, twelve zwölf"""
TENS = """
    twenty zwanzig, thirty dreißig, forty vierzig, fifty fünfzig, sixty sechzig,
    seventy siebzig, eighty achtzig, ninety neunzig"""


def rows(table: str, separator: str = ",") -> list[list[str]]:
    """The words of each row of a table."""
    return [row.split() for row in table.strip().split(separator)]


def words(*parts: str) -> str:
    """The parts that are not empty, with spaces between them."""
    return " ".join(part for part in parts if part)


def english_s(word: str) -> str:
    """The plural of a noun, or the third person of a verb."""
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "sh", "ch", "o")) else "s")


FITTING_ADJECTIVES = {kind: table.split("|")[0].split() for kind, table in NOUNS.items()}
NOUNS_OF_KIND = {
    kind: [row[0].split("/")[0] for row in rows(table.split("|")[1])]
    for kind, table in NOUNS.items()
}
NOUN = {row[0].split("/")[0]: row for table in NOUNS.values() for row in rows(table.split("|")[1])}
VERB = {}
for line in VERBS.strip().splitlines():
    verb_row = rows(line, "|")
    base, _, _, *particles = verb_row[0]
    VERB[words(base, *particles)] = verb_row
ADJECTIVE = {row[0]: row for row in rows(ADJECTIVES)}
DETERMINER = {row[0]: row for row in rows(DETERMINERS)}
ACTIONS = [verb for verb in VERB if verb not in ("say", "think")]
CONJUNCTION = dict(rows(CONJUNCTIONS))

# Noun phrases.


class Phrase(NamedTuple):
    """A noun phrase or a pronoun."""

    english: str
    english_object: str
    agreement: str  # "first", "singular" or "plural"
    german: tuple[str, ...]  # for each case
    pronoun: str = ""  # that can replace a noun phrase


PRONOUN = {
    key: Phrase(she, her, number, tuple(german))
    for key, she, her, number, *german in rows(PRONOUNS)
}


def number(n: int) -> Pair:
    """A number in words, from 1 to 12 or from 20 to 99."""
    if n < 13:
        english, german = rows(NUMBERS)[n - 1]
        return english, german
    english, german = rows(TENS)[n // 10 - 2]
    if n % 10 == 0:
        return english, german
    one, eins = number(n % 10)
    return f"{english}-{one}", f"{eins.replace('eins', 'ein')}und{german}"


def noun_phrase(
    noun: str, determiner: str | int, adjective: str = "", plural: bool = False
) -> Phrase:
    """A noun after a determiner, or in the plural after a number, perhaps with an adjective."""
    if isinstance(determiner, int):
        english, stem = number(determiner)
        declension = "number"
        plural = True
    else:
        singular_form, plural_form, stem, declension = DETERMINER[determiner]
        english = plural_form if plural else singular_form
    english_forms, gender, *german_nouns = NOUN[noun]
    if not plural:
        name = noun
    elif "/" in english_forms:
        name = english_forms.split("/")[1]
    else:
        name = english_s(noun)
    name = words(adjective, name)
    if english == "a" and name[0] in "aeiou":
        english = "an"
    english = words(english, name)
    german = []
    for case, endings in enumerate(ENDINGS[declension]):
        column = 3 if plural else "mfn".index(gender)
        ending, adjective_ending = (row[column].strip("-") for row in rows(endings, "|"))
        german_noun = german_nouns[plural]
        if plural and case == DATIVE and german_noun[-1] not in "ns":
            german_noun += "n"
        german_adjective = adjective and ADJECTIVE[adjective][-1] + adjective_ending
        german.append(words(stem + ending, german_adjective, german_noun))
    if plural:
        return Phrase(english, english, "plural", tuple(german), "they")
    return Phrase(english, english, "singular", tuple(german), f"it-{gender}")


def prepositional(preposition: str, phrase: Phrase) -> Pair:
    """A preposition and its object: "in the garden", "im Garten"."""
    german, case = PREPOSITIONS[preposition]
    german = f"{german} {phrase.german[case]}"
    german = re.sub("^in das ", "ins ", german)
    german = re.sub("^in dem ", "im ", german)
    return f"{preposition} {phrase.english_object}", german


# Clauses.


class Clause(NamedTuple):
    """A clause in each possible word order."""

    english: str
    english_question: str
    german: str
    german_verb_first: str  # in a question, or if the sentence does not start with the subject
    german_verb_last: str  # in a subordinate clause


def agree(subject: Phrase, forms: str) -> str:
    """Selects the form of a verb after "I", after a singular or after a plural."""
    return forms.split()[("first", "singular", "plural").index(subject.agreement)]


def be(subject: Phrase, tense: str, adjective: str) -> Clause:
    """A clause with the verb "be" in the tense "present" or "past"."""
    she = subject.english
    sie = subject.german[NOMINATIVE]
    alt = ADJECTIVE[adjective][1]
    is_, ist = (agree(subject, forms) for forms in BE[tense])
    return Clause(
        f"{she} {is_} {adjective}",
        f"{is_} {she} {adjective}",
        f"{sie} {ist} {alt}",
        f"{ist} {sie} {alt}",
        f"{sie} {alt} {ist}",
    )


def clause(
    subject: Phrase,
    verb: str,
    tense: str,
    target: Phrase | None = None,
    recipient: Phrase | None = None,
    adverbial: Pair = NOTHING,
    negated: bool = False,
) -> Clause:
    """A clause in any tense of `AUXILIARIES`.

    The German perfect translates the English past, too.
    """
    english_forms, german_forms, _ = VERB[verb]
    base, past, participle, *particle = english_forms
    infinitive, third, perfect, german_participle, *dative = german_forms
    last = NOTHING
    if target and particle and particle[0] in PREPOSITIONS:
        last = prepositional(particle[0], target)
        target = None
        particle = []
    auxiliary = agree(subject, AUXILIARIES[tense][0])
    main = participle if tense == "perfect" else base
    not_, nicht = ("not", "nicht") if negated else NOTHING
    predicate = words(auxiliary, not_, main).replace("can not", "cannot")
    if not negated and tense in ("present", "past"):
        predicate = past if tense == "past" else agree(subject, f"{base} {english_s(base)} {base}")
    to = f"to {recipient.english_object}" if recipient else ""
    rest = words(target.english_object if target else "", *particle, last[0], to, adverbial[0])

    prefix, _, infinitive = infinitive.rpartition("+")
    if tense == "present":
        finite = agree(subject, f"{infinitive[:-1]} {third} {infinitive}")
        end, final = prefix, prefix + finite
    else:
        modal = AUXILIARIES[tense][1]
        finite = agree(subject, modal or PERFECT[perfect])
        end = prefix + infinitive if modal else german_participle
        final = f"{end} {finite}"
    # Pronouns come before nouns. The recipient is the last pronoun, but the first noun.
    objects = [(recipient, DATIVE), (target, DATIVE if dative else ACCUSATIVE)]
    nouns = [phrase.german[case] for phrase, case in objects if phrase and phrase.pronoun]
    pronouns = [
        phrase.german[case] for phrase, case in reversed(objects) if phrase and not phrase.pronoun
    ]
    middle = words(*pronouns, adverbial[1], *nouns, nicht, last[1])
    nominative = subject.german[NOMINATIVE]
    return Clause(
        words(subject.english, predicate, rest),
        words(auxiliary, subject.english, not_, main, rest),
        words(nominative, finite, middle, end),
        words(finite, nominative, middle, end),
        words(nominative, middle, final),
    )


# Sentences.


def sentence(english: str, german: str, end: str = ".") -> Pair:
    return english[0].upper() + english[1:] + end, german[0].upper() + german[1:] + end


def statement(clause: Clause) -> Pair:
    return sentence(clause.english, clause.german)


def fronted(adverbial: Pair, clause: Clause) -> Pair:
    """A statement that starts with an adverbial, so the German subject follows the verb."""
    german = f"{adverbial[1]} {clause.german_verb_first}"
    return sentence(f"{adverbial[0]} {clause.english}", german)


def question(clause: Clause, word: Pair = NOTHING) -> Pair:
    english = words(word[0], clause.english_question)
    return sentence(english, words(word[1], clause.german_verb_first), "?")


def coordinated(first: Clause, conjunction: str, second: Clause) -> Pair:
    german = f"{first.german}, {CONJUNCTION[conjunction]} {second.german}"
    return sentence(f"{first.english}, {conjunction} {second.english}", german)


def subordinated(main: Clause, conjunction: str, side: Clause, side_first: bool = False) -> Pair:
    """A main clause and a subordinate clause, in either order."""
    english = f"{conjunction} {side.english}"
    german = f"{CONJUNCTION[conjunction]} {side.german_verb_last}"
    if side_first:
        return sentence(f"{english}, {main.english}", f"{german}, {main.german_verb_first}")
    return sentence(f"{main.english} {english}", f"{main.german}, {german}")


# Random choices.

Pick = Callable[[Sequence[Any]], Any]  # chooses one of several options
SOMEBODY = ("I", "you", "he", "she", "we", "they")
# Conjunction, tense of the main clause, tense of the subordinate clause.
SUBORDINATIONS = """
    because present present, because past past, although past past, before past past,
    when past past, if future present, if can present"""


def some_phrase(pick: Pick, kind: str, definite: bool = False, plain: bool = False) -> Phrase:
    adjective = "" if plain or pick(range(3)) else pick(FITTING_ADJECTIVES[kind])
    plural = pick(range(4)) == 0
    determiner = pick(["the", "the", "the", "this", pick(["my", "our", "his", "her", "your"])])
    if not definite and pick(range(5)) < 2:
        few, many = pick(range(2, 13)), pick(range(20, 100))
        determiner = (few if kind == "person" else pick([few, many])) if plural else "a"
    return noun_phrase(pick(NOUNS_OF_KIND[kind]), determiner, adjective, plural)


def some_person(pick: Pick, pronouns: Sequence[str] = SOMEBODY, definite: bool = False) -> Phrase:
    if pronouns and pick(range(5)) < 2:
        return PRONOUN[pick(pronouns)]
    return some_phrase(pick, "person", definite)


def some_adverbial(pick: Pick, tense: str) -> Pair:
    preposition, kind = pick([("in", "place"), ("with", "person")])
    time: Pair = pick(TIMES.get(tense, TIMES["future"]))
    if pick(range(3)):
        return time
    return prepositional(preposition, some_phrase(pick, kind, definite=True))


def some_action(pick: Pick, tense: str, adverbial: Pair = NOTHING) -> Clause:
    """A clause about what somebody does."""
    subject = some_person(pick)
    verb = pick(ACTIONS)
    pronouns = SOMEBODY if subject.pronoun else ()  # "I called me" would be wrong.
    negated = adverbial == NOTHING and pick(range(6)) == 0
    *_, kinds = VERB[verb]
    target = recipient = None
    if kinds:
        kind = pick([kind for kind in kinds if kind != "to"])
        if kind == "person":
            target = some_person(pick, pronouns, negated)
        else:
            target = some_phrase(pick, kind, negated)
    if "to" in kinds:
        recipient = some_person(pick, pronouns, definite=True)
    return clause(subject, verb, tense, target, recipient, adverbial, negated)


def some_simple_sentence(pick: Pick) -> Pair:
    tense = pick(TENSES)
    adverbial = some_adverbial(pick, tense)
    kind = pick(["statement", "fronted", "question"])
    if kind == "fronted":
        return fronted(adverbial, some_action(pick, tense))
    if kind == "question":
        return question(some_action(pick, tense), pick(QUESTION_WORDS))
    return statement(some_action(pick, tense, pick([adverbial, NOTHING])))


def some_subordination(pick: Pick) -> Pair:
    conjunction, tense, side_tense = pick(rows(SUBORDINATIONS))
    main = some_action(pick, tense)
    side = some_action(pick, side_tense)
    return subordinated(main, conjunction, side, pick([False, True]))


def some_report(pick: Pick) -> Pair:
    main = clause(some_person(pick), pick(["say", "think"]), pick(["present", "past"]))
    return subordinated(main, "that", some_action(pick, pick(TENSES)))


def some_reference(pick: Pick) -> Pair:
    """Two clauses, where a pronoun in the second agrees with a noun in the first."""
    kind = pick([kind for kind in NOUNS if kind not in ("person", "place")])
    tense = pick(["present", "past"])
    verbs = [verb for verb, (*_, kinds) in VERB.items() if kind in kinds and "to" not in kinds]
    conjunction = pick(["and", "but", "because", "although"])
    noun = some_phrase(pick, kind, plain=conjunction in ("because", "although"))
    pronoun = PRONOUN[noun.pronoun]
    if conjunction in ("and", "but"):
        first = clause(some_person(pick), pick(verbs), tense, noun)
        negated = conjunction == "but"
        second = clause(some_person(pick), pick(verbs), tense, pronoun, negated=negated)
        return coordinated(first, conjunction, second)
    side_first = pick([True, False])
    action = clause(some_person(pick), pick(verbs), tense, pronoun if side_first else noun)
    reason = be(noun if side_first else pronoun, tense, pick(FITTING_ADJECTIVES[kind]))
    return subordinated(action, conjunction, reason, side_first)


SENTENCES = (
    [some_simple_sentence] * 8 + [some_subordination] * 4 + [some_report] * 2 + [some_reference] * 6
)


def generate(num_pairs: int, seed: int = 0) -> list[Pair]:
    """Generates distinct English-German sentence pairs.

    No English or German sentence occurs twice, so training and test data taken from the list do not
    overlap. With the same seed, a longer list starts with the pairs of a shorter one.

    Args:
        num_pairs: The number of pairs.
        seed: int. The only source of randomness.

    Raises:
        ValueError: If `num_pairs` is negative, or more than the grammar can generate.
    """
    if num_pairs < 0:
        raise ValueError(f"num_pairs must be at least 0; received num_pairs={num_pairs}")
    # The only method of `random.Random` that returns the same numbers in all versions of Python.
    uniform = random.Random(seed).random

    def pick(options: Sequence[Any]) -> Any:
        return options[int(uniform() * len(options))]

    pairs: list[Pair] = []
    seen: set[str] = set()
    failures = 0
    while len(pairs) < num_pairs:
        english, german = pick(SENTENCES)(pick)
        # Sentences with the same noun or adjective twice sound wrong.
        content = [
            word for word in re.findall("[a-z]+", english) if word in NOUN or word in ADJECTIVE
        ]
        if english not in seen and german not in seen and len(set(content)) == len(content):
            seen.update((english, german))
            pairs.append((english, german))
            failures = 0
        else:
            failures += 1
        if failures == 1000:
            raise ValueError(
                f"num_pairs must be at most {len(pairs)}; received num_pairs={num_pairs}"
            )
    return pairs


def write(
    directory: str | os.PathLike[str],
    train_pairs: int = 30_000,
    valid_pairs: int = 500,
    test_pairs: int = 1_000,
    seed: int = 0,
) -> list[pathlib.Path]:
    """Writes train.en, train.de, valid.en, valid.de, test.en and test.de, a sentence in each line.

    Returns:
        The paths of the files, in that order.
    """
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    pairs = iter(generate(train_pairs + valid_pairs + test_pairs, seed))
    paths = []
    for split, size in ("train", train_pairs), ("valid", valid_pairs), ("test", test_pairs):
        part = list(itertools.islice(pairs, size))
        for column, language in enumerate(("en", "de")):
            path = pathlib.Path(directory, f"{split}.{language}")
            # No incomplete file is ever visible.
            temporary = pathlib.Path(f"{path}.tmp")
            temporary.write_bytes("".join(f"{pair[column]}\n" for pair in part).encode())
            temporary.replace(path)
            paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.corpus",
        description="Write an English-German corpus.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIRECTORY")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(*write(arguments.directory, seed=arguments.seed), sep="\n")


if __name__ == "__main__":
    main()
