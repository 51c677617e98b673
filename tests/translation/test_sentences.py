"""Sentences: what the rules divide, and that nothing is lost, whatever the text."""

import re

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples.corpus import generate
from keras_transformer.translation.long_sentences import divide_long_sentences
from keras_transformer.translation.sentences import ABBREVIATIONS, split_sentences

# Characters that the rules are about, and those of the marks, among all others.
SPECIAL = [
    *" \t\n\r\v\f\x85\u2028\u3000\xa0.!?…,;:。！？，、「」』”\"')(“1aAéÉまと漢",
    *("\ufdd0", "\ufdd0\ufdd5", "\ufdd0\ufdd6", "\ufdd0\ufdd7", "\ufdd6", "Mr.", "z. B."),
    *"．।॥។།༄\u200d\u200c🇩👩क्षगै한\u1112\u1161()（「」เก็\u0e33ာ္်",
]
TEXTS = st.lists(
    st.sampled_from(SPECIAL) | st.characters(exclude_categories=["Cs"]), max_size=60
).map("".join)
TYPES = [tf.TensorSpec([None], tf.string)]


@tf.function(input_signature=TYPES, autograph=False)
def split(texts):
    return split_sentences(texts, "de")


@tf.function(input_signature=TYPES, autograph=False)
def divide(texts):
    return divide_long_sentences(split_sentences(texts), tf.strings.length, 12)


@pytest.mark.parametrize(
    "language, sentences",
    [
        ("en", ["Hello there. ", "How are you?  ", "Fine!"]),
        ("en", ['"Why?" he asked. ', '"Because." ', "She left."]),
        (
            "en",
            ["Mr. Smith met Dr. Jones and J. R. R. Tolkien in the U.S. in 1930. ", "They talked."],
        ),
        (
            "en",
            [
                "It costs 3.50 at example.com. ",
                "See No. 5, p. 12 and e.g. Fig. 3. ",
                "No. ",
                "It does not.",
            ],
        ),
        ("en", ["He turned 12. ", "She is 13... and that... is that!"]),
        (
            "en",
            [
                "First line\n",
                "second line, in lower case\r\n\r\n",
                "1. An item. ",
                "Its text.\n",
                "2. Another",
            ],
        ),
        ("en", ["Stop (now!) ", "¿Qué? ", "«Oui.» ", "“Yes.” ", "[1] A note."]),
        ("en", ["It is late. ", "# 8 runs. ", "#1 wins."]),
        (
            "de",
            ["Am 3. Oktober kam z. B. Prof. Dr. Müller bzw. Frau Schmidt. ", "Ludwig XIV. blieb."],
        ),
        ("de", ["Das gilt nach Art. 5 Abs. 2 ca. drei Jahre. ", "Ägypten nicht."]),
        ("de", ["Sie sagte: „Ja.“ ", "Dann ‚Nein!‘ ", "„Gut.“"]),
        ("en", ["He left. ", "“Yes.” ", "‘No.’"]),
        ("fr", ["M. Dupont et Mme. Durand sont là. ", "Élise aussi ! ", "Où ?"]),
        ("ru", ["Это ул. Ленина. ", "Да? ", "Нет."]),
        ("zh", ["今天天气很好。", "我们去公园！", "真的？！ ", "对。"]),
        ("ja", ["「はい。」と彼は言った。", "「いいえ。」", "終わり。"]),
        ("hi", ["यह एक है। ", "यह दो है।"]),
        ("ar", ["كيف حالك؟ ", "أنا بخير."]),
        ("ar", ["كيف حالك؟\u200f ", "\u200fأنا بخير."]),
        (None, ["Mr. Smith und Hr. Müller. ", "Fin."]),
        # Words that look like abbreviations: On. (Italian), Me. (French), mm. (Finnish), doc.
        # (Czech).
        (None, ["She tried it on. ", "He called me. ", "It has 5 mm. ", "Ask the doc. ", "Fine."]),
        ("it", ["Clicca on. ", "L'On. Rossi parla."]),
        ("en", ["Dr. No was on. ", "He saw the gen. ", "Gen. Lee did not."]),
        # Behind a line break, too, as in the middle of one.
        ("en", ["Hello\n", "Mr. Smith left. ", "He ran."]),
        ("en", ["Hello\n", "J. Smith left.\n", "Art. 5 says it."]),
        (
            "en",
            ["It is so (see p. 5. It is clear) today. ", "(Yes. No.) ", "Sad :( now. ", "Glad :)"],
        ),
        # An open bracket may be an error.
        ("en", ["(It is. ", *["It is long. "] * 40, "Yes.) ", "No."]),
        ("fr", ["Bonjour\u00a0! ", "«\u00a0Ça va\u202f?\u00a0» ", "Oui."]),
        ("da", ["Ja! ", "»Nej.« ", "Ja."]),
        ("ar", ["قال د. محمد علي. ", "ثم ذهب. ", "كتب أ. د. سامي ص. 5."]),
        ("he", ["אמר ד. כהן. ", "והלך."]),
        ("ta", ["மு. கருணாநிதி வந்தார். ", "அவர் சென்றார்."]),
        ("ar", ["هل أنت بخير؟", "نعم."]),
        ("ja-JP", ["今日は晴れ．", "明日は３．１４．", "Ｊ．スミスです．", "終わり．"]),
        ("ja", ["彼は（雨だった。寒かった。）帰った。", "「はい。いいえ。」と彼。", "終わり。"]),
        ("zh-Hant-TW", ["真的？!", "我不信。", "“好。”他說。", "《你好。》是書。", "走。"]),
        ("hi", ["यह एक है।", "यह दो है॥ १ ॥ ", "राम।"]),
        ("bn", ["এটা এক।", "ড. ইউনূস এলেন।"]),
        (None, ["ខ្ញុំទៅផ្ទះ។", "គាត់ញ៉ាំបាយ។ល។ ", "គាត់ដេក៕ ", "ចប់។"]),
        ("my_MM", ["မင်္ဂလာပါ။", "နေကောင်းလား။"]),
        (None, ["༄༅། །བཀྲ་ཤིས། །", "བདེ་ལེགས། ", "ང་འགྲོ།"]),
        (None, ["ሰላም።", "እንዴት ነህ፧ ", "ደህና።"]),
        (None, ["ეს არის ერთი. ", "ეს არის ორი."]),
        ("el", ["Τι κάνεις; ", "Καλά."]),
        ("hy", ["Սա մեկն է: ", "Դա երկուսն է։ ", "Լավ։"]),
    ],
)
def test_the_rules_by_hand(language, sentences):
    (actual,) = split_sentences(tf.constant(["".join(sentences)]), language).to_list()
    assert [sentence.decode() for sentence in actual] == sentences


@pytest.mark.slow
@pytest.mark.parametrize("side, language", [(0, None), (0, "en"), (1, None), (1, "de")])
def test_sentences_of_a_grammar_are_told_apart(side, language):
    sentences = [pair[side] for pair in generate(3000, seed=5)]
    paragraphs = [" ".join(sentences[i : i + 5]) for i in range(0, 3000, 5)]
    actual = split_sentences(tf.constant(paragraphs), language)
    assert [sentence.decode().rstrip() for sentence in actual.flat_values.numpy()] == sentences


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(texts=st.lists(TEXTS, max_size=5))
@example(
    texts=[
        "",
        " ",
        "\n",
        "\n\n a",
        "A. \nB",
        "。。a",
        "\ufdd0",
        "\ufdd0d. A",
        "a. \ufdd0A",
        "1" * 500,
    ]
)
def test_the_parts_of_any_text_joined_are_the_text(texts):
    for function in (split, divide):
        parts = function(tf.constant(texts, tf.string)).to_list()
        assert [b"".join(row).decode() for row in parts] == texts
        assert all(len(row) > 0 for row in parts)


def test_no_part_is_empty_but_that_of_an_empty_text():
    texts = [
        "",
        "a. B. C.",
        "one two, three four five six, ",
        "\nA\n",
        "。A。",
        "a b c d e f g h  ",
    ]
    for text, row in zip(texts, divide(tf.constant(texts)).to_list()):
        assert row == [b""] if not text else all(row[:-1])


def test_a_long_sentence_is_divided_at_commas_then_at_spaces_into_parts_of_similar_length():
    def parts(text, most):
        actual = divide_long_sentences(
            tf.ragged.constant([[text, "short"]]), tf.strings.length, most
        ).to_list()[0]
        assert actual.pop() == b"short"
        return [part.decode() for part in actual]

    assert parts("one, two, three, four", 21) == ["one, two, three, four"]
    assert parts("one, two, three, four", 20) == ["one, two, ", "three, four"]
    assert parts("one two three four", 12) == ["one two ", "three four"]
    # Within a clause that is too long by itself, at spaces; the other clause stays whole.
    assert parts("yes, one two three four five", 14) == ["yes, ", "one two ", "three ", "four five"]
    # No space, no comma: between characters.
    assert parts("x" * 30, 10) == ["x" * 7, "x" * 8, "x" * 7, "x" * 8]
    assert parts("一二三，四五六，七八", 15) == ["一二三，", "四五六，", "七八"]


def test_every_division_fits_if_words_do():
    text = " ".join("abcdefg"[: 1 + i % 7] for i in range(2000))
    for most in (30, 100, 1000):
        parts = divide_long_sentences(
            tf.ragged.constant([[text]]), tf.strings.length, most
        ).to_list()[0]
        assert max(map(len, parts)) <= most
        # Not many more than there must be.
        assert len(parts) <= 1 + 1.5 * len(text) / most


def test_a_long_text_without_a_mark_is_divided_where_a_phrase_ends_and_in_no_character():
    def parts(text, most):
        actual = divide_long_sentences(
            tf.ragged.constant([[text]]), lambda texts: tf.strings.length(texts, "UTF8_CHAR"), most
        ).to_list()[0]
        assert b"".join(actual).decode() == text
        return [part.decode() for part in actual]

    assert parts("我们去公园玩了很久但是后来下雨了", 10) == ["我们去公园玩了很久", "但是后来下雨了"]
    assert parts("昨日私は友達と東京に行って美味しい寿司を食べて帰りました", 10) == [
        "昨日私は友達と", "東京に行って", "美味しい寿司を", "食べて帰りました"
    ]  # fmt: skip
    assert parts("ฉันไปตลาดและซื้อส้มเพราะหิว", 12) == ["ฉันไปตลาด", "และซื้อส้ม", "เพราะหิว"]
    # A word or a number in a text without spaces stays whole, and no part begins with a comma.
    divided = parts("红狗在London看见12345只猫，鸟，鱼", 12)
    assert {"London", "12345"} <= {
        word for part in divided for word in re.findall(r"\w+", part, re.A)
    }
    assert not any(part.startswith("，") for part in divided) and max(map(len, divided)) <= 12
    for characters in (
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "क्षि",
        "ก็",
        "เก้",
        "နှ",
        "ក្ត",
        "각",
        "e\u0301\u0323",
    ):
        divided = parts(characters * 40, 25)
        assert len(divided) > 1 and {part.replace(characters, "") for part in divided} == {""}
        assert max(map(len, divided)) <= 25


def test_every_abbreviation_ends_no_sentence_in_its_language():
    for language, abbreviations in ABBREVIATIONS.items():
        texts = [f"Xy {abbreviation}. Müller zzz. Ende" for abbreviation in abbreviations]
        for row in split_sentences(tf.constant(texts, tf.string), language).to_list():
            assert len(row) == 2, (language, row)
