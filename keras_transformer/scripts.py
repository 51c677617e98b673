"""Detects the script of a text from its letters, without TensorFlow.

Scripts are given as ISO 15924 codes, such as "Latn". Japanese is "Jpan", for both kanji and kana.
"""

import functools
from collections import Counter
from collections.abc import Iterable

import regex

# Values of Unicode's property Script, by ISO 15924 code.
NAMES = {
    "Arab": "Arabic",
    "Armn": "Armenian",
    "Beng": "Bengali",
    "Cyrl": "Cyrillic",
    "Deva": "Devanagari",
    "Ethi": "Ethiopic",
    "Geor": "Georgian",
    "Grek": "Greek",
    "Gujr": "Gujarati",
    "Guru": "Gurmukhi",
    "Hang": "Hangul",
    "Hani": "Han",
    "Hebr": "Hebrew",
    "Hira": "Hiragana",
    "Kana": "Katakana",
    "Khmr": "Khmer",
    "Knda": "Kannada",
    "Laoo": "Lao",
    "Latn": "Latin",
    "Mlym": "Malayalam",
    "Mong": "Mongolian",
    "Mymr": "Myanmar",
    "Orya": "Oriya",
    "Sinh": "Sinhala",
    "Syrc": "Syriac",
    "Taml": "Tamil",
    "Telu": "Telugu",
    "Thaa": "Thaana",
    "Thai": "Thai",
    "Tibt": "Tibetan",
}
# The code for any other script.
OTHER = "Zzzz"
# Scripts without spaces between words.
UNSPACED = frozenset({"Hani", "Jpan", "Khmr", "Laoo", "Mymr", "Thai", "Tibt"})

# The number of English letters that correspond to one letter of these scripts in Tatoeba sentences
# (docs/data.md). Because of these weights, a Latin name does not outweigh a Chinese sentence.
_WEIGHTS = {"Hani": 3, "Hira": 2, "Kana": 2, "Hang": 2}
# The minimum share of kana in a Japanese text. Usually, at least half of the characters are kana. A
# Chinese text may also quote some Japanese.
_LEAST_SHARE_OF_KANA = 0.1
# Common characters that only simplified Chinese has, and their traditional counterparts in the same
# order.
_SIMPLIFIED = (
    "这汤们个吗会来没说为时车给点学欢开过对话该请间让语书发丽现玛问电见认经还样觉钱应"
    "从儿听亲国帮机诉无题谁东于买长气错关两饭须游读门难写爱试乐谢总动种进将兴记离医许"
    "师结议条带决习妈场头张确视马笔计实谈远园顿论变够办辆边馆礼讲轻单网业声运图识风"
)
_TRADITIONAL = (
    "這湯們個嗎會來沒說為時車給點學歡開過對話該請間讓語書發麗現瑪問電見認經還樣覺錢應"
    "從兒聽親國幫機訴無題誰東於買長氣錯關兩飯須遊讀門難寫愛試樂謝總動種進將興記離醫許"
    "師結議條帶決習媽場頭張確視馬筆計實談遠園頓論變夠辦輛邊館禮講輕單網業聲運圖識風"
)
_SCRIPT = regex.compile(
    "|".join(rf"(?P<{code}>[\p{{L}}\p{{M}}&&\p{{{name}}}])" for code, name in NAMES.items()),
    regex.V1,
)
_LETTER = regex.compile(r"\p{L}")


@functools.lru_cache(2**16)
def script_of_character(character: str) -> str | None:
    """Returns the script of a letter or combining mark.

    Returns None for characters that all scripts share, such as digits and punctuation.

    Example:
        >>> [script_of_character(character) for character in "aж字1"]
        ['Latn', 'Cyrl', 'Hani', None]
    """
    match = _SCRIPT.match(character)
    if match:
        return match.lastgroup
    return OTHER if _LETTER.match(character) and character not in "ーｰ" else None


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """Counts the letters of texts by script.

    Example:
        >>> count_scripts(["An ёж", "a"])
        Counter({'Latn': 3, 'Cyrl': 2})
    """
    characters = Counter[str]()
    for text in texts:
        characters.update(text)
    scripts = Counter[str]()
    for character, number in characters.items():
        script = script_of_character(character)
        if script is not None:
            scripts[script] += number
    return scripts


def name_of_script(code: str | None) -> str:
    """Returns the readable name of a script, or "another script" if its name is not known.

    Example:
        >>> name_of_script("Hani"), name_of_script("Jpan"), name_of_script(OTHER)
        ('Han', 'Japanese', 'another script')
    """
    return "Japanese" if code == "Jpan" else NAMES.get(code or "", "another script")


def forms_of_chinese(text: str) -> set[str]:
    """Returns a set with "simplified", "traditional" or both, from the characters of a text.

    The set is empty if both forms share all characters of the text, as in "你好".

    Example:
        >>> forms_of_chinese("这是马。"), forms_of_chinese("這是馬。")
        ({'simplified'}, {'traditional'})
    """
    characters = set(text)
    forms = {"simplified": _SIMPLIFIED, "traditional": _TRADITIONAL}
    return {form for form, its in forms.items() if not characters.isdisjoint(its)}


def main_script(texts: Iterable[str]) -> str | None:
    """Returns the script of most letters in the texts, or None if there are no letters.

    Kana and kanji together count as Japanese if at least a tenth of them are kana.

    Example:
        >>> main_script(["犬が走る。"]), main_script(["用 Firefox 打开链接。"])
        ('Jpan', 'Hani')
    """
    counts = count_scripts(texts)
    weights = {script: _WEIGHTS.get(script, 1) * number for script, number in counts.items()}
    kana = counts["Hira"] + counts["Kana"]
    if kana and kana >= _LEAST_SHARE_OF_KANA * (kana + counts["Hani"]):
        weights["Jpan"] = sum(weights.pop(script, 0) for script in ("Hani", "Hira", "Kana"))
    else:
        # A Chinese text that contains a few kana is not Japanese.
        weights.pop("Hira", None)
        weights.pop("Kana", None)
    return max(weights, key=lambda script: weights[script], default=None)
