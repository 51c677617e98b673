"""The script of texts."""

import pytest

from keras_transformer.scripts import OTHER, count_scripts, main_script, script_of_character

TEXTS = {
    "Latn": "The dog, Đorđe and Žofie: 100% 犬",
    "Hani": "狗在公园里跑。请用 LibreOffice Calc 打开。",
    "Jpan": "犬がパークで走る。コンピューター",
    "Hang": "개가 공원에서 뛴다. (漢字)",
    "Thai": "สุนัขวิ่งในสวนสาธารณะ",
    "Laoo": "ໝາແລ່ນ",
    "Khmr": "ឆ្កែរត់",
    "Mymr": "ခွေးပြေးသည်။",
    "Tibt": "ཁྱི་རྒྱུག",
    "Arab": "الكلب يجري في الحديقة.",
    "Deva": "कुत्ता पार्क में दौड़ता है।",
    "Cyrl": "Собака бежит в парке.",
    OTHER: "ᏣᎳᎩ",
}


@pytest.mark.parametrize("script", TEXTS)
def test_a_text_has_the_script_of_most_of_its_letters(script):
    assert main_script([TEXTS[script]]) == script


@pytest.mark.parametrize("text", ["", "123 %", "👍🏽 ー 。！"])
def test_a_text_without_letters_has_no_script(text):
    assert main_script([text]) is None


def test_a_little_kana_in_a_chinese_text_does_not_make_it_japanese():
    assert main_script(["狗在公园里跑" * 4, "の"]) == "Hani"
    assert main_script(["東京都庁", "犬は走る"]) == "Jpan"


def test_marks_and_letters_beyond_the_basic_plane_count():
    assert script_of_character("\U00020000") == "Hani"
    assert script_of_character("\u0e34") == "Thai"
    assert script_of_character("\u0301") is None
    assert count_scripts(["e\u0301a"]) == {"Latn": 2}
