"""Splits texts into sentences by rules, inside the TensorFlow graph.

White space belongs to the preceding part, so joining the parts restores the original text.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection
from typing import Annotated

import tensorflow as tf

from ..config.values import language_of, language_tag
from ..tensors import Tensor
from ..tokenizers.placeholders import ESCAPED_MARK, MARK, SPACES, parts_between
from ..tokenizers.tokenizer import Texts

Parts = Annotated[tf.RaggedTensor, "string (batch, None)"]

# Abbreviations that do not end a sentence, by language. Single letters ("J. Smith", "z. B.",
# "U.S.") need no entry. Abbreviations that often end sentences, such as "etc.", are not listed,
# because dividing a sentence by mistake does less harm than leaving two sentences undivided.
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

# Abbreviations only before a number, in any language: "No. 5", "Art. 3", "S. 12".
BEFORE_NUMBERS = (
    "Abb Abs Anm art Art Bd bls blz cap ch č čl fig fol Kap lk n no nos Nr nr núm obr p pag pág "
    "págs par poz pp rys S s sec sid sida σελ стр рис гл ст табл t Tab vol ص".split()
)

# Languages in which "3." means "3rd".
WITH_ORDINAL_DOTS = frozenset("bs cs da de et fi hr hu is lv nb pl sk sl sr tr".split())

# Marks are inserted where the text is divided and after full stops that do not end a sentence. They
# are not letters, so that they do not become part of the following word.
DIVISION = MARK + "\ufdd6"
_NO_END = MARK + "\ufdd7"

_LINE_BREAKS = r"\n\r\v\f\x{85}\x{2028}\x{2029}"
# The Unicode category Cf contains invisible characters, such as right-to-left marks.
CLOSING = r"""\p{Pe}\p{Pf}\p{Cf}"'”’"""
_OPENING = r"""\p{Ps}\p{Pi}\p{Pd}\p{Cf}"'“‘„‚»›¿¡"""
# Marks that end a sentence even without a space: Chinese and Japanese stops, the Arabic question
# mark, dandas, and the marks of Ethiopic, Khmer, Burmese and Tibetan.
UNSPACED_ENDS = "。｡．！？؟।॥።፧፨។៕။།༎༏༐༑"
_ENDS = ".!?…۔։‼⁇⁈⁉" + UNSPACED_ENDS
# Characters that do not start a sentence.
_GOES_ON = rf"{SPACES}{_ENDS}{CLOSING}{MARK},،、，;；:：～—"
_NOT_IN_A_WORD = r"(^|[^\p{L}\p{M}\p{N}])"
_BEGINS = r"\p{Lu}\p{Lt}\p{Lo}\p{Georgian}\p{N}"


# Letters of alphabets without capitals can be initials. Chinese, Japanese and Korean are excluded,
# because a single letter is often a word.
_CASELESS = r"[^\P{Lo}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]\p{M}*"

# A line break ends a sentence.
_LINE_END = rf"([{SPACES}]*[{_LINE_BREAKS}][{SPACES}]*)"
_NUMBER_OF_A_LINE = rf"(^|{DIVISION})([{SPACES}]*\p{{N}}{{1,3}}[.．])"
_INITIALS = _NOT_IN_A_WORD + rf"((?:(?:[\p{{Lu}}\p{{Ll}}]|{_CASELESS})[.．])+)"
_ORDINAL = _NOT_IN_A_WORD + r"((?:\p{N}{1,3}|[IVX]+)\.)"
# "３．１４", and "॥ १ ॥", the number of a verse.
_FULLWIDTH_POINT = r"(\p{N})(．)(\p{N})"
_VERSE = rf"()([।॥][{SPACES}]*)(\p{{N}}+[{SPACES}]*[।॥])"
# "។ល។" means "etc.", and "༄༅། །" starts a text.
_KHMER_ETC = "()(។)(ល។)"
_TIBETAN_HEAD = rf"([༄༅]+)(།[{SPACES}]*།?[{SPACES}]*)()"
# A sentence continues after brackets inside it: "彼は（雨だった。）帰った。"
# 《》 enclose titles.
_BRACKET_IN_A_SENTENCE = (
    rf"((?:[\p{{L}}\p{{N}}][（【]|《)[^（）《》【】{_LINE_BREAKS}]*[{UNSPACED_ENDS}])([）》】])()"
)
# "“好。”他说。" is a single sentence.
_SPEAKER = r"()([。！？…][”’])(\p{Han}{1,4}(?:说|說|问|問|答|喊|叫))"

# Before a space, “ and « may end a quotation, and French quotations have inner spaces. "# 8" can
# start a sentence, as a number can.
_SPACED_END = (
    rf"([{_ENDS}](?:[{CLOSING}“‘«‹]|[{SPACES}]?[»›])*[{SPACES}]+)"
    rf"((?:[{_OPENING}]|[«‹][{SPACES}]?)*(?:#[{SPACES}]?)?[{_BEGINS}])"
)
_UNSPACED_END = rf"([{UNSPACED_ENDS}][{_ENDS}]*[{SPACES}]*)([^{_GOES_ON}])"
# "「はい。」と言った" is a single sentence.
_UNSPACED_QUOTATION_END = rf"([{UNSPACED_ENDS}][{_ENDS}]*[{CLOSING}]+[{SPACES}]*)([^{_GOES_ON}と])"
# The Greek question mark, and the colon where it is typed instead of the Armenian full stop.
_SEMICOLON_END = (
    rf"(\p{{Greek}}[{CLOSING}]*[;\x{{37E}}][{CLOSING}]*[{SPACES}]+)([{_OPENING}]*\p{{Lu}})"
)
_COLON_END = rf"(\p{{Armenian}}:[{SPACES}]+)([{_OPENING}]*\p{{Lu}})"

# Sentences in brackets and in Japanese quotations stay together. A bracket before a space, as in
# ":( ", is ignored.
_BRACKETED = "|".join(
    rf"{begin}[^{SPACES}{begin}{end}][^{begin}{end}{_LINE_BREAKS}]*{end}"
    for begin, end in (*((r"\(", r"\)"), (r"\[", r"\]")), *("（）", "【】", "《》", "「」", "『』"))
)
# Limits the size of text in brackets, because a closing bracket may be missing by mistake.
_MAX_BRACKETED_BYTES = 400
_BRACKET = MARK + "\ufdd8"


def split_sentences(texts: Texts, language: str | None = None) -> Parts:
    """Splits texts into sentences.

    A sentence ends at a line break, at a mark that needs no space, such as 。 or the danda, or at
    another stop (. ! ? …) that is followed by white space and a capital letter, a number or a
    letter of a script without capitals. Full stops of abbreviations, initials and numbers at the
    start of a line, and stops in brackets, do not end a sentence.

    Args:
        texts: texts in valid UTF-8.
        language: BCP 47 tag, such as "de" or "zh-Hant-TW". Its language selects the abbreviations
            and whether "3." is an ordinal. Defaults to None: the abbreviations of all languages,
            except those that may be words in another language, and no ordinals. Unsupported
            languages are treated in the same way.

    Returns:
        The sentences, each with the white space that follows it. Every text has at least one
        sentence, and joining its sentences restores the text.

    Raises:
        ConfigError: If the language is not a BCP 47 tag.
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
    """Returns patterns for stops that do not end a sentence.

    Every pattern has three groups. The second group is the stop.
    """
    if language not in ABBREVIATIONS:
        # Exclude abbreviations that may be words in another language. For example, the German
        # abbreviation "med" is a Swedish word.
        num_languages = Counter(itertools.chain.from_iterable(ABBREVIATIONS.values()))
        abbreviations = [
            form
            for form, number in num_languages.items()
            if number > 1 or not form.islower() or "." in form
        ]
    else:
        abbreviations = ABBREVIATIONS[language]
    before_number = _any_of(BEFORE_NUMBERS) + rf"([{SPACES}]*\p{{N}})"
    # If an abbreviation has several stops, the first pattern marks only the last one.
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
    # Match the listed form, or its capitalized form at the start of a sentence. "On." is an Italian
    # title, but "on." is not.
    forms = {form for text in abbreviations for form in (text, text[0].upper() + text[1:])}
    return _NOT_IN_A_WORD + rf"((?:{'|'.join(map(re.escape, sorted(forms)))})\.)"


def _bracketed(texts: Texts) -> Parts:
    """Divides texts at brackets, so that parts outside and inside brackets alternate."""
    marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
    return parts_between(
        _BRACKET, tf.strings.regex_replace(marked, _BRACKETED, rf"{_BRACKET}\0{_BRACKET}")
    )


def joined_in(sentences: Parts, parts: Parts, max_bytes: int | None = None) -> Parts:
    """Joins sentences that would divide a span, such as a tag that must stay unchanged.

    Args:
        sentences: sentences of texts.
        parts: parts of the same texts, in which text and spans alternate.
        max_bytes: size above which spans may be divided. Defaults to None: spans are not divided.
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
    """Joins each part to the preceding part, unless `begins` is True or a new text starts."""
    begins = tf.concat([[True], begins], 0)[: tf.size(parts.flat_values)]
    places = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    groups = tf.RaggedTensor.from_value_rowids(parts.flat_values, places, validate=False)
    texts = tf.boolean_mask(parts.value_rowids(), begins)
    joined = tf.strings.reduce_join(groups, axis=1)
    return tf.RaggedTensor.from_value_rowids(joined, texts, parts.nrows(), validate=False)
