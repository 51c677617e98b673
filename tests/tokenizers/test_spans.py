"""Spans that stay as they are: which are found, and how tokens stand for them, as worked out by
hand."""

import re

import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers import SentencePieceTokenizer, TokenizerPair
from keras_transformer.tokenizers.placeholders import SpanFinder, in_common, numbered_as
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.tokenizers.tokenizer import NUM_PLACEHOLDERS
from keras_transformer.training.batches.augmentation import SubwordDropout
from keras_transformer.training.batches.vocabulary import train_tokenizer

LINES = ["the dog runs to a tree", "a cat sees the house {now}"] * 5
SIZES = {"bpe": 292, "unigram": 285, "wordpiece": 46}


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request):
    return train_tokenizer(LINES, request.param, SIZES[request.param])


def codec_of(tokenizer):
    return TextCodec(TokenizerPair(tokenizer, tokenizer), max_length=100, spans=SpanFinder())


def placeholders_in(tokenizer, token_ids):
    first = tokenizer.placeholder_ids.start
    return [[i - first for i in row if i >= first] for row in token_ids.to_list()]


@pytest.mark.parametrize(
    "text, spans",
    [
        (
            "See https://a.org/b?c=1#d, or (http://x.de/e_(f)).",
            ["https://a.org/b?c=1#d", "http://x.de/e_(f)"],
        ),
        ("www.münchen.de. ftp://a.b/c…", ["www.münchen.de", "ftp://a.b/c"]),
        ("请看http://a.cn/b。好", ["http://a.cn/b"]),
        ("Mail a.b+c@d-e.co.uk! @home a@b", ["a.b+c@d-e.co.uk"]),
        (
            "{a} {} {0:.2f} ${b} {{ c.d }} { not } {\n}",
            ["{a}", "{}", "{0:.2f}", "${b}", "{{ c.d }}"],
        ),
        (
            "%s %1$d %(n)s %.2f %-5d %% %@ 50%ige 5 % d 100%",
            ["%s", "%1$d", "%(n)s", "%.2f", "%-5d", "%%", "%@"],
        ),
        ('<b>x</b><a href="u v">, <br/> 3 < 4 > 2 <3', ["<b>", "</b>", '<a href="u v">', "<br/>"]),
        ("{a}%s<b>{a}", ["{a}", "%s", "<b>", "{a}"]),
        (" ".join(f"{{{i}}}" for i in range(9)), [f"{{{i}}}" for i in range(8)]),
        ("\ufdd0k {a}\ufdd0 \ufdd0o", ["{a}"]),
        ("", []),
    ],
)
def test_what_is_found(text, spans):
    divided = SpanFinder().divide(tf.constant([text]))
    assert [span.decode() for span in divided.spans[0].numpy() if span] == spans
    columns = [
        text
        for pair in zip(divided.texts[0, :-1].numpy(), divided.spans[0].numpy())
        for text in pair
    ]
    assert b"".join([*columns, divided.texts[0, -1].numpy()]).decode() == text


@pytest.mark.parametrize(
    "text, spans",
    [
        ("\ufdd0a@b.org", ["a@b.org"]),
        ("\ufdd0Kibo runs", ["Kibo"]),
        ("\ufdd0%d", ["%d"]),
        ("\ufdd0www.a.de \ufdd5", ["www.a.de"]),
        ("\ufdd0\ufdd5http://a.org\ufdd0", ["http://a.org"]),
        ("\ufdd0ka@b.org \ufdd0w", ["ka@b.org"]),
        ("{\ufdd0} <a \ufdd0o> \uffffKibo", ["{\ufdd0}", "<a \ufdd0o>", "Kibo"]),
    ],
)
def test_characters_that_the_finder_uses_itself_stay_in_a_text(text, spans):
    finder = SpanFinder(["Kibo"])
    parts = [part.decode() for part in finder.parts(tf.constant([text])).to_list()[0]]
    assert parts[1::2] == spans and "".join(parts) == text
    divided = finder.divide(tf.constant([text]))
    kept, _, _ = in_common(divided, divided)
    texts, spans_again = kept.texts.numpy()[0], [*kept.spans.numpy()[0], b""]
    assert [span.decode() for span in spans_again if span] == spans
    assert b"".join(a + b for a, b in zip(texts, spans_again, strict=True)).decode() == text


@pytest.mark.parametrize(
    "mark", ["。", "．", "，", "、", "）", "」", "؟", "،", "।", "။", "።", ".", ",", "!", "»"]
)
def test_a_url_ends_before_the_mark_of_any_script(mark):
    for address in ("http://example.com", "www.example.com/a?b=1", "a@b.org"):
        assert SpanFinder().spans([f"請看{address}{mark}"]) == [[address.encode()]]


PATTERNS = [r"%[0-9]+", r"\$\([A-Z0-9]+\)", "%PRODUCTNAME", "#[a-z]+#", "[一二三]号"]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("%1 of %2: $(ARG1) in %PRODUCTNAME.", ["%1", "%2", "$(ARG1)", "%PRODUCTNAME"]),
        ("第%1个#name#，二号，%s。", ["%1", "#name#", "二号", "%s"]),
        ("{a}%1<b>", ["{a}", "%1", "<b>"]),
        ("%", []),
        ("\ufdd0%1\ufdd0", ["%1"]),
    ],
)
def test_own_patterns_are_found_beside_the_built_in_ones(text, spans):
    finder = SpanFinder.of(DecodingConfig(placeholders=True, placeholder_patterns=PATTERNS))
    assert finder.spans([text]) == [[span.encode() for span in spans]]
    (parts,) = finder.parts(tf.constant([text])).to_list()
    assert b"".join(parts).decode() == text


def test_a_pattern_that_takes_a_part_of_an_escaped_mark_changes_no_text():
    for pattern in ("x.", ".", "[^a]", "\ufdd5", ".x", "x|\ufdd0"):
        finder = SpanFinder(["Kibo"], [pattern])
        for text in ("x\ufdd0", "\ufdd0x", "\ufdd5\ufdd0\ufdd0", "\ufdd0k\ufdd0Kibo\ufdd0w"):
            (parts,) = finder.parts(tf.constant([text])).to_list()
            assert b"".join(parts).decode() == text, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("(", "a regular expression of RE2"),
        ("a)(b", "a regular expression of RE2"),
        (r"(?<=a)b", "a regular expression of RE2"),
        (r"(a)\1", "a regular expression of RE2"),
        ("x*", "a pattern that does not match an empty text"),
        (r"\b", "a pattern that does not match an empty text"),
        ("^|b", "a pattern that does not match an empty text"),
        ("[ab]?", "a pattern that does not match an empty text"),
    ],
)
def test_a_pattern_that_would_not_do_is_refused_in_one_line(pattern, rule):
    message = re.escape(f"decoding.placeholder_patterns[1] must be {rule}; received ")
    with pytest.raises(ConfigError, match=message):
        SpanFinder(patterns=["ok", pattern])


def test_patterns_need_placeholders():
    rule = "decoding.placeholder_patterns needs decoding.placeholders=true"
    with pytest.raises(ConfigError, match=rule):
        DecodingConfig(placeholder_patterns=["%1"])
    rule = r"decoding.placeholder_patterns\[0\] must be a text that is not blank"
    with pytest.raises(ConfigError, match=rule):
        DecodingConfig(placeholders=True, placeholder_patterns=[" "])


@pytest.mark.slow
def test_terms_are_whole_words_and_the_longer_one_counts():
    terms = ["IT", "New York", "York", "C++", "(R)", "größe"]
    text = "IT in New York, not YorkIT: C++(R) größe IT. Größer https://IT.org"
    (spans,) = SpanFinder(terms).divide(tf.constant([text])).spans.numpy()
    actual = [span.decode() for span in spans if span]
    assert actual == ["IT", "New York", "C++", "(R)", "größe", "IT", "https://IT.org"]
    (spans,) = (
        SpanFinder(["50\u00a0%", "a\u3000b"])
        .divide(tf.constant(["50\u00a0%, a\u3000b"]))
        .spans.numpy()
    )
    assert [span.decode() for span in spans if span] == ["50\u00a0%", "a\u3000b"]
    with pytest.raises(ConfigError, match="a term that is kept must not be blank; received ' '"):
        SpanFinder([" "])
    with pytest.raises(
        ConfigError, match="decoding.keep must have fewer or shorter terms; received 200,000"
    ):
        SpanFinder([f"word{i:06}" * 9 for i in range(200_000)])


def test_no_text_has_placeholders_and_none_becomes_text(tokenizer):
    ids = tokenizer.placeholder_ids
    assert (len(ids), ids.stop) == (NUM_PLACEHOLDERS, tokenizer.vocab_size)
    texts = [" ".join(tokenizer.pieces(ids)), "".join(tokenizer.pieces(ids)), "{ph1}", "[PH1]"]
    assert tokenizer.tokenize(texts).flat_values.numpy().max() < ids.start
    dog_ids = tokenizer.tokenize(["the dog"]).to_list()[0]
    assert tokenizer.detokenize(
        tf.ragged.constant([[ids[0], *dog_ids, ids[7]]])
    ).numpy().tolist() == [b"the dog"]


def test_a_span_is_one_token_and_comes_back(tokenizer):
    texts = [
        "the dog {now} runs to <b>a</b> tree {now}",
        "{now}",
        "",
        "a cat",
        " ".join(["%s"] * 10),
    ]
    codec = codec_of(tokenizer)
    source = codec.encode_sources(tf.constant(texts))
    assert placeholders_in(tokenizer, source.token_ids) == [[0, 1, 2, 3], [0], [], [], [*range(8)]]
    assert source.token_ids[3].numpy().tolist() == [
        *tokenizer.tokenize(["a cat"]).to_list()[0],
        tokenizer.end_id,
    ]
    back = [text.decode() for text in codec.decode(source.token_ids, source, 1).numpy()]
    if isinstance(tokenizer, SentencePieceTokenizer):
        assert back == texts
    else:
        assert back[1:4] == texts[1:4] and back[0] == "the dog {now} runs to <b> a </b> tree {now}"
        assert back[4].startswith("%s%s%s%s%s%s%s%s")


def test_pairs_have_placeholders_for_what_is_on_both_sides(tokenizer):
    source = ["{a} the %s {b} {a}", "{a} {a}", "{x}", "the"]
    target = ["{b} <i> {a} {a} {a}", "{a} a", "{y}", "the"]
    sides = codec_of(tokenizer).encode_pairs(tf.constant(source), tf.constant(target))
    numbers = [placeholders_in(tokenizer, side.token_ids) for side in sides]
    # {b} is the source's second that is kept, its two {a} are the first and the third.
    assert numbers == [[[0, 1, 2], [0], [], []], [[1, 0, 2], [0], [], []]]
    # What is not on both sides is text as if there were no placeholders.
    assert sides[0].token_ids[2].numpy().tolist() == [
        *tokenizer.tokenize(["{x}"]).to_list()[0],
        tokenizer.end_id,
    ]
    # In a prefix, of what a source has: {b} is its third.
    _, numbers_of_target = numbered_as(
        *(SpanFinder().divide(tf.constant(side)) for side in (source, target))
    )
    assert numbers_of_target.numpy()[0].tolist() == [2, 0, 3, -1, -1, -1, -1, -1]


def test_subword_dropout_leaves_placeholders_alone():
    tokenizer = train_tokenizer(LINES, "bpe", SIZES["bpe"])
    texts = [b"the dog {now} runs", b"{a}{b}", b""]
    codec = codec_of(SubwordDropout(tokenizer, rate=0.5, seed=1))
    source = codec.encode_sources(tf.constant(texts))
    assert codec.decode(source.token_ids, source, 1).numpy().tolist() == texts
    assert placeholders_in(tokenizer, source.token_ids) == [[0], [0, 1], []]
