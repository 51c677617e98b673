"""Divides texts into sentences by rules, in the TensorFlow graph.

The parts of a text joined are the text: white space belongs to the part that it follows.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from typing import Annotated

import tensorflow as tf

from ..config.values import language_of, language_tag
from ..tensors import Tensor
from ..tokenizers.placeholders import ESCAPED_MARK, MARK, SPACES, parts_between
from ..tokenizers.tokenizer import Texts

Parts = Annotated[tf.RaggedTensor, "string (batch, None)"]

# Abbreviations after which a sentence goes on, by language. Single letters ("J. Smith", "z. B.",
# "U.S.") need no entry. Abbreviations that end sentences as often as not, such as "etc.", have
# none: a sentence that is divided there costs less than two sentences that stay together.
_ABBREVIATIONS: dict[str, str] = {
    "ar": "",
    "bg": "акад бул г-жа г-н гр др инж проф см ул",
    "ca": "Av Dr Dra Il·lm Prof Sr Sra Sta",
    "cs": "Bc Ing JUDr Mgr MUDr např PhDr prof doc sv tj tzv ul",
    "da": "bl.a ca dr evt f.eks hr kl prof skt",
    "de": (
        "Abt bes bspw bzgl bzw ca Dipl Dr ehem evtl Fa Fr geb gegr ggf Hr Hrn Ing inkl insb jr lt "
        "med Mio Mrd Prof sog St Str vgl zzgl"
    ),
    "el": "αρ βλ Δρ δρ κ κα καθ π.χ",
    "en": (
        "approx Ave Blvd Capt cf Cmdr Col Dr e.g Gen Gov Hon i.e Lt Maj Messrs Mr Mrs Ms Mt Prof "
        "Rep Rev Sen Sgt St viz vs"
    ),
    "es": "Av Avda CC EE FF Dr Dra Dña Excmo Gral Ilmo Lic p.ej Prof Sr Sra Srta Ud Uds",
    "fi": "esim mm ns prof tri",
    "et": "hr dr prof pr st",
    "fa": "",
    "fr": "av boul c.-à-d cf Dr env Me Mgr MM Mme Mmes Mlle Mlles Pr St Ste",
    "he": "",
    "hi": "डॉ श्री प्रो पं",
    "hr": "bl dr gosp ing mr npr prof sv tj tzv ul",
    "hu": "dr ifj kb özv pl prof stb ún",
    "it": "Arch Avv ca cfr Dott Dr Geom Ing On p.es Prof Rag Sig Sigg",
    "ja": "",
    "ko": "",
    "lt": "dr gyd kun pr prof pvz vad",
    "lv": "dr inž prof piem t.i t.s",
    "nb": "bl.a ca dr f.eks hr kl prof",
    "nl": "bijv bv ca dhr dr drs evt ing ir mevr mr mw prof St t.a.v",
    "pl": "dr inż mgr np prof płk św tzn tzw ul",
    "pt": "Av Dr Dra Eng Exmo p.ex Prof Profa Sr Sra Srta Sto",
    "ro": "dl dna dr ing prof str",
    "ru": "акад гос гр др им ок пр проф см ср т.е ул",
    "sk": "Bc Ing JUDr Mgr MUDr napr PhDr prof sv tzv ul",
    "sl": "dr ga g inž mag npr prof sv t.i tj ul",
    "sr": "г-дин г-ђа др инж мр нпр проф св ул dr npr prof tj tzv",
    "sv": "bl.a ca dr d.v.s f.ö kl prof s.k t.ex",
    "th": "",
    "tr": "Av Doç Dr örn Prof Sn vb",
    "uk": "акад див ім напр проф т.зв вул",
    "vi": "GS PGS ThS TP TS",
    "zh": "",
}
ABBREVIATIONS: dict[str, list[str]] = {
    language: words.split() for language, words in _ABBREVIATIONS.items()
}

# Before a number only, in any language: "No. 5", "Art. 3", "S. 12".
BEFORE_NUMBERS = (
    "Abb Abs Anm art Art Bd bls blz cap ch č čl fig fol Kap lk n no nos Nr nr núm obr p pag pág "
    "págs par poz pp rys S s sec sid sida σελ стр рис гл ст табл t Tab vol ص".split()
)

# Languages that write "3rd" as "3.".
WITH_ORDINAL_DOTS = frozenset("bs cs da de et fi hr hu is lv nb pl sk sl sr tr".split())

# Marks are put into the text: where it is divided, and after a full stop that ends no sentence.
# They are no letters, or the word behind one would seem to go on from it.
DIVISION = MARK + "\ufdd6"
_NO_END = MARK + "\ufdd7"

_LINE_BREAKS = r"\n\r\v\f\x{85}\x{2028}\x{2029}"
# Cf: invisible characters, such as the marks of text from right to left.
CLOSING = r"""\p{Pe}\p{Pf}\p{Cf}"'”’"""
_OPENING = r"""\p{Ps}\p{Pi}\p{Pd}\p{Cf}"'“‘„‚»›¿¡"""
# They end a sentence whether or not a space follows: Chinese and Japanese stops, the Arabic
# question mark, dandas, and the marks of Ethiopic, Khmer, Burmese and Tibetan.
UNSPACED_ENDS = "。｡．！？؟।॥።፧፨។៕။།༎༏༐༑"
_ENDS = ".!?…۔։‼⁇⁈⁉" + UNSPACED_ENDS
# A sentence does not begin with them.
_GOES_ON = rf"{SPACES}{_ENDS}{CLOSING}{MARK},،、，;；:：～—"
_NOT_IN_A_WORD = r"(^|[^\p{L}\p{M}\p{N}])"
_BEGINS = r"\p{Lu}\p{Lt}\p{Lo}\p{Georgian}\p{N}"


def _caseless_letters() -> str:
    """Letters of the alphabets without capitals that write initials, as a character class.

    These are the alphabets from Hebrew to Thai and Lao. Chinese, Japanese and Korean, in which a
    letter is often a word, have none of these.
    """
    codes = [code for code in range(0x5D0, 0xF00) if unicodedata.category(chr(code)) == "Lo"]
    return "".join(rf"\x{{{code:X}}}" for code in codes)


# A line break ends a sentence.
_LINE_END = rf"([{SPACES}]*[{_LINE_BREAKS}][{SPACES}]*)"
_NUMBER_OF_A_LINE = rf"(^|{DIVISION})([{SPACES}]*\p{{N}}{{1,3}}[.．])"
_INITIALS = _NOT_IN_A_WORD + rf"((?:(?:[\p{{Lu}}\p{{Ll}}]|[{_caseless_letters()}]\p{{M}}*)[.．])+)"
_ORDINAL = _NOT_IN_A_WORD + r"((?:\p{N}{1,3}|[IVX]+)\.)"
# "３．１４", and "॥ १ ॥", the number of a verse.
_FULLWIDTH_POINT = r"(\p{N})(．)(\p{N})"
_VERSE = rf"()([।॥][{SPACES}]*)(\p{{N}}+[{SPACES}]*[।॥])"
# "។ល។" is "etc."; "༄༅། །" begins a text.
_KHMER_ETC = "()(។)(ល។)"
_TIBETAN_HEAD = rf"([༄༅]+)(།[{SPACES}]*།?[{SPACES}]*)()"
# A sentence goes on after brackets within it: "彼は（雨だった。）帰った。" 《》 are of titles.
_BRACKET_IN_A_SENTENCE = (
    rf"((?:[\p{{L}}\p{{N}}][（【]|《)[^（）《》【】{_LINE_BREAKS}]*[{UNSPACED_ENDS}])([）》】])()"
)
# "“好。”他说。" goes on.
_SPEAKER = r"()([。！？…][”’])(\p{Han}{1,4}(?:说|說|问|問|答|喊|叫))"

# In front of a space, “ and « may end a quotation, and French quotations have spaces within. "# 8"
# begins as a number does.
_SPACED_END = (
    rf"([{_ENDS}](?:[{CLOSING}“‘«‹]|[{SPACES}]?[»›])*[{SPACES}]+)"
    rf"((?:[{_OPENING}]|[«‹][{SPACES}]?)*(?:#[{SPACES}]?)?[{_BEGINS}])"
)
_UNSPACED_END = rf"([{UNSPACED_ENDS}][{_ENDS}]*[{SPACES}]*)([^{_GOES_ON}])"
# "「はい。」と言った" goes on.
_UNSPACED_QUOTATION_END = rf"([{UNSPACED_ENDS}][{_ENDS}]*[{CLOSING}]+[{SPACES}]*)([^{_GOES_ON}と])"
# The question mark of Greek, and the full stop of Armenian where the colon is written for it.
_SEMICOLON_END = (
    rf"(\p{{Greek}}[{CLOSING}]*[;\x{{37E}}][{CLOSING}]*[{SPACES}]+)([{_OPENING}]*\p{{Lu}})"
)
_COLON_END = rf"(\p{{Armenian}}:[{SPACES}]+)([{_OPENING}]*\p{{Lu}})"

# Sentences in brackets, and in Japanese quotations, stay together. After a space, as in ":( ", a
# bracket is none.
_BRACKETED = "|".join(
    rf"{begin}[^{SPACES}{begin}{end}][^{begin}{end}{_LINE_BREAKS}]*{end}"
    for begin, end in (*((r"\(", r"\)"), (r"\[", r"\]")), *("（）", "【】", "《》", "「」", "『』"))
)
# An open bracket may be an error.
_MAX_BRACKETED_BYTES = 400
_BRACKET = MARK + "\ufdd8"


def split_sentences(texts: Texts, language: str | None = None) -> Parts:
    """Divides texts into sentences.

    A sentence ends with a line break; with a mark that needs no space, such as 。 or the danda;
    and with another stop (. ! ? …) if white space follows and then a capital letter, a number or a
    letter of a script without capitals. The full stop of an abbreviation or an initial, or of a
    number at the beginning of a line, ends none, and neither does a stop in brackets.

    Args:
        texts: valid UTF-8.
        language: a BCP 47 tag, such as "de" or "zh-Hant-TW", of which the language counts: whose
            abbreviations are known, and whether "3." is an ordinal. Defaults to None, which is also
            for other languages: the abbreviations of all languages that are hardly words of others,
            and no ordinals.

    Returns:
        The sentences with the white space that follows them; at least one per text. Joined they are
        the text.

    Raises:
        ConfigError: The language is no BCP 47 tag.
    """
    marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
    marked = tf.strings.regex_replace(marked, _LINE_END, rf"\1{DIVISION}")
    for exception in _exceptions(language_of(language_tag("language", language, optional=True))):
        marked = tf.strings.regex_replace(marked, exception, rf"\1\2{_NO_END}\3")
    for end in (
        _SPACED_END,
        _UNSPACED_END,
        _UNSPACED_QUOTATION_END,
        _SEMICOLON_END,
        _COLON_END,
    ):
        marked = tf.strings.regex_replace(marked, end, rf"\1{DIVISION}\2")
    sentences = parts_between(DIVISION, tf.strings.regex_replace(marked, _NO_END, ""))
    return joined_in(sentences, _bracketed(texts), _MAX_BRACKETED_BYTES)


def _exceptions(language: str | None) -> list[str]:
    """Patterns of stops that end no sentence, as second group; three groups each."""
    if language not in ABBREVIATIONS:
        # Only abbreviations that are hardly words of another language: German "med" is a Swedish
        # word.
        num_languages = Counter(itertools.chain.from_iterable(ABBREVIATIONS.values()))
        abbreviations = [
            form
            for form, number in num_languages.items()
            if number > 1 or not form.islower() or "." in form
        ]
    else:
        abbreviations = ABBREVIATIONS[language]
    before_number = _any_of(BEFORE_NUMBERS) + rf"([{SPACES}]*\p{{N}})"
    # The first marks only the ends of abbreviations that consist of single letters and others.
    patterns = [_any_of(abbreviations) + "()"] if abbreviations else []
    patterns += [before_number, _NUMBER_OF_A_LINE + "()", _INITIALS + "()"]
    if language in WITH_ORDINAL_DOTS:
        patterns.append(_ORDINAL + "()")
    return [
        *patterns,
        _FULLWIDTH_POINT,
        _VERSE,
        _KHMER_ETC,
        _TIBETAN_HEAD,
        _BRACKET_IN_A_SENTENCE,
        _SPEAKER,
    ]


def _any_of(abbreviations: Collection[str]) -> str:
    # As written, or capitalized at the beginning of a sentence: "On." is an Italian title, "on." is
    # not.
    forms = {form for text in abbreviations for form in (text, text[0].upper() + text[1:])}
    return _NOT_IN_A_WORD + rf"((?:{'|'.join(map(re.escape, sorted(forms)))})\.)"


def _bracketed(texts: Texts) -> Parts:
    """Divides texts at brackets; every second part, from the second on, is in brackets."""
    marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
    return parts_between(
        _BRACKET, tf.strings.regex_replace(marked, _BRACKETED, rf"{_BRACKET}\0{_BRACKET}")
    )


def joined_in(sentences: Parts, parts: Parts, max_bytes: int | None = None) -> Parts:
    """Joins sentences that divide a span, such as a tag that must stay as it is.

    Args:
        sentences: of some texts.
        parts: of the same texts; every second part, from the second on, is a span.
        max_bytes: longer spans may be divided. Defaults to None: none may.
    """
    is_span = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
    sizes = tf.strings.length(parts.flat_values)
    part_ends = tf.cumsum(sizes)
    if max_bytes is not None:
        is_span &= sizes <= max_bytes
    span_starts = tf.boolean_mask(part_ends - sizes, is_span)
    span_ends = tf.boolean_mask(part_ends, is_span)
    ends = tf.cumsum(tf.strings.length(sentences.flat_values))
    num_begun = tf.searchsorted(span_starts, ends)
    num_ended = tf.searchsorted(span_ends, ends, side="right")
    return join_parts(sentences, (num_begun <= num_ended)[:-1])


def join_parts(parts: Parts, begins: Annotated[Tensor, "bool (number of parts - 1,)"]) -> Parts:
    """Joins each part to the one before it, unless it begins a new one or a text."""
    begins = tf.concat([[True], begins], 0)[: tf.size(parts.flat_values)]
    places = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    groups = tf.RaggedTensor.from_value_rowids(parts.flat_values, places, validate=False)
    texts = tf.boolean_mask(parts.value_rowids(), begins)
    joined = tf.strings.reduce_join(groups, axis=1)
    return tf.RaggedTensor.from_value_rowids(joined, texts, parts.nrows(), validate=False)
