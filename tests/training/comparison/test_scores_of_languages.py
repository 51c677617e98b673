"""BLEU by the script of the references, in twelve languages, and against sacreBLEU's command."""

import json
import logging
import subprocess
import sys

import pytest

from keras_transformer.training import bleu
from keras_transformer.training.bleu import choose_tokenizer
from keras_transformer.training.comparison.compare import System, compare, count_faults
from keras_transformer.training.evaluate import evaluate
from keras_transformer.training.text.corpus import SentencePairs

# Two sentences in each language.
REFERENCES = {
    "ar": ["الكلب يجري في الحديقة الكبيرة.", "تقرأ أختي كتابا جديدا كل يوم."],
    "de": ["Der Hund läuft im großen Park.", "Meine Schwester liest jeden Tag ein Buch."],
    "fi": ["Koira juoksee suuressa puistossa tänään.", "Siskoni lukee joka päivä uutta kirjaa."],
    "he": ["הכלב רץ בפארק הגדול היום.", "אחותי קוראת ספר חדש כל יום."],
    "hi": ["कुत्ता बड़े पार्क में दौड़ता है।", "मेरी बहन हर दिन नई किताब पढ़ती है।"],
    "ja": ["犬が大きな公園で走っている。", "妹は毎日新しい本を読みます。"],
    "ko": ["개가 큰 공원에서 뛰고 있다.", "내 여동생은 매일 새 책을 읽는다."],
    "ru": ["Собака бежит по большому парку.", "Моя сестра каждый день читает книгу."],
    "th": ["สุนัขวิ่งในสวนสาธารณะใหญ่", "น้องสาวของฉันอ่านหนังสือทุกวัน"],
    "km": ["ឆ្កែរត់នៅក្នុងសួនធំ។", "ប្អូនស្រីខ្ញុំអានសៀវភៅរាល់ថ្ងៃ។"],
    "my": ["ခွေးသည်ပန်းခြံထဲတွင်ပြေးသည်။", "ညီမလေးသည်နေ့တိုင်းစာဖတ်သည်။"],
    "zh": ["狗在大公园里跑。", "我妹妹每天读一本新书。"],
}
TOKENIZERS = {"th": "char", "km": "char", "my": "char", "zh": "zh"}
DEFAULTS = {"ja": "ja-mecab", "ko": "ko-mecab"} | TOKENIZERS
IMPERFECT = {
    "zh": ["狗在公园里跑着。", "我妹妹每天读新书。"],
    "th": ["สุนัขวิ่งในสวนใหญ่", "น้องสาวฉันอ่านหนังสือวันนี้"],
    "de": ["Der Hund läuft im Park.", "Meine Schwester liest jeden Tag ein Heft."],
}


def pairs_of(references):
    return SentencePairs(["a"] * len(references), references, "text")


@pytest.fixture
def without_mecab(monkeypatch):
    for module in ("ja", "ko"):
        __import__(f"sacrebleu.tokenizers.tokenizer_{module}_mecab")
        name = f"sacrebleu.tokenizers.tokenizer_{module}_mecab.MeCab"
        monkeypatch.setattr(name, None)
    bleu.tokenizer_of.cache_clear()
    yield
    bleu.tokenizer_of.cache_clear()


@pytest.mark.parametrize("language", REFERENCES)
def test_a_reference_scores_100_against_itself(language, without_mecab):
    references = REFERENCES[language]
    (result,) = compare([System("a", references)], pairs_of(references)).results
    assert [round(score.score, 6) for score in result.scores.values()] == [100, 100]
    assert (result.length_ratio, result.faults.repetitions) == (1, 0)
    evaluation = evaluate(lambda _: references, pairs_of(references))
    assert (round(evaluation.bleu.score, 6), round(evaluation.chrf.score, 6)) == (100, 100)


@pytest.mark.parametrize("language", IMPERFECT)
def test_scores_are_those_of_sacrebleu_s_command(text, language):
    reference = text("reference", REFERENCES[language])
    system = text("system", IMPERFECT[language])
    evaluation = evaluate(lambda _: IMPERFECT[language], pairs_of(REFERENCES[language]))
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", system, "-m", "bleu", "chrf"]
    command += ["--tokenize", TOKENIZERS.get(language, "13a"), "--width", "9"]
    theirs = json.loads(subprocess.check_output(command, text=True))
    ours = [evaluation.bleu, evaluation.chrf]
    assert [round(score.score, 9) for score in ours] == [score["score"] for score in theirs]
    assert 0 < evaluation.bleu.score < 100


@pytest.mark.parametrize("language", REFERENCES)
def test_the_script_of_the_references_chooses_the_tokenizer(language, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(bleu, "tokenizer_of", lambda tokenize: None)
    expected = DEFAULTS.get(language, "13a")
    assert choose_tokenizer(REFERENCES[language]) == expected
    assert len(caplog.messages) == (expected != "13a")
    assert all(f"tokenizer {expected}, because" in message for message in caplog.messages)


def test_characters_stand_in_for_a_package_that_is_missing(without_mecab, caplog):
    caplog.set_level(logging.INFO)
    assert choose_tokenizer(REFERENCES["ja"]) == "char"
    (message,) = caplog.messages
    assert message == (
        "BLEU counts characters (tokenizer char), because the reference is in Japanese script and "
        "ja-mecab is not installed: in your clone of the repository, run pip install -e '.[ja]'"
    )


@pytest.mark.parametrize("tokenize", ["ko-mecab", "flores200"])
def test_a_tokenizer_that_is_asked_for_and_missing_ends_in_one_line(
    text, fails, tokenize, without_mecab, monkeypatch
):
    def fail(*_):
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", fail)
    path = text("text", REFERENCES["ko"])
    files = ("--source", path, "--reference", path, "--hypotheses", path)
    message = fails("compare", *files, "--tokenize", tokenize)
    assert f"the tokenizer {tokenize}" in message
    assert ("'.[ko]'" in message) == (tokenize == "ko-mecab")


def test_a_perfect_chinese_translation_is_significantly_better_than_garbage():
    references = [
        f"{subject}{verb}{thing}。"
        for subject in ("狗", "我妹妹", "老师", "医生")
        for verb in ("看见", "喜欢", "买了", "画了")
        for thing in ("一棵大树", "两个苹果", "那座老桥")
    ]
    # Each character is a token, and so is the full stop, which the garbage lacks.
    length = sum(map(len, references)) / len(references)
    garbage = ["的了是不在有人这"] * len(references)
    systems = [System("garbage", garbage), System("perfect", references)]
    first, perfect = compare(systems, pairs_of(references)).results
    assert perfect.scores["BLEU"].is_significant and perfect.scores["chrF2"].is_significant
    assert (first.length_ratio, perfect.length_ratio) == (pytest.approx(8 / length), 1)


@pytest.mark.parametrize(
    ("tokenize", "repeated", "others"),
    [
        ("zh", ["红狗红狗红狗红狗", "哈哈哈哈", "他说，他说"], ["谢谢妈妈", "看看书", "狗在跑"]),
        ("char", ["สุนัขวิ่งสุนัขวิ่ง", "the the"], ["ธรรมดา", "นานา", "banana", "hello"]),
        ("13a", ["the the", "ja, ja"], ["bathe the", "the then"]),
    ],
)
def test_repetitions_are_of_the_metric_s_tokens(tokenize, repeated, others):
    for texts, share in ((repeated, 1), (others, 0)):
        blank = [""] * len(texts)
        assert count_faults(blank, blank, texts, tokenize).repetitions == share
