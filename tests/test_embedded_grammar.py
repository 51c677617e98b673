"""The grammar of the embedded corpus against pairs worked out by hand."""

from dataclasses import replace

import pytest

from keras_transformer.training.embedded_corpus import subordination
from keras_transformer.training.embedded_corpus.adjectives import ADJECTIVE
from keras_transformer.training.embedded_corpus.clauses import Clause, question_tense
from keras_transformer.training.embedded_corpus.determiners import (
    A,
    BARE,
    EVERY,
    NOT_A,
    POSSESSIVES,
    QUANTIFIERS,
    THE,
    THIS,
)
from keras_transformer.training.embedded_corpus.nouns import NOUN
from keras_transformer.training.embedded_corpus.numbers import in_words, price
from keras_transformer.training.embedded_corpus.phrases import (
    PRONOUN,
    noun_phrase,
    possessed_by,
    with_preposition,
)
from keras_transformer.training.embedded_corpus.times import clock, date
from keras_transformer.training.embedded_corpus.verbs import VERB

YOU, SHE, I, WE, HE, THEY = (PRONOUN[key] for key in ("you", "she", "I", "we", "he", "they"))


def phrase(determiner, noun, *adjectives, plural=False):
    return noun_phrase(NOUN[noun], determiner, [ADJECTIVE[name] for name in adjectives], plural)


# Numbers, prices, dates and times


@pytest.mark.parametrize(
    ("n", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (112, "one hundred and twelve", "einhundertzwölf"),
        (345, "three hundred and forty-five", "dreihundertfünfundvierzig"),
        (1000, "one thousand", "eintausend"),
        (2021, "two thousand and twenty-one", "zweitausendeinundzwanzig"),
        (5831, "five thousand eight hundred and thirty-one", "fünftausendachthunderteinunddreißig"),
        (9900, "nine thousand nine hundred", "neuntausendneunhundert"),
    ],
)
def test_numbers_in_words(n, english, german):
    assert in_words(n) == (english, german)


def test_every_number_word_is_different():
    english, german = zip(*map(in_words, range(10_000)))
    assert len(set(english)) == len(set(german)) == 10_000


@pytest.mark.parametrize(
    ("whole", "cents", "unit", "english", "german"),
    [
        (1299, 50, ("euros", "Euro"), "1,299.50 euros", "1.299,50 Euro"),
        (1299, None, ("dollars", "Dollar"), "1,299 dollars", "1.299 Dollar"),
        (12, 5, ("$", "$"), "$12.05", "12,05 $"),
        (9999, 99, ("€", "€"), "€9,999.99", "9.999,99 €"),
        (80, None, ("€", "€"), "€80", "80 €"),
    ],
)
def test_prices_in_digits(whole, cents, unit, english, german):
    assert price(whole, cents, unit) == (english, german)


def test_a_price_in_words():
    assert price(21, None, ("euros", "Euro"), spelled=True) == (
        "twenty-one euros",
        "einundzwanzig Euro",
    )


class Script:
    """A stand-in for random choices: answers in the order given."""

    def __init__(self, *answers):
        self._answers = iter(answers)

    def __call__(self, options):
        answer = next(self._answers)
        assert answer in options
        return answer

    def chance(self, probability):
        return next(self._answers)

    def number(self, low, high):
        answer = next(self._answers)
        assert low <= answer <= high
        return answer


@pytest.mark.parametrize(
    ("answers", "english", "german"),
    [
        ((["March", "März"], 3, 2019, False), "on March 3, 2019", "am 3. März 2019"),
        ((["October", "Oktober"], 21, 1987, False), "on October 21, 1987", "am 21. Oktober 1987"),
        ((["May", "Mai"], 1, 2000, True), "on May 1", "am 1. Mai"),
    ],
)
def test_dates(answers, english, german):
    assert date(Script(*answers)) == (english, german)


@pytest.mark.parametrize(
    ("answers", "english", "german"),
    [
        ((3, 5, 1), "at three o'clock", "um drei Uhr"),
        ((1, 5, 1), "at one o'clock", "um ein Uhr"),
        ((3, 5, 2), "at half past three", "um halb vier"),
        ((12, 5, 2), "at half past twelve", "um halb eins"),
        ((4, 15, 4), "at a quarter past four", "um Viertel nach vier"),
        ((1, 10, 4), "at ten past one", "um zehn nach eins"),
        ((4, 15, 5), "at a quarter to five", "um Viertel vor fünf"),
        ((12, 20, 5), "at twenty to one", "um zwanzig vor eins"),
        ((3, 5, 3, 9, "p.m."), "at 3:45 p.m.", "um 15:45 Uhr"),
        ((9, 5, 3, 1, "a.m."), "at 9:05 a.m.", "um 9:05 Uhr"),
        ((12, 5, 3, 6, "a.m."), "at 12:30 a.m.", "um 0:30 Uhr"),
        ((12, 5, 3, 6, "p.m."), "at 12:30 p.m.", "um 12:30 Uhr"),
    ],
)
def test_clock_times(answers, english, german):
    assert clock(Script(*answers)) == (english, german)


# Noun phrases


@pytest.mark.parametrize(
    ("english", "cases", "built"),
    [
        (
            "the old man",
            ("der alte Mann", "den alten Mann", "dem alten Mann", "des alten Mannes"),
            phrase(THE, "man", "old"),
        ),
        (
            "a small red lamp",
            ("eine kleine rote Lampe", "eine kleine rote Lampe")
            + ("einer kleinen roten Lampe", "einer kleinen roten Lampe"),
            phrase(A, "lamp", "small", "red"),
        ),
        (
            "an expensive bicycle",
            ("ein teures Fahrrad", "ein teures Fahrrad")
            + ("einem teuren Fahrrad", "eines teuren Fahrrads"),
            phrase(A, "bicycle", "expensive"),
        ),
        (
            "this high tower",
            ("dieser hohe Turm", "diesen hohen Turm", "diesem hohen Turm", "dieses hohen Turmes"),
            phrase(THIS, "tower", "high"),
        ),
        (
            "every sick child",
            (
                "jedes kranke Kind",
                "jedes kranke Kind",
                "jedem kranken Kind",
                "jedes kranken Kindes",
            ),
            phrase(EVERY, "child", "sick"),
        ),
        (
            "fresh milk",
            ("frische Milch", "frische Milch", "frischer Milch", "frischer Milch"),
            phrase(BARE, "milk", "fresh"),
        ),
        (
            "cold water",
            ("kaltes Wasser", "kaltes Wasser", "kaltem Wasser", "kalten Wassers"),
            phrase(BARE, "water", "cold"),
        ),
        (
            "the tired students",
            ("die müden Studenten", "die müden Studenten")
            + ("den müden Studenten", "der müden Studenten"),
            phrase(THE, "student", "tired", plural=True),
        ),
        (
            "many dark cellars",
            ("viele dunkle Keller", "viele dunkle Keller")
            + ("vielen dunklen Kellern", "vieler dunkler Keller"),
            phrase(QUANTIFIERS[0], "cellar", "dark", plural=True),
        ),
        (
            "our young daughter",
            ("unsere junge Tochter", "unsere junge Tochter")
            + ("unserer jungen Tochter", "unserer jungen Tochter"),
            phrase(POSSESSIVES["we"], "daughter", "young"),
        ),
        (
            "their neighbor",
            ("ihr Nachbar", "ihren Nachbarn", "ihrem Nachbarn", "ihres Nachbarn"),
            phrase(POSSESSIVES["they"], "neighbor"),
        ),
        (
            "your new cars",
            ("Ihre neuen Autos", "Ihre neuen Autos", "Ihren neuen Autos", "Ihrer neuen Autos"),
            phrase(POSSESSIVES["you"], "car", "new", plural=True),
        ),
    ],
)
def test_case_gender_and_number_decline_the_whole_phrase(english, cases, built):
    assert built.en == english
    assert tuple(built.de[case] for case in ("nom", "acc", "dat", "gen")) == cases


def test_a_possessor_is_a_genitive_and_a_name_takes_s():
    determiner, tail = possessed_by(phrase(THE, "teacher"))
    car = noun_phrase(NOUN["car"], determiner, [ADJECTIVE["old"]], german_tail=tail)
    assert (car.en, car.de["dat"]) == ("the teacher's old car", "dem alten Auto des Lehrers")
    anna = replace(SHE, en="Anna", de={"gen": "Annas"})
    determiner, tail = possessed_by(anna)
    car = noun_phrase(NOUN["car"], determiner, [ADJECTIVE["old"]], german_tail=tail)
    assert (car.en, car.de["nom"]) == ("Anna's old car", "Annas altes Auto")


# Verbs and clauses

DOCTOR, BOOK, WINDOW = phrase(THE, "doctor"), phrase(THE, "book"), phrase(THE, "window")
A_TABLE, NO_TABLE = phrase(A, "table"), phrase(NOT_A, "table")
WOMAN, CHILD = phrase(THE, "woman"), phrase(THE, "child")


@pytest.mark.parametrize(
    ("clause", "english", "main", "final"),
    [
        (
            Clause(SHE, VERB["call"], "past", DOCTOR),
            "she called the doctor",
            "sie rief den Arzt an",
            "weil sie den Arzt anrief",
        ),
        (
            Clause(SHE, VERB["call"], "perfect", DOCTOR),
            "she has called the doctor",
            "sie hat den Arzt angerufen",
            "weil sie den Arzt angerufen hat",
        ),
        (
            Clause(WE, VERB["call"], "has to", DOCTOR),
            "we have to call the doctor",
            "wir müssen den Arzt anrufen",
            "weil wir den Arzt anrufen müssen",
        ),
        (
            Clause(I, VERB["turn on"], "future", PRONOUN["it.f"]),
            "I will turn it on",
            "ich werde sie einschalten",
            "weil ich sie einschalten werde",
        ),
        (
            Clause(HE, VERB["come back"], "pluperfect", time=("yesterday", "gestern")),
            "he had come back yesterday",
            "er war gestern zurückgekommen",
            "weil er gestern zurückgekommen war",
        ),
        (
            Clause(WOMAN, VERB["buy"], "past", BOOK, negated=True, time=("today", "heute")),
            "the woman did not buy the book today",
            "die Frau kaufte das Buch heute nicht",
            "weil die Frau das Buch heute nicht kaufte",
        ),
        (
            Clause(WOMAN, VERB["buy"], "wants to", NO_TABLE, negated=True),
            "the woman does not want to buy a table",
            "die Frau will keinen Tisch kaufen",
            "weil die Frau keinen Tisch kaufen will",
        ),
        (
            Clause(YOU, VERB["help"], "present", CHILD),
            "you help the child",
            "Sie helfen dem Kind",
            "weil Sie dem Kind helfen",
        ),
        (
            Clause(HE, VERB["give"], "past", PRONOUN["it.m"], CHILD),
            "he gave it to the child",
            "er gab ihn dem Kind",
            "weil er ihn dem Kind gab",
        ),
        (
            Clause(HE, VERB["give"], "past", A_TABLE, WOMAN, place=("in Rome", "in Rom")),
            "he gave a table to the woman in Rome",
            "er gab der Frau in Rom einen Tisch",
            "weil er der Frau in Rom einen Tisch gab",
        ),
        (
            Clause(WOMAN, VERB["remember"], "perfect", DOCTOR, negated=True),
            "the woman has not remembered the doctor",
            "die Frau hat sich nicht an den Arzt erinnert",
            "weil sich die Frau nicht an den Arzt erinnert hat",
        ),
        (
            Clause(WE, VERB["look forward to"], "present", phrase(A, "concert")),
            "we look forward to a concert",
            "wir freuen uns auf ein Konzert",
            "weil wir uns auf ein Konzert freuen",
        ),
        (
            Clause(THEY, VERB["open"], "perfect", WINDOW, adverb=("already", "schon")),
            "they have already opened the window",
            "sie haben das Fenster schon geöffnet",
            "weil sie das Fenster schon geöffnet haben",
        ),
        (
            Clause(I, VERB["sleep"], "can", negated=True),
            "I cannot sleep",
            "ich kann nicht schlafen",
            "weil ich nicht schlafen kann",
        ),
        (
            Clause(I, VERB["be"], "present", complement=("tired", "müde"), negated=True),
            "I am not tired",
            "ich bin nicht müde",
            "weil ich nicht müde bin",
        ),
        (
            Clause(THEY, VERB["live"], "would like to", complement=("in Munich", "in München")),
            "they would like to live in Munich",
            "sie möchten in München wohnen",
            "weil sie in München wohnen möchten",
        ),
    ],
)
def test_a_clause_in_both_languages(clause, english, main, final):
    assert (clause.english(), clause.german(), clause.german_final("weil")) == (
        english,
        main,
        final,
    )


def test_something_in_front_keeps_the_verb_second():
    clause = Clause(WOMAN, VERB["pick up"], "future", CHILD)
    assert clause.german_inverted("am Montag") == "am Montag wird die Frau das Kind abholen"
    clause = Clause(WOMAN, VERB["pick up"], "present", CHILD)
    assert clause.german_inverted("am Montag") == "am Montag holt die Frau das Kind ab"


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(SHE, VERB["call"], "past", DOCTOR),
            "did she call the doctor",
            "hat sie den Arzt angerufen",
        ),
        (Clause(HE, VERB["go"], "past"), "did he go", "ist er gegangen"),
        (
            Clause(HE, VERB["call"], "could", DOCTOR),
            "could he call the doctor",
            "konnte er den Arzt anrufen",
        ),
        (
            Clause(YOU, VERB["call"], "present", DOCTOR),
            "do you call the doctor",
            "rufen Sie den Arzt an",
        ),
        (
            Clause(WE, VERB["be"], "past", complement=("sad", "traurig")),
            "were we sad",
            "waren wir traurig",
        ),
    ],
)
def test_questions_ask_about_the_past_in_the_perfect(clause, english, german):
    assert clause.english_question() == english
    assert question_tense(clause).german_inverted() == german


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (Clause(SHE, VERB["call"], "present", DOCTOR), "to call the doctor", "den Arzt anzurufen"),
        (Clause(SHE, VERB["see"], "present", DOCTOR), "to see the doctor", "den Arzt zu sehen"),
        (
            Clause(I, VERB["remember"], "present", BOOK),
            "to remember the book",
            "mich an das Buch zu erinnern",
        ),
        (Clause(HE, VERB["get up"], "present"), "to get up", "aufzustehen"),
    ],
)
def test_zu_goes_inside_a_separable_infinitive(clause, english, german):
    assert (clause.english_to(), clause.german_zu()) == (english, german)


@pytest.mark.parametrize(
    ("preposition", "german", "expected"),
    [
        ("in", "dem alten Park", "im alten Park"),
        ("in", "das Museum", "ins Museum"),
        ("in", "den Wald", "in den Wald"),
        ("zu", "der Kirche", "zur Kirche"),
        ("zu", "dem Bahnhof", "zum Bahnhof"),
        ("von", "dem Lehrer", "vom Lehrer"),
        ("von", "der Königin", "von der Königin"),
        ("auf", "dem Tisch", "auf dem Tisch"),
        ("an", "diesem See", "an diesem See"),
    ],
)
def test_prepositions_contract_with_the_article(preposition, german, expected):
    assert with_preposition(preposition, german) == expected


@pytest.mark.parametrize(
    ("noun", "verb", "english", "german"),
    [
        ("man", "help", "the man whom she helped", "der Mann, dem sie half,"),
        ("queen", "call", "the queen whom she called", "die Königin, die sie anrief,"),
        ("train", "wait for", "the train that she waited for", "der Zug, auf den sie wartete,"),
        ("car", "wash", "the car that she washed", "das Auto, das sie wusch,"),
    ],
)
def test_relative_pronouns_agree_and_the_verb_ends(monkeypatch, noun, verb, english, german):
    monkeypatch.setattr(subordination, "subject", lambda pick: SHE)
    human = [False] if noun in ("man", "queen") else []
    script = Script("past", *human, VERB[verb], False)
    described = subordination.with_relative_clause(script, phrase(THE, noun), NOUN[noun])
    assert (described.en, described.de["nom"]) == (english, german)
