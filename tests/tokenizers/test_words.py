"""Words and characters of any language, beside those of Python's `regex` and of ICU."""

import pytest
import regex
import tensorflow as tf
from icu4py.breakers import CharacterBreaker

from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.terms import Glossary
from keras_transformer.tokenizers.words import WORD, with_marks
from keras_transformer.training.alignment.model_1 import learn_lexicon
from keras_transformer.training.batches.augmentation import TermAnnotation
from keras_transformer.training.evaluate import count_terms
from keras_transformer.training.text.corpus import SentencePairs

TEXTS = [
    "红狗在London看见12345只猫。",
    "タクシーに乗った、ｶﾞﾗｽと㈱。",
    "ฉันเก็บน้ำใจให้เธอ ๑๒๓",
    "ຂ້ອຍໄປຕະຫຼາດ ເຈົ້າ",
    "ខ្ញុំស្រឡាញ់ភាសាខ្មែរ។",
    "မြန်မာစကား ပြောတယ်။ ဒုက္ခ",
    "བཀྲ་ཤིས་བདེ་ལེགས།",
    "क्षत्रिय हूँ, शक्ति।",
    "각하 한글 \u1112\u1161\u11ab",
    "مُحَمَّد الكِتاب می\u200cخواهم",
    "e\u0301te\u0301 n\u0303o dog's C++ größe",
    "👩\u200d👩\u200d👧 🇩🇪🇫🇷 👍🏽 ❤\ufe0f",
    "\ufdd0 \ufdd0\ufdd5 ー",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_graph_and_python_find_the_same_words_and_none_ends_in_a_grapheme(text):
    in_graph = tf.strings.regex_replace(text, WORD, r"<\0>").numpy().decode()
    assert in_graph == regex.sub(WORD, r"<\g<0>>", text)
    assert with_marks(text, "|") == in_graph.replace("<", "|").replace(">", "|")
    ends, place = {0}, 0
    for grapheme in CharacterBreaker(text, "root"):
        place += len(grapheme)
        ends.add(place)
    for word in regex.finditer(WORD, text):
        assert {word.start(), word.end()} <= ends, word


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        ({"狗": "dog", "红狗": "red dog"}, "我的红狗看见狗了", ["red dog", "dog"]),
        ({"Kibo": "K"}, "请看Kibo吧，不是Kibos", ["K"]),
        ({"แมว": "cat"}, "ฉันรักแมวดำ", ["cat"]),
        # A part of a grapheme, or of a syllable with a vowel in front, is no term.
        ({"ก": "k", "น": "n"}, "เก็บน้ำ ก น", ["k", "n"]),
        ({"က": "ka"}, "ကောင်း က", ["ka"]),
        ({"タクシー": "taxi", "タク": "tak"}, "タクシーに", ["taxi"]),
        ({"か": "ka"}, "か\u3099か", ["ka"]),
        ({"dog": "狗"}, "a dog, dogs", ["狗"]),
        ({"개": "dog"}, "개 개는", ["dog"]),
    ],
)
def test_a_term_is_found_between_characters_of_scripts_without_spaces(terms, text, found):
    (actual,) = Glossary(terms).translations(tf.constant([text])).to_list()
    assert [translation.decode() for translation in actual] == found
    kept = SpanFinder(list(terms)).spans([text])[0]
    assert [terms[span.decode()] for span in kept] == found


def test_terms_are_counted_as_they_are_found():
    use = count_terms(
        {"dog": "狗", "tree": "树木"}, ["a dog, a tree"] * 3, ["我的狗在树木下", "狗树", "猫"]
    )
    assert use[0].used == 3 and use[0].number == 6
    assert count_terms({"狗": "dog"}, ["红狗"], ["Dogs"])[0].used == 0
    assert count_terms({"k": "ก"}, ["k", "k"], ["เก็บ", "ก"])[0].used == 1


WORDS = {
    "dog": "小狗", "cat": "猫", "bird": "鸟儿", "tree": "树木", "house": "房子", "river": "河",
    "taxi": "タクシー", "fish": "鱼", "red": "红", "blue": "蓝色", "old": "老", "small": "矮",
}  # fmt: skip


def test_annotations_cover_what_is_aligned_and_at_most_half_of_the_target():
    nouns, colors = list(WORDS)[:8], list(WORDS)[8:]
    pairs = []
    for number in range(400):
        first, second = nouns[number % 8], nouns[(number * 3 + number // 8) % 8]
        color = colors[number // 2 % 4]
        pairs.append(
            (f"we see the {color} {first} and a {second} today",
             f"今天我们看见了{WORDS[color]}{WORDS[first]}和一个{WORDS[second]}。")
        )  # fmt: skip
    pairs += [("good morning", "早上好")] * 200 + [("run", "跑")] * 10
    sources, targets = map(list, zip(*pairs))
    lexicon = learn_lexicon(SentencePairs(sources, targets, "text"), max_share=0.3)
    translations = set()
    for source, terms in zip(sources[:40], lexicon.terms(sources[:40], targets[:40])):
        translations |= {(source[term.begin : term.end], term.translation) for term in terms}
    assert {("dog", "小狗"), ("bird", "鸟儿")} & translations
    words = {"".join(WORDS.get(word, "?") for word in source.split()) for source, _ in translations}
    assert {translation for _, translation in translations} <= words
    for share in (0.1, 0.5):
        annotation = TermAnnotation(lexicon, share, seed=1)
        annotated = annotation.annotate(sources, targets)
        number = sum(text != source for text, source in zip(annotated, sources))
        assert abs(number / len(sources) - share) <= 0.1 * share
        for text, target in zip(annotated, targets):
            inserted = text.split("\ufdd1\ufdd3")[2::3]
            assert 2 * sum(len(part.strip()) for part in inserted) <= len(target)
