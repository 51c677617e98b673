"""SentencePiece model files: what is refused before SentencePiece, which trusts them, reads
them."""

import io
import re

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers import PretrainedSentencePieceTokenizer
from keras_transformer.tokenizers.sentencepiece import (
    ModelProto,
    SentencePiece,
    load_subwords,
    parse_model,
)

LINES = [f"a{first} b{second} ab" for first in "cdefg" for second in "hijkl"]


def train(**options):
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=content,
        **dict(vocab_size=40, hard_vocab_limit=False, minloglevel=2, bos_id=-1, eos_id=0, unk_id=1),
        **options,
    )
    return content.getvalue()


def changed(change, content=None):
    """A model file in which `change` has changed something."""
    proto = ModelProto.FromString(content or train(normalization_rule_name="identity"))
    change(proto)
    return proto.SerializeToString()


@pytest.mark.parametrize("rule", ["identity", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_what_sentencepiece_trains_passes(rule, model_type):
    content = train(normalization_rule_name=rule, model_type=model_type)
    assert parse_model(content).SerializeToString() == content


def units(*cells):
    """A trie of 256 units, all of which but these cannot be reached: their label is another byte
    than their place."""
    trie = np.full(256, 0xFF, "<u4")
    trie[0xFF] = 0
    for place, unit in cells:
        trie[place] = unit
    return trie.tobytes()


def inner(label, offset, is_end=False):
    """A unit that the byte `label` leads to; its children are `offset` away from its place."""
    return label | is_end << 8 | offset << 10


VALUE = 1 << 31
# The root is at 0, and its children at (0 ^ 1) ^ byte: that of "a" (97) at 96. Its value is at 96 ^
# 2 = 98.
A_BECOMES_B = units((0, inner(0, 1)), (96, inner(97, 2, is_end=True)), (98, VALUE | 0))


def with_map(trie, texts=b"b\0", size=None):
    content = (len(trie) if size is None else size).to_bytes(4, "little") + trie + texts
    return changed(lambda proto: setattr(proto.normalizer_spec, "precompiled_charsmap", content))


def test_a_map_made_by_hand_passes_and_is_used():
    content = with_map(A_BECOMES_B)
    parse_model(content)
    tokenizer = load_subwords(content, tf.string)
    assert b"".join(tokenizer.tokenize("abab").numpy()).decode() == "\u2581bbbb"


DAMAGED = {
    "no trie": (b"",),
    "a trie larger than the file": (A_BECOMES_B, b"b\0", 10**9),
    "half a unit": (A_BECOMES_B + b"a",),
    "no texts": (A_BECOMES_B, b""),
    "a text without end": (A_BECOMES_B, b"b"),
    "a long text": (A_BECOMES_B, b"b" * 1001 + b"\0"),
    "not UTF-8": (A_BECOMES_B, b"\xff\0"),
}
A_ENDS = ((0, inner(0, 1)), (96, inner(97, 2, is_end=True)))
LEADS_OUTSIDE = {
    "too few units": (A_BECOMES_B[:-4],),
    "children outside": (units((0, inner(0, 256))),),
    "grandchildren outside": (units((0, inner(0, 1)), (96, inner(97, 1 << 20))),),
    "a value outside": (units(*A_ENDS, (98, VALUE | 2)),),
    "a value inside of a character": (units(*A_ENDS, (98, VALUE | 1)), "ß\0".encode()),
    # The children of "a" are those of the root, so that "aaa…" matches as often as it is long.
    "a cycle": (units((0, inner(0, 1)), (96, inner(97, 97, is_end=True)), (1, VALUE)),),
}


@pytest.mark.parametrize("name", [*DAMAGED, *LEADS_OUTSIDE])
def test_a_map_that_leads_astray_is_refused(name):
    message = "is damaged" if name in DAMAGED else "has invalid offsets"
    with pytest.raises(
        ConfigError, match=rf"the character map \(precompiled_charsmap\) of the .* model {message}"
    ):
        parse_model(with_map(*(DAMAGED | LEADS_OUTSIDE)[name]))


def nested(proto):
    for number in range(40):
        proto.pieces.add(piece="x" * (number + 1), score=0.0, type=SentencePiece.USER_DEFINED)


RULE = "a piece must be text of 1 to 1,000 bytes"
CHANGES = {
    "empty piece": (lambda proto: setattr(proto.pieces[5], "piece", ""), RULE),
    "NUL": (lambda proto: setattr(proto.pieces[5], "piece", "a\0b"), RULE),
    "long piece": (lambda proto: setattr(proto.pieces[5], "piece", "a" * 1001), RULE),
    "twice": (
        lambda proto: setattr(proto.pieces[5], "piece", proto.pieces[6].piece),
        "the pieces must be different",
    ),
    "NaN": (
        lambda proto: setattr(proto.pieces[5], "score", float("nan")),
        "must be finite; received nan",
    ),
    "no unknown": (
        lambda proto: setattr(proto.pieces[1], "type", 1),
        "the number of unknown pieces must be 1",
    ),
    "words": (
        lambda proto: setattr(proto.trainer_spec, "model_type", 3),
        "must be unigram (1) or BPE (2)",
    ),
    "a control character": (
        lambda proto: proto.pieces.add(piece="x", type=SentencePiece.CONTROL),
        "a control piece must be longer than a character",
    ),
    "nested": (nested, "a piece must be the beginning of at most 32 others"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_pieces_that_sentencepiece_cannot_use_are_refused(name):
    change, message = CHANGES[name]
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_model(changed(change))
    content = train(normalization_rule_name="identity").replace(
        "\u2581b".encode(), b"\xe2\x96\xffb"
    )
    with pytest.raises(ConfigError, match="a piece must be text"):
        parse_model(content)


def imported(content, *others):
    """A tokenizer of the pieces of a model, and of others."""
    pieces = [
        piece.piece for piece in parse_model(content).pieces if piece.type == SentencePiece.NORMAL
    ]
    return PretrainedSentencePieceTokenizer.with_vocabulary(content, [*pieces, *others])


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_character_of_the_vocabulary_that_the_model_lacks_has_its_id(model_type):
    tokenizer = imported(train(model_type=model_type), "ß", "xyz")
    ids = tokenizer.tokenize(["ß"]).to_list()[0]
    assert tokenizer.pieces(ids) == ["\u2581", "ß"]


@pytest.mark.parametrize("piece", ["", "a\0", "\ud800", "<start>", "ab"])
def test_a_vocabulary_that_no_tokenizer_can_have_is_refused(piece):
    with pytest.raises(ConfigError, match="a piece must be text|a list of unique pieces"):
        PretrainedSentencePieceTokenizer.with_vocabulary(train(), ["ab", piece])


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_in_an_imported_model_special_symbols_are_text(model_type):
    tokenizer = imported(train(model_type=model_type, character_coverage=1.0))
    texts = [f"ac {symbol} bh" for symbol in ("</s>", "<start>", "<pad>", "<0x0A>")]
    for row in tokenizer.tokenize(texts).to_list():
        assert not {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id} & set(row)
        assert len(row) >= 3 and tokenizer.unk_id in row
    # As everywhere else, such a model reads its own sign for a space as a space.
    assert tokenizer.tokenize(["ac \u2581 bh"]).to_list() == tokenizer.tokenize(["ac bh"]).to_list()


def test_the_bytes_per_piece_leave_room_for_what_normalization_shortens():
    for rule, factor in (("identity", 1), ("nmt_nfkc", 4)):
        content = train(normalization_rule_name=rule, remove_extra_whitespaces=factor == 4)
        tokenizer = imported(content)
        longest = max(len(piece.encode()) for piece in tokenizer.vocabulary)
        assert tokenizer.bytes_per_token == factor * longest
    # "ab" in mathematical letters, of 4 bytes each.
    bold = "\U0001d41a\U0001d41b " * 50
    assert tokenizer.tokenize([bold]).to_list() == tokenizer.tokenize(["ab " * 50]).to_list()
    assert not tokenizer.shorten(tf.constant([bold]), 51)[1].numpy()[0]


def test_spaces_that_normalization_drops_may_be_all_that_is_read():
    tokenizer = imported(train())
    text, is_cut = tokenizer.shorten(tf.constant([" " * 10**6 + "ab"]), 10)
    assert is_cut.numpy()[0] and tokenizer.tokenize(text).row_lengths().numpy()[0] == 0
