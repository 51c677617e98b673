"""Documents, which the TensorFlow graph divides by rules and translates sentence by sentence.

The parts of a text joined are the text: white space belongs to the part that it follows.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Annotated, NamedTuple, get_args

import tensorflow as tf

from ..checks import one_of
from ..config.values import Language
from ..tensors import Tensor
from ..tokenizers.placeholders import ESCAPED_MARK, MARK, SPACES, SpanFinder, parts_between
from ..tokenizers.text_codec import TextCodec
from ..tokenizers.tokenizer import Texts
from .search import Translations

Parts = Annotated[tf.RaggedTensor, "string (batch, None)"]

# Bounds of what one document costs: about eight pages, and no more tokens than 200 sentences
# usually have.
MAX_SENTENCES = 200
MAX_TOKENS = 8192

_SPACE_BEFORE = rf"(?s)^([{SPACES}]*).*$"
_SPACE_AFTER = rf"(?s)^.*?([{SPACES}]*)$"
_SPACE_AROUND = rf"^[{SPACES}]+|[{SPACES}]+$"
# Scripts without spaces between sentences, with their punctuation marks.
_ENDS_WITHOUT_SPACE = r"(?s).*[\p{Han}\p{Hiragana}\p{Katakana}\x{3000}-\x{303F}\x{FF00}-\x{FF65}]"

# Abbreviations after which a sentence goes on, by language. Single letters ("J. Smith", "z. B.",
# "U.S.") need no entry. Abbreviations that end sentences as often as not, such as "etc.", have
# none: a sentence that is divided there costs less than two sentences that stay together.
_ABBREVIATIONS: dict[Language, str] = {
    "ar": "",
    "cs": "Bc Ing JUDr Mgr MUDr např PhDr prof doc sv tj tzv ul",
    "da": "bl.a ca dr evt f.eks hr kl prof skt",
    "de": (
        "bspw bzgl bzw ca Dipl Dr ehem evtl Fr geb gegr ggf Hr Hrn Ing inkl insb jr lt med Mio Mrd "
        "Prof sog St Str vgl zzgl"
    ),
    "el": "κ κα π.χ",
    "en": (
        "approx Ave Blvd Capt cf Cmdr Col Dr e.g Gen Gov Hon i.e Lt Maj Messrs Mr Mrs Ms Mt Prof "
        "Rep Rev Sen Sgt St viz vs"
    ),
    "es": "Av Avda Dr Dra Dña Excmo Gral Ilmo Lic p.ej Prof Sr Sra Srta Ud Uds",
    "fi": "esim mm ns prof tri",
    "fr": "av boul c.-à-d cf Dr env Me Mgr MM Mme Mmes Mlle Mlles Pr St Ste",
    "hi": "डॉ श्री",
    "hu": "dr ifj kb özv pl prof stb ún",
    "it": "Arch Avv ca cfr Dott Dr Geom Ing On p.es Prof Rag Sig Sigg",
    "ja": "",
    "ko": "",
    "nb": "bl.a ca dr f.eks hr kl prof",
    "nl": "bijv bv ca dhr dr drs evt ing ir mevr mr mw prof St t.a.v",
    "pl": "dr inż mgr np prof płk św tzn tzw ul",
    "pt": "Av Dr Dra Eng Exmo p.ex Prof Profa Sr Sra Srta Sto",
    "ro": "dl dna dr ing prof str",
    "ru": "акад гос гр др им ок пр проф см ср т.е ул",
    "sv": "bl.a ca dr d.v.s f.ö kl prof s.k t.ex",
    "tr": "Av Doç Dr örn Prof Sn vb",
    "uk": "акад див ім напр проф т.зв вул",
    "zh": "",
}
ABBREVIATIONS: dict[Language, list[str]] = {
    language: words.split() for language, words in _ABBREVIATIONS.items()
}

# Before a number only, in any language: "No. 5", "Art. 3", "S. 12".
BEFORE_NUMBERS = (
    "Abb Abs Art Bd cap ch fig Kap n no nos Nr núm p par pp sec S t Tab vol č s стр".split()
)

# Languages that write "3rd" as "3.".
WITH_ORDINAL_DOTS: frozenset[Language] = frozenset({"cs", "da", "de", "fi", "hu", "nb", "pl", "tr"})

# Marks are put into the text: where it is divided, and after a full stop that ends no sentence.
_DIVISION = MARK + "d"
_NO_END = MARK + "n"

_LINE_BREAKS = r"\n\r\v\f\x{85}\x{2028}\x{2029}"
_ENDS = ".!?…؟۔।॥։።"
# Cf: invisible characters, such as the marks of text from right to left.
_CLOSING = r"""\p{Pe}\p{Pf}\p{Cf}"'”’"""
_OPENING = r"""\p{Ps}\p{Pi}\p{Pd}\p{Cf}"'“‘„‚¿¡"""
# They end a sentence whether or not a space follows.
_CHINESE_ENDS = "。｡！？"
_NEITHER = rf"[^{SPACES}{_CHINESE_ENDS}{_CLOSING}{MARK}"
_NOT_IN_A_WORD = r"(^|[^\p{L}\p{M}\p{N}])"

# A line break ends a sentence.
_LINE_END = rf"([{SPACES}]*[{_LINE_BREAKS}][{SPACES}]*)"
_NUMBER_OF_A_LINE = rf"(^|{_DIVISION})([{SPACES}]*\p{{N}}{{1,3}}\.)"
_SINGLE_LETTERS = _NOT_IN_A_WORD + r"((?:[\p{Lu}\p{Ll}]\.)+)"
_ORDINAL = _NOT_IN_A_WORD + r"((?:\p{N}{1,3}|[IVX]+)\.)"
# In front of a space, “ and ‘ end a German quotation. "# 8" begins as a number does.
_SENTENCE_END = (
    rf"([{_ENDS}][{_CLOSING}“‘]*[{SPACES}]+)"
    rf"([{_OPENING}]*(?:#[{SPACES}]?)?[\p{{Lu}}\p{{Lt}}\p{{Lo}}\pN])"
)
_CHINESE_END = rf"([{_CHINESE_ENDS}][{SPACES}]*)({_NEITHER}])"
# "「はい。」と言った" goes on.
_CHINESE_QUOTATION_END = rf"([{_CHINESE_ENDS}][{_CLOSING}]+[{SPACES}]*)({_NEITHER}と])"

# A sentence that is too long is divided at the end of a clause, or else between words.
_CLAUSE_END = rf"([,;:،؛–—][{_CLOSING}]*[{SPACES}]+|[，、；：][{SPACES}]*)"
_WORD_END = rf"([{SPACES}]+)"


class TranslatedDocuments(NamedTuple):
    """The translations of a batch of documents.

    Attributes:
        was_cut: whether a part of the document was not read: it has a word that is longer than the
            model's `max_length` tokens, or goes on after `MAX_SENTENCES` sentences or after the
            sentence in which it reaches `MAX_TOKENS` tokens.
    """

    texts: Texts
    was_cut: Annotated[Tensor, "bool (batch,)"]


class TranslatedDocument(NamedTuple):
    """The translation of a document."""

    text: str
    was_cut: bool  # as in `TranslatedDocuments`


def translate_documents(
    texts: Texts,
    language: Language | None,
    codec: TextCodec,
    search: Callable[[Tensor], Translations],
) -> TranslatedDocuments:
    """Translates the sentences of documents, in the TensorFlow graph.

    A sentence that is too long for the model is divided at commas or spaces. The white space
    between sentences, and around the document, stays as it is. Where there is none, as in Chinese,
    and the translation is into a script that separates sentences by spaces, a space is added.

    Args:
        texts: the documents. Bytes that are not UTF-8 are read as U+FFFD.
        language: of the documents, see `split_sentences`.
        search: translates sentences, string (n,).
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    sentences = _joined_in_spans(split_sentences(texts, language), codec.spans)
    # Read one sentence more than is translated, to see whether the document goes on.
    sentences = sentences[:, : MAX_SENTENCES + 1]
    max_tokens = codec.max_length - len(codec.tag_ids) - 1
    sentences = divide_long_sentences(sentences, codec.count_source_tokens, max_tokens)
    sentences = _joined_in_spans(sentences, codec.spans)
    translated = sentences[:, :MAX_SENTENCES]
    # Keep the sentences that begin within the first `MAX_TOKENS` tokens of their document, where
    # each sentence has an end token.
    before = tf.cumsum(codec.count_source_tokens(translated.flat_values) + 1, exclusive=True)
    before -= tf.gather(tf.gather(before, translated.row_starts()), translated.value_rowids())
    is_kept = translated.with_flat_values(before < MAX_TOKENS)
    translated = tf.ragged.boolean_mask(translated, is_kept)
    text_given = tf.strings.reduce_join(sentences, axis=1)
    text_read = tf.strings.reduce_join(translated, axis=1)
    goes_on = tf.not_equal(text_given, text_read)
    searched = search(tf.strings.regex_replace(translated.flat_values, _SPACE_AROUND, ""))
    is_cut = tf.cast(searched.source_lengths, tf.int64) > codec.max_length
    any_cut = tf.reduce_any(translated.with_flat_values(is_cut), axis=1)
    translations = tf.strings.regex_replace(searched.texts[:, 0], _SPACE_AROUND, "")
    spaced = translated.with_flat_values(_spaced_as(translated, translations))
    return TranslatedDocuments(tf.strings.reduce_join(spaced, axis=1), goes_on | any_cut)


def _joined_in_spans(sentences: tf.RaggedTensor, spans: SpanFinder | None) -> tf.RaggedTensor:
    """Joins sentences (batch, None) that divide a span that must stay as it is, such as a tag."""
    if spans is None:
        return sentences
    parts = spans.parts(tf.strings.reduce_join(sentences, axis=1))
    is_span = tf.ragged.range(parts.row_lengths()).flat_values % 2 == 1
    sizes = tf.strings.length(parts.flat_values)
    part_ends = tf.cumsum(sizes)
    span_starts = tf.boolean_mask(part_ends - sizes, is_span)
    span_ends = tf.boolean_mask(part_ends, is_span)
    ends = tf.cumsum(tf.strings.length(sentences.flat_values))
    num_begun = tf.searchsorted(span_starts, ends)
    num_ended = tf.searchsorted(span_ends, ends, side="right")
    return _join_parts(sentences, (num_begun <= num_ended)[:-1])


def _spaced_as(sentences: tf.RaggedTensor, translations: Tensor) -> Tensor:
    """The translations (number of sentences,) with the white space around their sentences."""
    texts = sentences.flat_values
    before = tf.strings.regex_replace(texts, _SPACE_BEFORE, r"\1")
    after = tf.strings.regex_replace(texts, _SPACE_AFTER, r"\1")
    # The white space of a sentence that is nothing else is before it.
    after = tf.where(tf.equal(before, texts), "", after)
    limits = sentences.row_limits()
    is_last = tf.scatter_nd(limits[:, None] - 1, tf.ones_like(limits), tf.shape(texts, tf.int64))
    needs_space = (
        tf.equal(after, "")
        & tf.equal(is_last, 0)
        & tf.not_equal(translations, "")
        & tf.logical_not(tf.strings.regex_full_match(translations, _ENDS_WITHOUT_SPACE))
    )
    return tf.strings.join([before, translations, tf.where(needs_space, " ", after)])


def split_sentences(texts: Texts, language: Language | None = None) -> Parts:
    """Divides texts into sentences.

    A sentence ends with a line break, with a Chinese or Japanese stop, and with another stop (. ! ?
    …) if white space follows and then a capital letter, a number or a letter of a script without
    capitals; unless it is the full stop of an abbreviation, a single letter, or a number at the
    beginning of a line.

    Args:
        texts: valid UTF-8.
        language: whose abbreviations are known, and whether "3." is an ordinal. Defaults to None:
            the abbreviations of all languages that are hardly words of others, and no ordinals.

    Returns:
        The sentences with the white space that follows them; at least one per text. Joined they are
        the text.

    Raises:
        ConfigError: The language is not known.
    """
    one_of("language", language, get_args(Language), optional=True)
    marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
    marked = tf.strings.regex_replace(marked, _LINE_END, rf"\1{_DIVISION}")
    for exception in _exceptions(language):
        marked = tf.strings.regex_replace(marked, exception, rf"\1\2{_NO_END}\3")
    for end in (_SENTENCE_END, _CHINESE_END, _CHINESE_QUOTATION_END):
        marked = tf.strings.regex_replace(marked, end, rf"\1{_DIVISION}\2")
    return parts_between(_DIVISION, tf.strings.regex_replace(marked, _NO_END, ""))


def _exceptions(language: Language | None) -> list[str]:
    """Patterns of full stops that end no sentence, as second group; some have a third."""
    if language is None:
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
    patterns += [before_number, _NUMBER_OF_A_LINE + "()", _SINGLE_LETTERS + "()"]
    if language in WITH_ORDINAL_DOTS:
        patterns.append(_ORDINAL + "()")
    return patterns


def _any_of(abbreviations: Collection[str]) -> str:
    # As written, or capitalized at the beginning of a sentence: "On." is an Italian title, "on." is
    # not.
    forms = {form for text in abbreviations for form in (text, text[0].upper() + text[1:])}
    return _NOT_IN_A_WORD + rf"((?:{'|'.join(map(re.escape, sorted(forms)))})\.)"


def divide_long_sentences(
    sentences: Parts, count_tokens: Callable[[Tensor], Tensor], max_tokens: int
) -> Parts:
    """Divides sentences that are too long into parts of similar length.

    They are divided at commas if possible, otherwise at spaces. Other sentences stay as they are.

    Args:
        sentences: valid UTF-8.
        count_tokens: takes texts, string (n,), and returns their numbers of tokens, int (n,).
        max_tokens: of a part. One without a space may have more.
    """
    for end in (_CLAUSE_END, _WORD_END):
        texts = sentences.flat_values
        is_long = tf.cast(count_tokens(texts), tf.int64) > max_tokens
        marked = tf.strings.regex_replace(texts, MARK, ESCAPED_MARK)
        divided = tf.strings.regex_replace(marked, end, rf"\1{_DIVISION}")
        # (number of sentences, None)
        pieces = parts_between(_DIVISION, tf.where(is_long, divided, marked))
        sizes = pieces.with_flat_values(tf.cast(count_tokens(pieces.flat_values), tf.int64))
        totals = tf.reduce_sum(sizes, axis=1)
        # Three quarters full if sizes were equal, so that most fit; each piece goes where its
        # middle would.
        num_parts = tf.where(is_long, tf.maximum(-(-4 * totals // (3 * max_tokens)), 2), 1)
        sentence_of = pieces.value_rowids()
        starts = tf.cumsum(totals, exclusive=True)
        before = tf.cumsum(sizes.flat_values, exclusive=True) - tf.gather(starts, sentence_of)
        num_parts = tf.gather(num_parts, sentence_of)
        totals = tf.maximum(tf.gather(totals, sentence_of), 1)
        part_of = (2 * before + sizes.flat_values) * num_parts // (2 * totals)
        part_of = tf.minimum(part_of, num_parts - 1)
        # A piece begins a part if it is the first of its sentence, or of the part. The last piece
        # may be empty.
        is_new = (part_of[1:] > part_of[:-1]) & tf.not_equal(pieces.flat_values[1:], "")
        begins = (sentence_of[1:] > sentence_of[:-1]) | is_new
        sentences = _join_parts(sentences.with_values(pieces).merge_dims(1, 2), begins)
    return sentences


def _join_parts(parts: Parts, begins: Annotated[Tensor, "bool (number of parts - 1,)"]) -> Parts:
    """Joins each part to the one before it, unless it begins a new one or a text."""
    begins = tf.concat([[True], begins], 0)[: tf.size(parts.flat_values)]
    places = tf.cumsum(tf.cast(begins, tf.int64)) - 1
    groups = tf.RaggedTensor.from_value_rowids(parts.flat_values, places, validate=False)
    text_of = tf.boolean_mask(parts.value_rowids(), begins)
    joined = tf.strings.reduce_join(groups, axis=1)
    return tf.RaggedTensor.from_value_rowids(joined, text_of, parts.nrows(), validate=False)
