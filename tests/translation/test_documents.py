"""Documents whose sentences are translated by a table: how they are joined, and that nothing is
lost."""

import pytest
import tensorflow as tf

from benchmarks.marked_sentences import MARKED, sentences_of
from benchmarks.sentence_splitting import f1, ours
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.translation.documents import translate_documents
from keras_transformer.translation.search import TranslationTensors

# A greeting and a question in 30 languages, the marks of each, with a break and odd spaces.
PARAGRAPHS = {
    "am": "ሰላም ነው።እንዴት ነህ፧ ደህና ነኝ።\n",
    "ar": "مرحباً يا د. سامي. كيف حالك؟ بخير!\u200f",
    "bg": "Здравей, г-н Иванов. Как си?  Добре.",
    "bn": "নমস্কার।আপনি কেমন আছেন? ভালো।",
    "bo": "༄༅། །བཀྲ་ཤིས་བདེ་ལེགས། །ང་འགྲོ།",
    "cs": "\tDobrý den. Jak se máte?\r\nDobře, např. dnes.",
    "de": "Guten Tag, Hr. Weber.  Wie geht’s? „Gut.“ ",
    "el": "Γεια σου. Τι κάνεις; Καλά.",
    "en": " Hello, J. Smith. How are you? (Fine. Really.)\n\nBye.",
    "es": "¡Hola! ¿Cómo estás? Bien.",
    "fa": "سلام. حال شما چطور است؟خوبم.",
    "fi": "Hei! Mitä kuuluu? Hyvää 3. päivänä.",
    "fr": "Bonjour\u00a0! «\u00a0Ça va\u202f?\u00a0» Oui.",
    "he": "שלום ד. כהן. מה שלומך? טוב.",
    "hi": "नमस्ते।आप कैसे हैं? ठीक।। ॥ १ ॥",
    "hy": "Բարև։ Ինչպե՞ս ես: Լավ։",
    "it": "Ciao, Sig. Rossi. Come stai? Bene…",
    "ja": "\u3000今日は。元気ですか？「はい。」と言った。\u3000終わり．",
    "ka": "გამარჯობა. როგორ ხარ? კარგად.",
    "km": "សួស្តី។សុខសប្បាយទេ? បាទ៕",
    "ko": "안녕하세요. 잘 지내요? 네.",
    "lo": "ສະບາຍດີ ເຈົ້າເປັນແນວໃດ ສະບາຍດີ",
    "my": "မင်္ဂလာပါ။နေကောင်းလား။ ကောင်းပါတယ်။",
    "pl": "Dzień dobry. Jak się masz? Dobrze.",
    "ru": "Привет, А. С. Пушкин. Как дела? Хорошо.",
    "ta": "வணக்கம். எப்படி இருக்கிறீர்கள்? நலம்.",
    "th": "สวัสดีครับ คุณสบายดีไหม ผมสบายดี",
    "tr": "Merhaba. Nasılsın? İyiyim, ör. bugün.",
    "ur": "السلام علیکم۔ آپ کیسے ہیں؟ ٹھیک۔",
    "zh": "你好。 你怎么样？“很好。”他说。👩\u200d👧再见!\u2028",
}


class Characters:
    """A codec whose tokens are characters."""

    tag_ids = ()

    def __init__(self, max_length, spans=None):
        self.max_length = max_length
        self.spans = spans

    def count_source_tokens(self, texts):
        if self.spans is not None:
            parts = self.spans.parts(texts)
            is_span = tf.ragged.range(parts.row_lengths()) % 2 == 1
            texts = tf.strings.reduce_join(tf.where(is_span, "*", parts), axis=1)
        return tf.cast(tf.strings.length(texts, "UTF8_CHAR"), tf.int64)


def translated(text, *arguments, **options):
    """Translates a document as `translated_all` does."""
    (joined,), sentences = translated_all([text], *arguments, **options)
    return joined, sentences


def translated_all(texts, translations=None, language=None, max_length=1000, spans=None):
    """Translates documents by a table, without which each sentence stays as it is."""
    codec = Characters(max_length, spans)
    sentences = []

    def search(texts):
        sentences.extend(part.decode() for part in texts.numpy())
        results = [(translations or {}).get(part.decode(), part.decode()) for part in texts.numpy()]
        return TranslationTensors(
            tf.constant(results, tf.string)[:, None],
            None,
            None,
            codec.count_source_tokens(texts) + 1,
        )

    actual = translate_documents(tf.constant(texts), language, codec, search)
    assert not actual.was_cut.numpy().any()
    return [text.decode() for text in actual.texts.numpy()], sentences


@pytest.mark.parametrize("language", PARAGRAPHS)
def test_a_document_that_is_divided_and_joined_has_every_character(language):
    assert len(PARAGRAPHS) == 30
    text = PARAGRAPHS[language] * 3
    joined, sentences = translated(text, language=language, max_length=9)
    assert joined == text
    assert len(sentences) > 2


@pytest.mark.parametrize("max_length", [20, 1000])
def test_the_scripts_of_documents_say_how_they_are_divided(max_length):
    texts = [text * 3 for text in PARAGRAPHS.values()]
    joined, sentences = translated_all(texts, max_length=max_length)
    assert joined == texts
    # Each text has three sentences and more, but Thai and Lao, which have no marks: they are
    # divided only if they are long.
    assert len(sentences) > 3 * (len(texts) - 2)


@pytest.mark.parametrize(
    ("text", "translations", "expected"),
    [
        # Chinese and Japanese have no space between sentences, whatever mark ends them.
        (
            "Hi. How are you? Bye.\nNo.",
            ["你好。", "你好吗?", "再见", "不。"],
            "你好。你好吗?再见\n不。",
        ),
        ("He came. It rained.", ["彼は来た。", "雨だった。"], "彼は来た。雨だった。"),
        ("안녕. 잘 가.", ["你好。", "再见。"], "你好。再见。"),
        # Two that stayed in letters keep their space.
        (
            "Yes. OK. Co. Day.",
            ["对。", "OK.", "Co.", "今天天气很好。"],
            "对。OK. Co.今天天气很好。",
        ),
        # Other languages have one, also those that have none between words.
        ("你好。再见。", ["Hello.", "Bye."], "Hello. Bye."),
        ("你好。再见。", ["สวัสดี", "ลาก่อน"], "สวัสดี ลาก่อน"),
        ("你好。再见。", ["ສະບາຍດີ", "ລາກ່ອນ"], "ສະບາຍດີ ລາກ່ອນ"),
        ("你好。再见。", ["សួស្តី។", "លាហើយ។"], "សួស្តី។ លាហើយ។"),
        ("你好。再见。", ["မင်္ဂလာပါ။", "သွားတော့မယ်။"], "မင်္ဂလာပါ။ သွားတော့မယ်။"),
        ("今日は。\u3000さようなら。", ["Hello.", "Bye."], "Hello. Bye."),
        ("यह एक है।यह दो है।", ["One.", "Two."], "One. Two."),
        ("ខ្ញុំទៅ។គាត់ដេក។", ["I go.", "He sleeps."], "I go. He sleeps."),
        # A name in Chinese does not make an English text Chinese.
        ("你好。再见。", ["It is called 红狗.", "Bye."], "It is called 红狗. Bye."),
        # Between languages that have spaces, they stay as they are.
        ("Hi.  Bye.\u2028 No.", ["Hallo.", "Ade.", "Nein."], "Hallo.  Ade.\u2028 Nein."),
        # Nothing is added to a sentence without a translation.
        ("你好。再见。", ["", "Bye."], "Bye."),
    ],
)
def test_sentences_are_joined_as_the_language_of_the_translation_writes(
    text, translations, expected
):
    _, sentences = translated(text)
    assert len(sentences) == len(translations)
    assert translated(text, dict(zip(sentences, translations)))[0] == expected


def test_a_long_text_without_a_mark_loses_nothing_and_spans_stay_whole():
    spans = SpanFinder()
    text = "我们看见{name}在http://example.com/abcdefghij里面玩了很久很久" * 3
    joined, sentences = translated(text, max_length=12, spans=spans)
    assert joined == text and len(sentences) > 3
    assert sum("http://example.com/abcdefghij" in sentence for sentence in sentences) == 3
    assert sum("{name}" in sentence for sentence in sentences) == 3


@pytest.mark.parametrize(
    ("language", "least"),
    [
        ("ar", 95), ("de", 100), ("el", 100), ("en", 97), ("es", 97), ("fr", 97), ("hi", 95),
        ("ja", 97), ("my", 97), ("pl", 94), ("ru", 94), ("zh", 87),
    ],
)  # fmt: skip
def test_sentences_marked_by_hand_are_told_apart(language, least):
    assert len(MARKED) == 12 and len(sentences_of(language)) == 20
    assert f1(ours, language) >= least
