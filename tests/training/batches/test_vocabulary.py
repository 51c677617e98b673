"""Vocabulary training: sizes, limits, determinism, and messages about too little text."""

import collections
import random
import re

import pytest
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers.tokenizer import NUM_PLACEHOLDERS
from keras_transformer.training.batches import vocabulary
from keras_transformer.training.batches.vocabulary import sample_lines, train_tokenizer

SIZES = {"bpe": 320, "unigram": 320, "wordpiece": 108}
STEMS = ["brücke", "garten", "walk", "sing", "Hafen", "quick", "jung", "zwölf", "river", "Vogel"]
ENDINGS = ["", "s", "er", "en", "ing", "chen", "ly"]


def make_lines(number, seed=0):
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(STEMS) + rng.choice(ENDINGS) for _ in range(6)) for _ in range(number)
    ]


def limit_in(error):
    return int(re.search(r"at (?:least|most) (\d+)", str(error.value))[1])


@pytest.mark.parametrize("kind", SIZES)
def test_training_is_deterministic_takes_a_generator_and_knows_its_text(kind, tmp_path):
    files, lines = [], make_lines(200)
    for _ in range(2):
        tokenizer = train_tokenizer((line for line in lines), kind, SIZES[kind])
        assert tokenizer.tokenize(lines).flat_values.numpy().min() > tokenizer.end_id
        # WordPiece has what its threshold gives.
        assert tokenizer.vocab_size == SIZES[kind] or kind == "wordpiece"
        tokenizer.save(tmp_path / "model")
        files.append((tmp_path / "model").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("kind", SIZES)
def test_frequent_words_are_single_tokens(kind):
    lines = make_lines(200) + ["quick river"] * 200
    tokenizer = train_tokenizer(lines, kind, SIZES[kind])
    assert tokenizer.tokenize(["quick river"]).row_lengths().numpy().tolist() == [2]


@pytest.mark.parametrize("kind", SIZES)
def test_the_largest_size_named_in_the_error_is_exact(kind):
    lines = make_lines(20)
    rule = "tokenizer.vocab_size must be at most"
    with pytest.raises(ValueError, match=f"^{rule} .*received tokenizer.vocab_size=8000$") as error:
        train_tokenizer(lines, kind, 8000)
    largest = limit_in(error)
    assert train_tokenizer(lines, kind, largest).vocab_size == largest
    with pytest.raises(
        ValueError,
        match=f"{rule} {largest} for this text; received tokenizer.vocab_size={largest + 1}$",
    ):
        train_tokenizer(lines, kind, largest + 1)


@pytest.mark.parametrize("kind, size", [("bpe", 100), ("unigram", 100), ("wordpiece", 10)])
def test_the_smallest_size_named_in_the_error_is_exact(kind, size):
    lines = make_lines(20)
    letters = len(set("".join(lines)) - {" "})
    # SentencePiece: 4 special ids, 256 bytes, the space symbol. WordPiece: each letter twice. And 8
    # placeholders.
    expected = 8 + (4 + 2 * letters if kind == "wordpiece" else 4 + 256 + 1 + letters)
    rule = "tokenizer.vocab_size must be at least"
    with pytest.raises(
        ValueError, match=f"^{rule} .*received tokenizer.vocab_size={size}$"
    ) as error:
        train_tokenizer(lines, kind, size)
    assert limit_in(error) == expected
    assert train_tokenizer(lines, kind, expected).vocab_size <= expected
    with pytest.raises(
        ValueError, match=f"{rule} {expected} .*received tokenizer.vocab_size={expected - 1}$"
    ):
        train_tokenizer(lines, kind, expected - 1)


@pytest.mark.parametrize(
    "lines, kind, size, message",
    [
        *(
            (lines, kind, 300, "must have a line that is not empty")
            for kind in SIZES
            for lines in ([], ["", "  ", "\t"])
        ),
        (["\0", "\u200b"], "wordpiece", 300, "must have a word"),
        (["river " * 20_000], "bpe", 300, "^no vocabulary can be learned from the training text: "),
        *(
            (["text"], "bpe", size, f"vocab_size must be positive; received vocab_size={size}")
            for size in (0, -5)
        ),
        (
            ["text"],
            "words",
            300,
            "kind must be one of bpe, unigram, wordpiece; received kind='words'",
        ),
    ],
)
def test_what_cannot_be_learned_is_named(lines, kind, size, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(lines, kind, size)


def test_an_error_in_the_lines_reaches_the_caller_as_it_is():
    def lines():
        yield "fine"
        raise UnicodeError("corpus.en, line 2: not UTF-8")

    with pytest.raises(UnicodeError, match="^corpus.en, line 2: not UTF-8$"):
        train_tokenizer(lines(), "bpe", 300)


@pytest.mark.parametrize("kind, size", [("bpe", 400), ("unigram", 308)])
def test_very_long_lines_are_learned_from(kind, size):
    line = " ".join(make_lines(1000))
    assert 30_000 < len(line.encode()) < 65_536
    assert {"▁walk", "▁Hafen"} < set(train_tokenizer([line], kind, size).pieces(range(size)))


def test_sentencepiece_learns_the_escaped_space_symbol():
    tokenizer = train_tokenizer(["a▁b ▁ ␛"] * 20, "bpe", 280)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    assert any("␛_" in piece for piece in pieces)
    assert tokenizer.detokenize(tokenizer.tokenize(["a▁b ▁ ␛"])).numpy()[0].decode() == "a▁b ▁ ␛"


def test_wordpiece_pieces_keep_case():
    pieces = train_tokenizer(["Hafen hafen"] * 10, "wordpiece", 26).vocabulary
    assert {"H", "h"} < set(pieces)


@pytest.mark.slow
def test_wordpiece_size_is_as_near_as_a_threshold_comes_or_within_5_percent():
    lines = make_lines(100)
    counts = collections.Counter(word for line in lines for word in line.split())
    special = ["[PAD]", "[UNK]", "[START]", "[END]"]
    sizes = [
        len(
            wordpiece_tokenizer_learner_lib.learn(
                counts, 100, special, lower_thresh=threshold, upper_thresh=threshold
            )
        )
        for threshold in range(1, 200)
    ]
    for size in (60, 75, 90, 105, 120):
        best = max(number for number in sizes if number <= size)
        trained = (
            train_tokenizer(lines, "wordpiece", size + NUM_PLACEHOLDERS).vocab_size
            - NUM_PLACEHOLDERS
        )
        assert min(best, 0.95 * size) <= trained <= size


def test_a_sample_is_all_lines_when_there_are_no_more():
    lines = make_lines(10)
    assert sample_lines(lines, 10) == lines
    assert sample_lines(iter(lines), 11) == lines


def test_a_sample_takes_each_line_with_the_same_probability():
    sample = sample_lines((str(number) for number in range(100_000)), 10_000)
    numbers = sorted(int(line) for line in sample)
    assert len(set(numbers)) == 10_000
    # A tenth of the lines is due 1,000 times, with a standard deviation of 28.
    for tenth in range(10):
        due = sum(tenth * 10_000 <= number < (tenth + 1) * 10_000 for number in numbers)
        assert abs(due - 1000) < 5 * 28


def test_training_learns_from_the_sample(monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_LINES", 50)
    lines = make_lines(500)
    sampled = train_tokenizer(lines, "bpe", 320)
    whole = train_tokenizer(sample_lines(lines, 50), "bpe", 320)
    every_id = range(320)
    assert sampled.pieces(every_id) == whole.pieces(every_id)


@pytest.mark.parametrize("tags", [[], ["<a>", "<b>", ">>de<<"]])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("vocab_size", [5, 8, 11, 12, 20])
def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_the_least_size(
    kind, vocab_size, tags
):
    with pytest.raises(ConfigError) as error:
        train_tokenizer(["Anna sees a tree."], kind, vocab_size, tags)
    # 9 characters, 256 bytes, 4 special pieces and 8 placeholders.
    least = 277 + len(tags)
    assert str(error.value) == (
        f"tokenizer.vocab_size must be at least {least} for the alphabet of this text; received "
        f"tokenizer.vocab_size={vocab_size}"
    )
