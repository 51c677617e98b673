"""The tokenizers: exact round trips, the same ids as the sentencepiece package, use in a
SavedModel."""

import random

import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.config import TokenizerConfig
from keras_transformer.errors import InvalidFileError
from keras_transformer.tokenizers import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordPieceTokenizer,
    load_tokenizers,
)
from keras_transformer.tokenizers.sentencepiece import prepare_line
from keras_transformer.training.batches.vocabulary import train_tokenizer

NAMES = ["Anna", "Jürgen", "Zoë", "Paul", "Müller", "Bea"]
VERBS = ["sieht", "kauft", "grüßt", "sees", "buys", "greets"]
THINGS = ["ein Haus", "zwei Äpfel", "three trees", "a red boat", "den Fluß", "the old bridge"]

AWKWARD = [
    "",
    " ",
    "   ",
    " leading",
    "   three leading",
    "trailing ",
    "two  spaces   and three",
    "\t",
    "tab\tinside",
    "\n",
    "two\nlines\r\n",
    "\0",
    "NUL\0inside",
    "\ufeffbyte order mark",
    "\u00a0no-break\u2028line\u0085separators\u3000",
    "e\u0301 is not é",
    "👩‍👩‍👧 family, 🇩🇪 flag",
    "漢字かな 한국어 العربية हिन्दी",
    "\ufffd\ufffe\U0010ffff\ue000\ud7ff",
    "▁",
    "▁a▁▁ ▁",
    "␛",
    "␛_ ␛. ␛␛_ ▁␛ _␛",
    "<s></s><pad><unk> <0x41> ⁇ ▅",
    "x" * 5000,
    " Anna sieht ein Haus." * 300,
]


def random_texts(number, seed):
    """Texts with many characters that tokenizers treat specially."""
    rng = random.Random(seed)
    special = list(" \t\n\0▁␛_.<>aenßé\u0301\u200d\ufeff😀")
    anything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    return [
        "".join(rng.choice(special if rng.random() < 0.7 else anything) for _ in range(length))
        for length in (rng.randrange(30) for _ in range(number))
    ]


@pytest.fixture(scope="module")
def sentences():
    rng = random.Random(0)
    return [
        f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.choice(THINGS)}{rng.choice('.!?')}"
        for _ in range(500)
    ]


@pytest.fixture(scope="module")
def tokenizers(sentences):
    sizes = {"bpe": 380, "unigram": 310, "wordpiece": 95}
    return {kind: train_tokenizer(sentences, kind, size) for kind, size in sizes.items()}


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind, tokenizers):
    return tokenizers[kind]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def lossless(request, tokenizers):
    return tokenizers[request.param]


def texts_of(tensor):
    return [text.decode() for text in tensor.numpy()]


def test_sentencepiece_gives_any_text_back_exactly_and_knows_every_character(lossless):
    texts = AWKWARD + random_texts(2000, seed=1)
    token_ids = lossless.tokenize(texts)
    assert texts_of(lossless.detokenize(token_ids)) == texts
    assert token_ids.flat_values.numpy().min() > lossless.end_id
    assert texts_of(lossless.detokenize(lossless.tokenize([b"a\xffb"]))) == ["a\ufffdb"]


def test_ids_are_those_of_the_sentencepiece_package(lossless, tmp_path):
    path = tmp_path / lossless.filename
    lossless.save(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = [text for text in AWKWARD + random_texts(2000, seed=3) if text]
    assert lossless.tokenize(texts).to_list() == [processor.encode(prepare_line(t)) for t in texts]
    ordinary = "Zoë  buys ein Haus, 漢字 🎉"
    assert lossless.tokenize([ordinary]).to_list() == [processor.encode(" " + ordinary)]
    assert prepare_line(" a▁b␛_") == "  a␛_b␛._"


def test_an_empty_text_has_no_ids_and_awkward_ones_are_no_error(tokenizer):
    token_ids = tokenizer.tokenize(["", "Anna", "", *AWKWARD])
    assert token_ids.row_lengths().numpy().tolist()[:3:2] == [0, 0]
    texts = texts_of(tokenizer.detokenize(token_ids))
    assert texts[:3] == ["", "Anna", ""] and len(texts) == 3 + len(AWKWARD)
    padded = token_ids.to_tensor(tokenizer.pad_id)
    assert texts_of(tokenizer.detokenize(padded)) == texts


def test_invalid_utf8_leaves_its_neighbours_alone(tokenizer):
    valid = [b"Anna sees a red boat.", "Jürgen grüßt Zoë".encode(), b""]
    invalid = [b"\xff\xfe", b"Paul \xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98 Bea", b"\0\x80"]
    mixed = [valid[0], *invalid[:2], valid[1], *invalid[2:4], valid[2], invalid[4]]
    alone = tokenizer.tokenize(valid).to_list()
    together = tokenizer.tokenize(mixed).to_list()
    assert [together[0], together[3], together[6]] == alone
    texts = texts_of(tokenizer.detokenize(tokenizer.tokenize(mixed)))
    assert "Paul" in texts[2] and "Bea" in texts[5]


def test_special_ids_and_ids_beyond_the_vocabulary_produce_nothing(tokenizer):
    [words] = tokenizer.tokenize(["Anna sees Paul"]).to_list()
    beyond = [tokenizer.vocab_size, tokenizer.vocab_size + 7, -1, 2**31 - 1]
    noisy = [2, 0, words[0], 1, 1, *beyond, *words[1:], 3, 0, 0]
    token_ids = tf.ragged.constant([noisy, [1], beyond], dtype=tf.int32)
    assert texts_of(tokenizer.detokenize(token_ids)) == ["Anna sees Paul", "", ""]


def test_any_ids_detokenize_to_valid_utf8(tokenizer):
    rng = random.Random(4)
    rows = [
        [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(40))] for _ in range(500)
    ]
    assert len(texts_of(tokenizer.detokenize(tf.ragged.constant(rows, dtype=tf.int32)))) == 500


def test_bytes_that_are_no_character_become_the_replacement_character(lossless):
    byte = lossless.pieces(range(lossless.vocab_size)).index("<0x00>")
    euro = [byte + value for value in "€".encode()]
    rows = tf.ragged.constant([euro, euro[:2], [byte + 0xFF]], dtype=tf.int32)
    whole, *broken = texts_of(lossless.detokenize(rows))
    assert whole == "€"
    assert all(set(text) == {"\ufffd"} for text in broken)


def test_two_tokenizers_of_one_saved_model_stay_two(tmp_path):
    both = [
        train_tokenizer([f"{name} {verb}" for name in NAMES for verb in verbs], "bpe", 300)
        for verbs in (VERBS, THINGS)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def detokenize(ids):
        ids = tf.expand_dims(ids, 0)
        return {name: tokenizer.detokenize(ids) for name, tokenizer in zip(("one", "other"), both)}

    module = tf.Module()
    module.both, module.detokenize = both, detokenize
    tf.saved_model.save(
        module, str(tmp_path), signatures={"serving_default": detokenize.get_concrete_function()}
    )
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    ids = tf.range(260, 300)
    expected, answer = detokenize(ids), loaded(ids)
    assert expected["one"] != expected["other"]
    assert {name: texts.numpy() for name, texts in answer.items()} == {
        name: texts.numpy() for name, texts in expected.items()
    }


def test_a_loaded_tokenizer_is_the_saved_one(tokenizers, kind, tmp_path):
    tokenizer = tokenizers[kind]
    tokenizer.save(tmp_path / tokenizer.filename)
    loaded = load_tokenizers(tmp_path, TokenizerConfig(kind), "none").source
    assert type(loaded) is type(tokenizer)
    assert loaded.vocab_size == tokenizer.vocab_size
    texts = AWKWARD + random_texts(100, seed=5)
    assert loaded.tokenize(texts).to_list() == tokenizer.tokenize(texts).to_list()
    every_id = range(tokenizer.vocab_size)
    assert loaded.pieces(every_id) == tokenizer.pieces(every_id)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [tokenizer.filename, f"{tokenizer.filename}.sha256"]


@pytest.mark.parametrize(
    "kind, filename, content, message",
    [
        (
            "bpe",
            "tokenizer.model",
            b"not a model",
            "content of a SentencePiece model file; received 11 other",
        ),
        (
            "bpe",
            "tokenizer.model",
            b"",
            "content of a SentencePiece model file; received 0 other bytes",
        ),
        ("wordpiece", "vocab.txt", b"the\na\n", "vocabulary must be a list that begins with"),
        ("wordpiece", "vocab.txt", b"[PAD]\n\xff", "invalid start byte"),
    ],
)
def test_a_damaged_file_is_named(kind, filename, content, message, tmp_path):
    (tmp_path / filename).write_bytes(content)
    with pytest.raises(InvalidFileError, match=message) as error:
        load_tokenizers(tmp_path, TokenizerConfig(kind), "none")
    assert str(error.value).startswith(str(tmp_path / filename))
    assert "\n" not in str(error.value)


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["Anna sees Paul"]),
        model_prefix=str(tmp_path / "other"),
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(
        ValueError,
        match=r"special pieces must be <pad>, <unk>, .*; received special pieces=\['<unk>'",
    ):
        SentencePieceTokenizer((tmp_path / "other.model").read_bytes())


def test_wordpiece_takes_the_longest_pieces_and_keeps_case():
    special = ["[PAD]", "[UNK]", "[START]", "[END]"]
    tokenizer = WordPieceTokenizer([*special, "do", "dog", "##s", "##gs", "Dog", ".", "s"])
    token_ids = tokenizer.tokenize(["dogs do Dogs.", "DOG s.", "dogx"])
    assert token_ids.to_list() == [[5, 6, 4, 8, 6, 9], [1, 10, 9], [1]]
    assert texts_of(tokenizer.detokenize(token_ids)) == ["dogs do Dogs .", "s .", ""]
    assert tokenizer.pieces([4, 7, 9]) == ["do", "##gs", "."]


def test_wordpiece_round_trips_sentences_but_for_spaces_around_punctuation(tokenizers, sentences):
    back = texts_of(tokenizers["wordpiece"].detokenize(tokenizers["wordpiece"].tokenize(sentences)))
    assert back == [f"{sentence[:-1]} {sentence[-1]}" for sentence in sentences]


def test_wordpiece_pieces_with_unicode_line_separators_survive_the_file(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[START]", "[END]", "a\u2028b", "c\x85", "\u00a0"]
    WordPieceTokenizer(vocabulary).save(tmp_path / "vocab.txt")
    assert list(WordPieceTokenizer.load(tmp_path / "vocab.txt").vocabulary) == vocabulary


def test_tokenizers_are_saved_under_names_that_say_whose_they_are(tmp_path):
    first, second = (
        WordPieceTokenizer([*WordPieceTokenizer.special_pieces, letter]) for letter in "ab"
    )
    assert TokenizerPair.of(first) == (first, first) and TokenizerPair.of(first).is_shared
    pair = TokenizerPair(first, second)
    assert TokenizerPair.of(pair) is pair and not pair.is_shared
    for folder, tokenizers, shared, names in (
        (tmp_path / "one", TokenizerPair.of(first), True, {"vocab.txt"}),
        (tmp_path / "two", pair, False, {"source.vocab.txt", "target.vocab.txt"}),
    ):
        folder.mkdir()
        tokenizers.save(folder)
        assert {path.name for path in folder.iterdir()} == names | {
            f"{name}.sha256" for name in names
        }
        loaded = load_tokenizers(folder, TokenizerConfig("wordpiece", shared=shared), "none")
        assert loaded.is_shared == shared
        assert [tokenizer.vocabulary for tokenizer in loaded] == [
            tokenizer.vocabulary for tokenizer in tokenizers
        ]
    path = tmp_path / "two" / "target.vocab.txt"
    path.write_text(path.read_text().replace("b", "c"))
    with pytest.raises(ValueError, match=f"{path}: the file is damaged"):
        load_tokenizers(path.parent, TokenizerConfig("wordpiece", shared=False), "none")
    path.unlink()
    with pytest.raises(InvalidFileError) as error:
        load_tokenizers(path.parent, TokenizerConfig("wordpiece", shared=False), "none")
    assert str(error.value) == f"{path}: the tokenizer file is missing"


# Texts with long tokens, short ones, and characters of every size.
BOUNDARY_TEXTS = [
    "Anna sees a red boat. " * 40,
    "Zoë grüßt " * 60,
    "🙂漢字 " * 80,
    "▁␛" * 90,
    "x" * 900,
    " " * 700,
    "a漢" * 300,
]


@pytest.mark.parametrize("num_tokens", [2, 7, 64])
def test_a_text_that_is_not_too_long_is_not_shortened_and_the_others_still_are_too_long(
    lossless, num_tokens
):
    # Every beginning of the texts, so that some have just enough tokens.
    texts = [text[:end] for text in BOUNDARY_TEXTS for end in range(1, len(text), 3)]
    short, is_cut = (result.numpy() for result in lossless.shorten(tf.constant(texts), num_tokens))
    counts = lossless.tokenize(texts).row_lengths().numpy()
    assert counts.min() <= num_tokens < counts[is_cut].min()
    assert [text.decode() for text in short[~is_cut]] == [
        text for text, cut in zip(texts, is_cut) if not cut
    ]
    assert all(text.encode().startswith(part) for text, part in zip(texts, short))
    # A character is not divided.
    lengths = {len(part) for part in short[is_cut]}
    most = num_tokens * lossless.bytes_per_token
    assert most - 4 < min(lengths) and max(lengths) <= most
    assert lossless.tokenize(short[is_cut]).row_lengths().numpy().min() >= num_tokens


def test_what_is_cut_off_is_not_read_whatever_it_is(tokenizer):
    most = 5 * tokenizer.bytes_per_token
    texts = [b"", b"a" * most, b"a" * most + b"\xff" * 10**6, b"\xff" * 10**6, "é".encode() * 10**6]
    short, is_cut = (result.numpy() for result in tokenizer.shorten(tf.constant(texts), 5))
    assert is_cut.tolist() == [False, False, True, True, True]
    assert list(short[:3]) == [b"", b"a" * most, b"a" * most]
    # Each byte that is not UTF-8 becomes a character of three.
    assert max(map(len, short)) <= 3 * most
    assert short[4].decode() == "é" * (most // 2)


SPECIAL_SYMBOLS = [
    "</s>", "<s>", "<pad>", "<unk>", "▁", "<0x0A>", "[PAD]", "[UNK]", "[START]", "[END]", "<start>",
]  # fmt: skip


def test_special_symbols_in_a_text_are_text(tokenizer):
    texts = [f"Anna {symbol}{symbol} sees" for symbol in SPECIAL_SYMBOLS]
    token_ids = tokenizer.tokenize(texts)
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id}
    assert not special & set(token_ids.flat_values.numpy().tolist())
    back = texts_of(tokenizer.detokenize(token_ids))
    if isinstance(tokenizer, SentencePieceTokenizer):
        assert back == texts
        [named], [byte] = (tokenizer.tokenize([text]).to_list() for text in ("<0x0A>", "\n"))
        line_feed = tokenizer.pieces(range(tokenizer.vocab_size)).index("<0x0A>")
        assert line_feed in byte and line_feed not in named
    # The neighbors are as they are without it.
    assert all(text.split()[0] == "Anna" and text.split()[-1] == "sees" for text in back)
