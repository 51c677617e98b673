"""Augmentation: what becomes of pairs by hand, what must stay as it is, and that a seed says
everything."""

import dataclasses
import os

import pytest
import tensorflow as tf
from fresh_process import run_python
from test_batches import rows_of

from examples.corpus import generate
from keras_transformer.commands.main import main
from keras_transformer.config import DataConfig, TokenizerConfig
from keras_transformer.config.sections import AugmentConfig
from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.augmentation import Augmentation
from keras_transformer.training.batches.encoded_pairs import Epochs, encode
from keras_transformer.training.batches.vocabulary import learn_tokenizers
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.text.corpus import SentencePairs

NAMES = [field.name for field in dataclasses.fields(AugmentConfig)]
PAIRS = generate(300, seed=5)
KEPT = ["https://a.org/Ä?b=c", "ann@b.org", "{name}", "%1$s", "<b>", "</b>", "Kibo"]


def augmented(pairs, epoch=0, seed=1, first=0, terms=(), **shares):
    return Augmentation(AugmentConfig(**shares), seed, SpanFinder(terms)).augment(
        pairs, epoch, first
    )


@pytest.mark.parametrize(
    ("name", "pair", "expected"),
    [
        (
            "upper_case",
            ("a wide street", "eine weiße Straße"),
            ("A WIDE STREET", "EINE WEISSE STRASSE"),
        ),
        ("upper_case", ("naïve ǆ ﬁn", "ŉ"), ("NAÏVE Ǆ FIN", "ʼN")),
        (
            "title_case",
            ("bob's and o'neil don't run", "die ßs"),
            ("Bob's And O'neil Don't Run", "Die Sss"),
        ),
        (
            "title_case",
            ("the FBI’s ǆ 3rd {x}, <b>car</b>", ""),
            ("The FBI’s ǅ 3rd {x}, <b>Car</b>", ""),
        ),
        ("lower_case", ("In May I Saw Σίσυφος", "Im Mai"), ("in may i saw σίσυφος", "Im Mai")),
        ("no_final_punctuation", ("Why not ?! ", "Warum nicht?"), ("Why not", "Warum nicht")),
        ("no_final_punctuation", ("你好。", "Hello…"), ("你好", "Hello")),
        # Nothing else is left, or there is none in the source.
        ("no_final_punctuation", ("...", "x."), ("...", "x.")),
        ("no_final_punctuation", ("x.", "..."), ("x.", "...")),
        ("no_final_punctuation", ("x", "y."), ("x", "y.")),
        # Scripts without case, with a word of another script.
        (
            "upper_case",
            ("你好世界再见 iPhone", "Hallo iPhone"),
            ("你好世界再见 iPhone", "Hallo iPhone"),
        ),
        ("title_case", ("שלום", "hello"), ("שלום", "hello")),
        ("lower_case", ("你好世界再见 iPhone", "x"), ("你好世界再见 iPhone", "x")),
        # No word is long enough, and no space is between words.
        ("typos", ("a is 12345 .", "x"), ("a is 12345 .", "x")),
        ("spaces", ("word {x}  two", "x"), ("word {x}  two", "x")),
        *(
            (name, pair, pair)
            for name in NAMES
            for pair in [("", ""), (" ", "x"), ("a \ufdd0 b c.", "x.")]
        ),
    ],
)
def test_by_hand(name, pair, expected):
    assert augmented([pair], **{name: 1}) == [expected]


@pytest.mark.parametrize("name", NAMES)
def test_what_must_stay_stays(name):
    text = "See " + " or ".join(f"{kept} and others" for kept in KEPT) + "."
    texts = [
        side
        for pair in augmented([(text, text)] * 50, terms=["Kibo"], **{name: 1})
        for side in pair
    ]
    assert texts.count(text) <= len(texts) / 2
    spans = SpanFinder(["Kibo"]).divide(tf.constant(texts)).spans.numpy()
    assert {tuple(span) for span in spans} == {tuple(kept.encode() for kept in [*KEPT, ""])}


def edits(one, other):
    """The optimal string alignment distance."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, start=1):
        rows.append([i])
        for j, b in enumerate(other, start=1):
            best = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (other[j - 2], one[i - 2]):
                best = min(best, rows[i - 2][j - 2] + 1)
            rows[i].append(best)
    return rows[-1][-1]


def test_a_typing_error_is_one_edit_in_one_of_ten_words():
    text = " ".join(f"w{word}r" for word in ["abc", "Déf", "ghi", "jkl"] * 6)
    kinds = set()
    for source, target in augmented([(text, text)] * 40, typos=1):
        words = [
            (old, new) for old, new in zip(text.split(), source.split(), strict=True) if old != new
        ]
        assert target == text and len(words) == 3 and all(edits(*pair) == 1 for pair in words)
        kinds |= {(len(new) - len(old), sorted(new) == sorted(old)) for old, new in words}
    assert kinds == {(-1, False), (0, False), (0, True), (1, False)}


def test_letters_keep_their_marks():
    word = "e\u0301a\u0308o\u0302"
    letters = {"e\u0301", "a\u0308", "o\u0302"}
    for source, _ in augmented([(word, "")] * 40, typos=1):
        segments = [source[place : place + 2] for place in range(0, len(source), 2)]
        assert source != word and set(segments) <= letters and 2 <= len(segments) <= 4


def test_one_of_ten_spaces_is_doubled_or_missing():
    text = " ".join("abcdefghijklmnopqrstu")
    lengths = set()
    for source, target in augmented([(text, text)] * 40, spaces=1):
        assert target == text and source.replace(" ", "") == text.replace(" ", "")
        lengths.add(len(source) - len(text))
    assert lengths == {-2, 0, 2}


def test_both_sides_have_the_same_emoji():
    ends = set()
    for source, target in augmented([("a b.", "c.")] * 40, emoji=1):
        (emoji,) = {character for character in source if ord(character) > 0xFFFF}
        assert (source, target) in [
            (f"{emoji} a b.", f"{emoji} c."),
            (f"a b. {emoji}", f"c. {emoji}"),
        ]
        ends.add(source.startswith(emoji))
    assert ends == {True, False} and augmented([("a", "")], emoji=1)[0][1] == ""


def test_shares():
    pairs = [("a man runs.", "ein Mann läuft.")] * 2000
    changed = augmented(
        pairs, upper_case=0.2, title_case=0.1, lower_case=0.3, no_final_punctuation=0.4
    )
    counts = {
        "upper": sum(source.startswith("A MAN") for source, _ in changed),
        "title": sum(source.startswith("A Man") for source, _ in changed),
        "bare": sum(not source.endswith(".") for source, _ in changed),
        "both": sum(source == "A MAN RUNS" for source, _ in changed),
    }
    expected = {"upper": 400, "title": 200, "bare": 800, "both": 160}
    assert all(abs(counts[name] - expected[name]) < 75 for name in expected)
    assert {source.isupper() == target.isupper() for source, target in changed} == {True}


def test_a_pair_depends_on_seed_epoch_and_place_alone():
    shares = dict.fromkeys(NAMES, 0.3)
    whole = augmented(PAIRS, **shares)
    assert whole[70:] == augmented(PAIRS[70:], first=70, **shares)
    assert whole == list(
        Augmentation(AugmentConfig(**shares), 1, SpanFinder()).pairs(iter(PAIRS), epoch=0)
    )
    assert whole != augmented(PAIRS, epoch=1, **shares) and whole != augmented(
        PAIRS, seed=2, **shares
    )
    # Another share changes nothing else.
    upper = augmented(PAIRS, upper_case=0.3)
    assert [pair for pair in upper if pair[0].isupper()] == [
        new
        for new, old in zip(augmented(PAIRS, upper_case=0.3, title_case=0.4), upper)
        if old[0].isupper()
    ]


def test_epochs_are_augmented_anew_and_the_text_is_known_by_what_it_was(tmp_path):
    pairs = SentencePairs(*map(list, zip(*PAIRS[:40])), name="x", weights=((10, 2), (30, 1)))
    augmentation = Augmentation(AugmentConfig(upper_case=0.5), 1, SpanFinder())
    config = TokenizerConfig(vocab_size=700)
    tokenizers = learn_tokenizers(augmentation.text(pairs), config)
    codec = TextCodec(tokenizers, 256)
    plain = encode(Epochs(pairs), codec, tmp_path / "plain")
    changed = encode(Epochs(pairs, 2, augmentation), codec, tmp_path / "changed")
    assert changed.fingerprint == plain.fingerprint and len(changed) == 2 * len(plain) == 100
    rows = tf.ragged.constant(rows_of(changed, "source"))
    texts = [text.decode() for text in tokenizers.source.detokenize(rows).numpy()]
    used = [source for source, _ in PAIRS[:10] for _ in range(2)] + [
        source for source, _ in PAIRS[10:40]
    ]
    assert [text.lower() for text in texts] == [text.lower() for text in used + used]
    assert [text.isupper() for text in texts[:50]] != [text.isupper() for text in texts[50:]]
    assert texts[:50] == [
        source for source, _ in augmentation.augment([(text, text) for text in used], epoch=0)
    ]
    # What is off changes nothing.
    off = Augmentation(AugmentConfig(), 1, SpanFinder())
    same = encode(Epochs(pairs, augmentation=off), codec, tmp_path / "same")
    assert (
        same.token_ids("source", 0).numpy().tolist()
        == plain.token_ids("source", 0).numpy().tolist()
    )


def test_the_vocabulary_knows_upper_case():
    pairs = SentencePairs(*map(list, zip(*PAIRS)), name="x")
    augmentation = Augmentation(AugmentConfig(upper_case=0.3), 1, SpanFinder())
    text = augmentation.text(pairs)
    assert (
        len(text.source) == 300
        and next(iter(text.target)) in text.target
        and "x" not in text.source
    )
    upper = [text.upper() for pair in PAIRS for text in pair]
    shares, lengths = [], []
    for texts in (pairs, text):
        tokenizer = learn_tokenizers(texts, TokenizerConfig(vocab_size=700)).source
        ids = tokenizer.tokenize(upper).flat_values
        shares.append(
            tf.reduce_mean(
                tf.cast(tf.reduce_any(ids[:, None] == tokenizer.unknown_ids(), 1), tf.float32)
            )
        )
        lengths.append(len(ids))
    assert shares[0] > 0 and shares[1] == 0
    assert lengths[1] < lengths[0] * 2 / 3


ELSEWHERE = """
from keras_transformer.config.sections import AugmentConfig
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.training.batches.augmentation import Augmentation

config = AugmentConfig(upper_case=0.5, typos=1, emoji=0.5)
print(ascii(Augmentation(config, 7, SpanFinder()).augment([("some words here", "ein paar Worte")] * 5, 3)))
"""


@pytest.mark.slow
def test_another_process_augments_in_the_same_way():
    here = augmented(
        [("some words here", "ein paar Worte")] * 5, 3, 7, upper_case=0.5, typos=1, emoji=0.5
    )
    assert run_python("-c", ELSEWHERE).strip() == ascii(here)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["data.augment.typos=1.5"],
            "data.augment.typos must be at least 0 and at most 1; received",
        ),
        (
            ["data.augment.upper=1"],
            "unknown configuration key 'data.augment.upper'; did you mean 'upper_case'",
        ),
        (["data.augment=1"], "data.augment must be a mapping; received data.augment=1"),
        (
            ["data.augment={upper_case: 0.5, title_case: 0.25}", "data.augment.lower_case=0.5"],
            "data.augment.upper_case + title_case + lower_case must be at most 1; received "
            "data.augment.upper_case + title_case + lower_case=1.25",
        ),
    ],
)
def test_wrong_shares(values, message):
    with pytest.raises(ConfigError) as error:
        load_recipe("demo", values)
    assert message in str(error.value) and str(error.value).startswith("--set data.augment")


def test_shares_of_a_recipe():
    config = load_recipe(
        "demo", ["data.augment.typos=1", "data.augment.upper_case=0.5", "data.min_characters=2"]
    )
    assert config.data == DataConfig(
        min_characters=2, augment=AugmentConfig(typos=1.0, upper_case=0.5)
    )
    assert config.data.augment and not load_recipe("demo").data.augment
    with pytest.raises(ConfigError, match="data.augment must be an AugmentConfig; received"):
        DataConfig(augment={"typos": 1})


def test_the_command_writes_both_sides(text, tmp_path):
    source, target = (
        text("en", ["a <b>dog</b>.", "", "see %s"]),
        text("de", ["ein <b>Spaß</b>.", "x", ""]),
    )
    output = tmp_path / "new" / "upper"
    main(
        [
            "augment",
            "--source",
            source,
            "--target",
            target,
            "--output",
            str(output),
            "--upper-case",
            "1",
        ]
    )
    assert (tmp_path / "new" / "upper.source").read_text("utf-8") == "A <b>DOG</b>.\n\nSEE %s\n"
    assert (tmp_path / "new" / "upper.target").read_text("utf-8") == "EIN <b>SPASS</b>.\nx\n\n"
    texts = []
    for seed in ("1", "1", "2"):
        main(
            [
                "augment",
                "--source",
                source,
                "--output",
                str(output),
                "--typos",
                "1",
                "--seed",
                seed,
                "--overwrite",
            ]
        )
        texts.append((tmp_path / "new" / "upper.source").read_text("utf-8"))
    assert texts[0] == texts[1] != texts[2]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "upper.source",
        "upper.target",
    ]


def test_mistakes_of_the_command(text, fails, tmp_path):
    source, target = text("en", ["a", "b"]), text("de", ["a"])
    for arguments, message in (
        (
            [source],
            "nothing to change: set at least one of these options to a share above 0: "
            "--upper-case, --title-case",
        ),
        (
            [source, "--typos", "2"],
            "--typos must be at least 0 and at most 1; received --typos=2.0",
        ),
        (
            [source, "--upper-case", "1", "--lower-case", "1"],
            "upper_case + title_case + lower_case must be at most 1",
        ),
        (
            [source, "--typos", "1", "--target", target],
            "source and target must have the same number of lines",
        ),
        ([os.devnull, "--typos", "1"], "the text is empty"),
    ):
        assert message in fails("augment", "--output", tmp_path / "out", "--source", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de", "en"]
