"""Which pairs are used for training, and how often: filters, duplicates, held-out pairs and
weights."""

import random

import numpy as np
import pytest
from fresh_process import run_python

from keras_transformer.config import DataConfig
from keras_transformer.errors import ConfigError
from keras_transformer.text import Corpus, Shard
from keras_transformer.training.text.corpus import (
    SentencePairs,
    pairs_of_epoch,
    pairs_per_epoch,
    read_text,
)
from keras_transformer.training.text.filters import HeldOut, SeenPairs, hash_pairs


def corpus(*pairs, name="text"):
    source, target = zip(*pairs)
    return Corpus(name, [Shard(source, target, name, name)])


def kept(*pairs, **settings):
    train, _ = read_text([corpus(*pairs)], DataConfig(**settings))
    assert len(train) == len(list(train.source))
    return list(zip(train.source, train.target))


PAIRS = [
    ("a dog", "ein Hund"),
    ("", "nichts"),
    (" \u3000", "Leerraum"),
    ("a cat", "a cat "),
    ("hi", "ein sehr langer Satz für zwei Zeichen"),
    ("the bear", "медведь"),
    ("a dog", "ein Hund"),
    ("a dog", "der Hund"),
]


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        (dict(), []),
        (dict(max_characters=36), [1, 2, 4]),
        (dict(max_characters=37), [1, 2]),
        (dict(min_characters=3), [1, 2, 4]),
        (dict(max_length_ratio=18.5), [1, 2]),
        (dict(max_length_ratio=18.4), [1, 2, 4]),
        (dict(remove_copies=True), [1, 2, 3]),
        (dict(remove_duplicates=True), [1, 2, 6]),
        (dict(target_script="Latin"), [1, 2, 5]),
        (dict(source_script="Cyrillic"), [0, 1, 2, 3, 4, 5, 6, 7]),
        (dict(target_script="Cyrillic", source_script="Latin"), [0, 1, 2, 3, 4, 6, 7]),
    ],
)
def test_each_filter_leaves_out_its_pairs(settings, left_out):
    if len(left_out) == len(PAIRS):
        with pytest.raises(
            ConfigError,
            match="filters leave none of the 8 sentence pairs: 2 by empty, 6 by source_s",
        ):
            kept(*PAIRS, **settings)
    else:
        assert kept(*PAIRS, **settings) == [
            pair for place, pair in enumerate(PAIRS) if place not in left_out
        ]


def test_a_pair_counts_for_the_first_filter_that_matches_it(capsys):
    kept(
        *PAIRS, max_characters=30, remove_copies=True, remove_duplicates=True, target_script="Latin"
    )
    assert capsys.readouterr().err.splitlines() == [
        "filters removed 6 of 8 sentence pairs: 2 by empty, 1 by max_characters=30, 1 by "
        "target_script=Latin, "
        "1 by remove_copies, 1 by remove_duplicates"
    ]


def test_a_filter_is_reported_with_its_value(capsys):
    assert kept(
        ("a", "bc"), ("a", "b"), max_length_ratio=1, min_characters=1, remove_copies=True
    ) == [("a", "b")]
    assert (
        capsys.readouterr().err
        == "filters removed 1 of 2 sentence pairs: 1 by max_length_ratio=1.0\n"
    )


@pytest.mark.parametrize(
    ("script", "text", "share"),
    [
        ("Latin", "naïve ﬁancée", 1),
        ("Latin", "это COVID-19", 5 / 8),
        ("Latin", "这是 GPU 吗", 3 / 6),
        ("Han", "这是 GPU 吗", 3 / 6),
        ("Han, Hiragana, Katakana", "コンピューターで学ぶ", 1),
        ("Katakana", "データ", 1),
        ("Devanagari", "नमस्ते 2024", 1),
        ("Greek", "1984 — 42 %", 1),
    ],
)
def test_the_share_of_letters_decides_about_the_script(script, text, share):
    other = ("1", "1")
    assert len(kept((text, "x"), other, source_script=script, min_script_share=share)) == 2
    assert len(kept(("x", text), other, target_script=script, min_script_share=share)) == 2
    if share < 1:
        assert kept((text, "x"), other, source_script=script, min_script_share=share + 0.01) == [
            other
        ]


def test_duplicates_are_found_across_chunks_and_corpora():
    rng = random.Random(3)
    pairs = [
        (f"source {rng.randrange(30_000)}", f"target {rng.randrange(2)}") for _ in range(100_000)
    ]
    corpora = [corpus(*pairs[:70_000]), corpus(*pairs[70_000:])]
    train, _ = read_text(corpora, DataConfig(remove_duplicates=True, weights=[1, 2]))
    unique = list(dict.fromkeys(pairs))
    assert list(zip(train.source, train.target)) == unique
    assert train.weights == (
        (len(set(pairs[:70_000])), 1),
        (len(unique) - len(set(pairs[:70_000])), 2),
    )


def test_the_hashes_of_many_chunks_are_kept_in_few_arrays():
    seen = SeenPairs()
    rng = np.random.default_rng(0)
    known = set()
    for _ in range(200):
        hashes = rng.integers(0, 20_000, rng.integers(1, 300)).astype(np.uint64)
        before = seen.add(hashes)
        for hash_, was_known in zip(hashes.tolist(), before):
            assert (hash_ in known) == was_known
            known.add(hash_)
    assert sum(map(len, seen._arrays)) == len(known) and len(seen._arrays) <= 16


def test_a_pair_is_not_the_same_as_its_sides_divided_elsewhere():
    pairs = [
        ("a b", "c"),
        ("a", "b c"),
        ("a ", "b c"),
        ("a\nb", "c"),
        ("a", "b\nc"),
        ("a", "b"),
        ("b", "a"),
        ("ab", ""),
    ]
    assert len(set(hash_pairs(pairs).tolist())) == len(pairs)


NUMBERS = [(f"{number}", f"Nummer {number % 900}") for number in range(1000)]


def hold_out(pairs, **how):
    train, valid = read_text([corpus(*pairs)], DataConfig(), HeldOut(**how))
    return list(zip(train.source, train.target)), list(zip(valid.source, valid.target))


@pytest.mark.parametrize("how", [dict(size=30), dict(fraction=0.1)])
def test_the_same_pairs_are_held_out_in_any_order(how):
    train, valid = hold_out(NUMBERS, **how)
    assert len(valid) == 30 if "size" in how else 70 < len(valid) < 130
    assert sorted(train + valid) == sorted(NUMBERS)
    shuffled = random.Random(1).sample(NUMBERS, len(NUMBERS))
    other_train, other_valid = hold_out(shuffled, **how)
    assert other_valid == valid and sorted(other_train) == sorted(train)


@pytest.mark.parametrize("how", [dict(size=30), dict(fraction=0.1)])
def test_the_copies_of_a_pair_that_is_held_out_are_nowhere(how, capsys):
    train, valid = hold_out(NUMBERS, **how)
    more_train, more_valid = hold_out([*NUMBERS, ("", "x"), *NUMBERS], **how)
    assert more_valid == valid and sorted(more_train) == sorted([*train, *train, ("", "x")])
    assert (
        f"held out {len(valid)} sentence pairs and {len(valid)} more copies of them"
        in capsys.readouterr().err
    )


def test_what_is_held_out_is_the_same_in_another_process():
    code = (
        "from keras_transformer.training.text.filters import hash_pairs; "
        "print(hash_pairs([('a', 'b')])[0])"
    )
    assert int(run_python("-c", code)) == hash_pairs([("a", "b")])[0]


def test_held_out_comes_after_the_filters():
    pairs = [*NUMBERS, *(("copy", "copy") for _ in range(500))]
    train, valid = read_text([corpus(*pairs)], DataConfig(remove_copies=True), HeldOut(size=999))
    assert (len(train), len(valid)) == (1, 999) and "copy" not in [*train.source, *valid.source]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            dict(size=1001),
            "--valid-size must be at most the number of different sentence pairs, 1,000; received ",
        ),
        (dict(size=1000), "text: all sentence pairs are held out; none are left to train on"),
        (
            dict(fraction=1e-9),
            "--valid-fraction must be larger for this text: not one sentence pair is held out",
        ),
    ],
)
def test_too_much_and_too_little_to_hold_out_is_refused(how, message):
    with pytest.raises(ConfigError, match=message):
        hold_out(NUMBERS, **how)


def weighted(*weights):
    source, target = zip(*NUMBERS)
    return SentencePairs(source, target, "numbers", tuple(weights))


def test_weights_are_how_often_a_pair_passes_in_an_epoch():
    pairs = weighted((500, 2), (500, 1))
    assert pairs_per_epoch(pairs) == 1500
    for epoch in range(2):
        expected = [pair for pair in NUMBERS[:500] for _ in range(2)] + NUMBERS[500:]
        assert list(pairs_of_epoch(pairs, epoch)) == [(*pair, "") for pair in expected]


def test_a_fraction_takes_other_pairs_in_each_epoch_and_the_same_ones_each_time():
    pairs = weighted((1000, 0.25))
    first, second = (list(pairs_of_epoch(pairs, epoch)) for epoch in range(2))
    assert 180 < len(first) < 320 and first != second
    assert first == list(pairs_of_epoch(pairs, 0))
    more = list(pairs_of_epoch(weighted((1000, 1.25)), 0))
    assert {(*pair, "") for pair in NUMBERS if more.count((*pair, "")) == 2} == set(first) and len(
        set(more)
    ) == 1000


def test_there_must_be_a_weight_for_each_corpus():
    with pytest.raises(
        ConfigError, match="^data.weights must be a list of one number for each corpus, here 1; rec"
    ):
        read_text([corpus(*PAIRS)], DataConfig(weights=[1, 2]))
