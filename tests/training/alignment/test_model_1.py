"""IBM Model 1 against numbers worked out by hand, and against a plain-Python implementation."""

import itertools
import random
from collections import defaultdict

import numpy as np
import pytest

from keras_transformer.training.alignment.model_1 import (
    Counts,
    CountTable,
    Sentences,
    best_links,
    expected_counts,
    in_blocks,
    links_of,
)

END = 3


def sentences(rows):
    return Sentences(
        np.array([token_id for row in rows for token_id in row]),
        np.array([len(row) for row in rows]),
    )


def learn(pairs, passes, max_links=10**6, capacity=10**6):
    """The counts of the last pass, as {(source, target): (forward, backward)}."""
    source, target = (sentences(side) for side in zip(*pairs))
    counts = None
    for _ in range(passes):
        probabilities = None if counts is None else counts.probabilities()
        table = CountTable(capacity)
        for block in in_blocks(source, target, max_links):
            table.add(expected_counts(links_of(*block), probabilities))
        counts = table.total()
    return as_dict(counts)


def as_dict(counts):
    pairs = zip(counts.source_ids.tolist(), counts.target_ids.tolist())
    return dict(zip(pairs, zip(counts.forward.tolist(), counts.backward.tolist())))


def plain_model_1(pairs, passes):
    """Counts if each target token comes from one source token: {(source, target): count}."""
    probability = defaultdict(lambda: 1.0)
    for _ in range(passes):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for t in target:
                whole = sum(probability[s, t] for s in source)
                for s in source:
                    counts[s, t] += probability[s, t] / whole
                    totals[s] += probability[s, t] / whole
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return counts


def random_pairs(seed, number):
    rng = random.Random(seed)
    return [
        tuple(
            [rng.choice(range(4, 12)) for _ in range(rng.randint(1, 6))] + [END] for _ in range(2)
        )
        for _ in range(number)
    ]


def test_numbers_worked_out_by_hand():
    # "das Haus - the house", "das Buch - the book", without end tokens.
    das, haus, buch, the, house, book = 4, 5, 6, 7, 8, 9
    pairs = [([das, haus], [the, house]), ([das, buch], [the, book])]
    first = learn(pairs, passes=1)
    assert first == {
        (das, the): (1, 1), (das, house): (0.5, 0.5), (das, book): (0.5, 0.5),
        (haus, the): (0.5, 0.5), (haus, house): (0.5, 0.5),
        (buch, the): (0.5, 0.5), (buch, book): (0.5, 0.5),
    }  # fmt: skip
    # p(the | das) = 1 / 2, p(house | das) = 1 / 4, p(the | haus) = p(house | haus) = 1 / 2. So
    # "the" of a pair comes from "das" with 1/2 / (1/2 + 1/2) = 1/2, and "house" from it with 1/4 /
    # (1/4 + 1/2) = 1/3.
    second = learn(pairs, passes=2)
    assert second[das, the] == pytest.approx((1, 1))
    assert second[haus, the] == pytest.approx((1 / 2, 1 / 3))
    assert second[das, house] == pytest.approx((1 / 3, 1 / 2))
    assert second[haus, house] == pytest.approx((2 / 3, 2 / 3))


@pytest.mark.parametrize("max_links", [1, 40, 10**6])
@pytest.mark.parametrize("passes", [1, 2, 5])
def test_counts_are_those_of_a_plain_implementation(passes, max_links):
    pairs = random_pairs(passes, 60)
    actual = learn(pairs, passes, max_links)
    forward = plain_model_1(pairs, passes)
    backward = plain_model_1([(target, source) for source, target in pairs], passes)
    assert actual.keys() == forward.keys()
    for (source, target), counts in actual.items():
        assert counts == pytest.approx(
            (forward[source, target], backward[target, source]), rel=1e-3, abs=1e-5
        )


def test_a_table_that_is_full_keeps_the_most_frequent():
    pairs = random_pairs(7, 40)
    whole = learn(pairs, 1)
    kept = learn(pairs, 1, capacity=20)
    assert len(kept) == 20
    threshold = min(max(whole[key]) for key in kept)
    assert all(max(whole[key]) <= threshold for key in whole.keys() - kept.keys())
    # What has been left out stays out, and does not disturb the rest.
    assert learn(pairs, 3, capacity=20).keys() <= kept.keys()


def test_the_sum_of_counts_does_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    parts = [
        Counts(
            np.sort(rng.choice(50, 20, replace=False)),
            *rng.integers(1, 9, (2, 20)).astype("float32"),
        )
        for _ in range(9)
    ]
    expected = defaultdict(lambda: np.zeros(2))
    for part in parts:
        for key, *counts in zip(*part):
            expected[key] += counts
    for some in itertools.islice(itertools.permutations(parts), 5):
        table = CountTable(capacity=60)
        for part in some:
            table.add(part)
        total = table.total()
        assert total.keys.tolist() == sorted(expected)
        np.testing.assert_array_equal(
            np.stack(total[1:], axis=1), [expected[key] for key in sorted(expected)]
        )


@pytest.mark.parametrize("max_links", [1, 50, 10**6])
def test_links_are_those_on_which_both_directions_agree(max_links):
    # The second pair has no text on one side.
    pairs = [*random_pairs(11, 30), ([], []), *random_pairs(12, 5)]
    source, target = (sentences(side) for side in zip(*pairs))
    table = CountTable(10**6)
    table.add(expected_counts(links_of(source, target), None))
    probabilities = table.total().probabilities()
    known = as_dict(probabilities)
    blocks = in_blocks(source, target, max_links)
    actual = [links for block in blocks for links in best_links(*block, probabilities)]
    for (source_ids, target_ids), links in zip(pairs, actual, strict=True):
        expected = []
        for i, s in enumerate(source_ids[:-1]):
            for j, t in enumerate(target_ids[:-1]):
                best_source = np.argmax([known[source_id, t][0] for source_id in source_ids])
                best_target = np.argmax([known[s, target_id][1] for target_id in target_ids])
                if (best_source, best_target) == (i, j):
                    expected.append((i, j))
        assert links == expected
