"""The generated corpus: sentences worked out by hand, agreement, and the guarantees of `generate`
and `write`."""

import pathlib
import random
import re

import pytest
from fresh_process import run_python

from examples import corpus
from examples.corpus import (
    PRONOUN,
    SENTENCES,
    be,
    clause,
    coordinated,
    fronted,
    generate,
    noun_phrase,
    number,
    prepositional,
    question,
    statement,
    subordinated,
    write,
)

NAMES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")]
ME, YOU, HIM, HER, US = (PRONOUN[word] for word in ("I", "you", "he", "she", "we"))
DOCTOR, CHILD, KEY, LAMP = (noun_phrase(noun, "the") for noun in ("doctor", "child", "key", "lamp"))


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return generate(10_000, seed=3)


# ---- The grammar
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "english", "german"),
    [
        (("dog", "a", "old"), "an old dog", "ein alter Hund, einen alten Hund, einem alten Hund"),
        (
            ("lamp", "this", "red"),
            "this red lamp",
            "diese rote Lampe, diese rote Lampe, dieser roten Lampe",
        ),
        (
            ("car", "my", "expensive"),
            "my expensive car",
            "mein teures Auto, mein teures Auto, meinem teuren Auto",
        ),
        (
            ("child", "the", "tired"),
            "the tired child",
            "das müde Kind, das müde Kind, dem müden Kind",
        ),
        (("man", "the", "", True), "the men", "die Männer, die Männer, den Männern"),
        (("city", "your", "", True), "your cities", "Ihre Städte, Ihre Städte, Ihren Städten"),
        (
            ("egg", 3, "fresh"),
            "three fresh eggs",
            "drei frische Eier, drei frische Eier, drei frischen Eiern",
        ),
    ],
)
def test_noun_phrases_agree_in_gender_case_and_number(arguments, english, german) -> None:
    phrase = noun_phrase(*arguments)
    assert (phrase.english, ", ".join(phrase.german)) == (english, german)


def test_numbers_in_words() -> None:
    assert [number(n) for n in (2, 12, 30)] == [
        ("two", "zwei"),
        ("twelve", "zwölf"),
        ("thirty", "dreißig"),
    ]
    assert [number(n) for n in (21, 66)] == [
        ("twenty-one", "einundzwanzig"),
        ("sixty-six", "sechsundsechzig"),
    ]


@pytest.mark.parametrize(
    ("preposition", "noun", "english", "german"),
    [
        ("in", "garden", "in the garden", "im Garten"),
        ("in", "city", "in the city", "in der Stadt"),
        ("into", "garden", "into the garden", "in den Garten"),
        ("into", "house", "into the house", "ins Haus"),
        ("with", "woman", "with the woman", "mit der Frau"),
    ],
)
def test_prepositions_govern_a_case(preposition, noun, english, german) -> None:
    assert prepositional(preposition, noun_phrase(noun, "the")) == (english, german)


def test_separable_verbs_and_the_perfect() -> None:
    assert statement(clause(HER, "call", "present", DOCTOR)) == (
        "She calls the doctor.",
        "Sie ruft den Arzt an.",
    )
    assert statement(clause(US, "pick up", "can", HIM)) == (
        "We can pick him up.",
        "Wir können ihn abholen.",
    )
    perfect = statement(clause(HIM, "call", "perfect", DOCTOR))
    assert perfect == ("He has called the doctor.", "Er hat den Arzt angerufen.")
    assert statement(clause(ME, "arrive", "past")) == ("I arrived.", "Ich bin angekommen.")


def test_objects_in_the_dative_and_accusative() -> None:
    future = statement(clause(YOU, "help", "future", CHILD))
    assert future == ("You will help the child.", "Sie werden dem Kind helfen.")
    nouns = statement(clause(ME, "give", "past", KEY, CHILD))
    assert nouns == ("I gave the key to the child.", "Ich habe dem Kind den Schlüssel gegeben.")
    pronoun = statement(clause(ME, "give", "past", PRONOUN["it-m"], CHILD))
    assert pronoun == ("I gave it to the child.", "Ich habe ihn dem Kind gegeben.")


def test_the_verb_is_second_in_statements_and_first_in_questions() -> None:
    yesterday = fronted(
        ("yesterday", "gestern"), clause(DOCTOR, "go into", "past", noun_phrase("school", "the"))
    )
    assert yesterday == (
        "Yesterday the doctor went into the school.",
        "Gestern ist der Arzt in die Schule gegangen.",
    )
    assert question(clause(YOU, "sleep", "past")) == ("Did you sleep?", "Haben Sie geschlafen?")
    why = question(clause(HER, "open", "present", noun_phrase("box", "a")), ("why", "warum"))
    assert why == ("Why does she open a box?", "Warum macht sie eine Kiste auf?")


def test_negation() -> None:
    today = statement(clause(HIM, "find", "can", KEY, adverbial=("today", "heute"), negated=True))
    assert today == ("He cannot find the key today.", "Er kann heute den Schlüssel nicht finden.")
    waiting = question(clause(US, "wait for", "present", CHILD, negated=True))
    assert waiting == ("Do we not wait for the child?", "Warten wir nicht auf das Kind?")


def test_the_verb_is_last_in_a_subordinate_clause() -> None:
    before = subordinated(
        clause(HIM, "sleep", "past"), "before", clause(HER, "call", "past", DOCTOR)
    )
    assert before == (
        "He slept before she called the doctor.",
        "Er hat geschlafen, bevor sie den Arzt angerufen hat.",
    )
    waking = clause(HER, "wake up", "present", ME)
    first = subordinated(clause(ME, "work", "future"), "if", waking, side_first=True)
    assert first == (
        "If she wakes me up, I will work.",
        "Wenn sie mich aufweckt, werde ich arbeiten.",
    )


def test_a_pronoun_agrees_with_a_noun_in_another_clause() -> None:
    cheap = be(PRONOUN["it-f"], "past", "cheap")
    because = subordinated(clause(ME, "buy", "past", LAMP), "because", cheap)
    assert because == (
        "I bought the lamp because it was cheap.",
        "Ich habe die Lampe gekauft, weil sie billig war.",
    )
    second = clause(HER, "find", "past", PRONOUN["it-m"], negated=True)
    assert coordinated(clause(ME, "lose", "past", KEY), "but", second) == (
        "I lost the key, but she did not find it.",
        "Ich habe den Schlüssel verloren, aber sie hat ihn nicht gefunden.",
    )


# ---- The generated pairs
# --------------------------------------------------------------------------------------------

# The genders of nouns, and those that an article allows; "p" is a plural.
GENDERS = {
    "Mann": "m", "Männer": "p", "Frau": "f", "Kind": "n", "Mädchen": "np", "Lehrer": "mp", "Hund": "m", "Katze": "f",
    "Pferd": "n", "Kühe": "p", "Buch": "n", "Brief": "m", "Geschichte": "f", "Mantel": "m", "Kleid": "n", "Lampe": "f",
    "Auto": "n", "Uhren": "p", "Schlüssel": "mp", "Tür": "f", "Koffer": "mp", "Ei": "n", "Kuchen": "mp", "Garten": "m",
    "Küche": "f", "Haus": "n", "Stadt": "f",
}  # fmt: skip
ARTICLES = {
    "der": "mf",
    "die": "fp",
    "das": "n",
    "den": "mp",
    "dem": "mn",
    "eine": "f",
    "einer": "f",
    "einem": "mn",
}


def test_articles_and_adjectives_agree_with_the_noun(pairs) -> None:
    checked = 0
    for _, german in pairs:
        for article, adjective, noun in re.findall(
            r"\b([a-zäöüß]+) (?:([a-zäöüß]+) )?([A-ZÄÖÜ]\w+)", german
        ):
            if article in ARTICLES and noun in GENDERS:
                checked += 1
                assert set(ARTICLES[article]) & set(GENDERS[noun]), german
                oblique = article in ("den", "dem", "einem", "einer")
                assert not adjective or adjective.endswith("en" if oblique else ("e", "en")), german
            if article == "ein" and noun in GENDERS and adjective:
                assert adjective.endswith({"m": "er", "n": "es"}[GENDERS[noun][0]]), german
    assert checked > 1_000


def test_it_has_the_gender_of_the_noun_in_the_clause_before(pairs) -> None:
    him, her, it = {"ihn", "ihm"}, {"sie", "ihr"}, {"es", "ihm"}
    expected = {
        "key": him,
        "coat": him,
        "dog": him,
        "cat": her,
        "lamp": her,
        "door": her,
        "car": it,
        "dress": it,
        "book": it,
    }
    nouns = set()
    for english, german in pairs:
        match = re.search(r"\b(\w+), (?:and|but) (?:I|we) .*\bit\b", english)
        if match and match[1] in expected:
            nouns.add(match[1])
            assert expected[match[1]] & set(german.rpartition(", ")[2].rstrip(".").split()), (
                english,
                german,
            )
    assert len(nouns) > 5


@pytest.mark.slow
def test_the_german_depends_on_the_english_alone() -> None:
    translations, repeated, draw = {}, 0, random.Random(1)
    for first in range(20):

        def pick(options, first=first):
            # One of two options, so that the same sentence comes up again.
            return options[(first + draw.randrange(2)) % len(options)]

        for _ in range(2_000):
            english, german = draw.choice(SENTENCES)(pick)
            repeated += english in translations
            assert translations.setdefault(english, german) == german, english
    assert repeated > 1_000


def test_sentences_are_clean_lines_and_distinct(pairs) -> None:
    for sentences in zip(*pairs):
        assert len(set(sentences)) == len(pairs)
        assert all(
            re.fullmatch(r"[A-ZÄÖÜ]\w*(,? \w+|-\w+)*[.?]", sentence) for sentence in sentences
        )


# ---- `generate`, `write` and the command
# ----------------------------------------------------------------------------


def test_a_longer_list_begins_with_the_shorter_one(pairs) -> None:
    assert generate(500, seed=3) == pairs[:500]
    assert generate(0) == []
    assert len(set(generate(500, seed=4)) & set(pairs)) < 50


@pytest.mark.slow
def test_the_grammar_has_many_sentences() -> None:
    assert len({english for english, _ in generate(60_000)}) == 60_000


def test_numbers_out_of_range_are_refused(monkeypatch) -> None:
    with pytest.raises(ValueError, match="num_pairs must be at least 0; received num_pairs=-1"):
        generate(-1)
    monkeypatch.setattr(corpus, "SENTENCES", [lambda pick: ("Yes.", "Ja.")])
    with pytest.raises(ValueError, match="num_pairs must be at most 1; received num_pairs=2"):
        generate(2)


def test_write_makes_line_aligned_splits(tmp_path) -> None:
    paths = write(tmp_path / "new", train_pairs=40, valid_pairs=3, test_pairs=5, seed=1)
    assert paths == [tmp_path / "new" / name for name in NAMES]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(NAMES)
    texts = [path.read_bytes().decode("utf-8") for path in paths]
    assert all(text.endswith("\n") and "\r" not in text for text in texts)
    lines = [text.splitlines() for text in texts]
    assert [len(column) for column in lines] == [40, 40, 3, 3, 5, 5]
    assert [
        pair for split in (0, 2, 4) for pair in zip(lines[split], lines[split + 1])
    ] == generate(48, seed=1)


@pytest.mark.slow
def test_the_command_writes_the_same_sentences_in_every_process(tmp_path) -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    arguments = ("-m", "examples.corpus", tmp_path, "--seed", "3")
    printed = run_python(*arguments, cwd=root, env={"PYTHONHASHSEED": "1"})
    assert printed.splitlines() == [str(tmp_path / name) for name in NAMES]
    english, german = (
        (tmp_path / name).read_text(encoding="utf-8").splitlines() for name in NAMES[:2]
    )
    assert list(zip(english, german))[:3_000] == generate(3_000, seed=3)
