"""Token ids of a corpus, and batches of them in a few fixed shapes."""

import collections
import hashlib
import itertools
import json
import math
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches import encoded_pairs
from keras_transformer.training.batches.encoded_pairs import Epochs, count_lengths, encode
from keras_transformer.training.batches.pipeline import (
    Bucket,
    choose_buckets,
    plan_batches,
    training_dataset,
    validation_dataset,
)
from keras_transformer.training.text.corpus import SentencePairs

START, END = 2, 3
BATCHES_SHA256 = "a8f30f4f7d19e2eb625f93286cd52c301821f9ef4b27cb325346f687e6d10d24"


class NumberTokenizer:
    """A text is its ids, as in "17 4"."""

    pad_id, unk_id, start_id, end_id = 0, 1, START, END
    is_random = False

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def tokenize(self, texts):
        return tf.ragged.map_flat_values(
            tf.strings.to_number, tf.strings.split(texts), out_type=tf.int32
        )


@pytest.fixture
def encoded(tmp_path):
    folders = (tmp_path / str(number) for number in itertools.count())

    def encoded(source, target, max_length=100, vocab_size=2**16, times=1):
        pairs = SentencePairs(source, target, "invented")
        codec = TextCodec(TokenizerPair(*[NumberTokenizer(vocab_size)] * 2), max_length)
        return encode(Epochs(pairs, times), codec, next(folders))

    return encoded


@pytest.fixture(params=[2**18, 37])
def random_pairs(encoded, monkeypatch, request):
    """Pairs of random lengths in which every token is the number of its pair, plus 10."""

    monkeypatch.setattr(encoded_pairs, "_PAIRS_PER_BLOCK", request.param)

    def random_pairs(rng, num_pairs):
        def side():
            lengths = np.minimum(rng.geometric(0.15, num_pairs), 29)
            return [" ".join([str(pair + 10)] * n) for pair, n in enumerate(lengths)]

        return encoded(side(), side())

    return random_pairs


def rows_of(pairs, side):
    rows = []
    for number in range(pairs.num_blocks):
        ends = np.cumsum(pairs.lengths(side, number))
        rows += [
            part.tolist()
            for part in np.split(pairs.token_ids(side, number).numpy(), ends[:-1])
            if len(part)
        ]
    return rows


def as_lists(elements):
    return [
        (inputs["source"].tolist(), inputs["target"].tolist(), labels.tolist())
        for inputs, labels in elements
    ]


def first(dataset, number):
    return list(dataset.take(number).as_numpy_iterator())


def test_both_sides_are_stored_with_an_end_token(encoded):
    pairs = encoded(["5 6", "7", "8 9 10"], ["11", "12 13", "14"])
    assert len(pairs) == 3 and pairs.num_tokens == 6 + 3 + 4 + 3
    assert rows_of(pairs, "source") == [[5, 6, 3], [7, 3], [8, 9, 10, 3]]
    assert rows_of(pairs, "target") == [[11, 3], [12, 13, 3], [14, 3]]
    assert pairs.length_counts.tolist() == [(0, 2, 3, 1), (0, 3, 2, 1), (0, 4, 2, 1)]
    assert (pairs.num_blocks, pairs.num_empty, pairs.num_too_long) == (1, 0, 0)


def test_empty_and_too_long_pairs_are_left_out_and_counted(encoded):
    source = ["5 6", "", "5 6 7", "5", "  ", "5 6 7 8", ""]
    target = ["7 8", "7", "8", "7 8 9", "", "", "5 6 7 8"]
    pairs = encoded(source, target, max_length=3)  # two tokens and the end
    assert rows_of(pairs, "source") == [[5, 6, 3]]
    assert rows_of(pairs, "target") == [[7, 8, 3]]
    assert (pairs.num_empty, pairs.num_too_long) == (4, 2)


def test_ids_are_stored_in_two_bytes_where_all_of_a_vocabulary_fit(encoded):
    assert rows_of(encoded(["65535"], ["5"], vocab_size=65536), "source") == [[65535, 3]]
    assert rows_of(encoded(["65536"], ["5"], vocab_size=65537), "source") == [[65536, 3]]
    narrow, wide = (
        encoded(["5"], ["6"], vocab_size=size).token_ids("source", 0).dtype
        for size in (65536, 65537)
    )
    assert (narrow, wide) == (tf.uint16, tf.int32)


def test_tokenizing_in_chunks_changes_nothing(encoded, monkeypatch):
    source = ["5 6", "700", "", "8 9 10", "4"]
    target = ["11", "12 13", "14", "", "15"]
    whole = encoded(source, target)
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 2)
    chunked = encoded(source, target)
    for side in ("source", "target"):
        assert rows_of(chunked, side) == rows_of(whole, side)
    assert chunked.length_counts.tolist() == whole.length_counts.tolist()
    assert (chunked.num_empty, chunked.num_too_long) == (2, 0)


def test_chunks_that_other_threads_tokenize_stay_in_order(encoded, monkeypatch):
    texts = [f"{number} {number + 1}" for number in range(10, 50)]
    expected = encoded(texts, texts)
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 2)
    monkeypatch.setattr(encoded_pairs, "num_cores", lambda: 8)
    tokenize = NumberTokenizer.tokenize
    threads = set()

    def late(self, texts):
        threads.add(threading.get_ident())
        # The first chunks of eight take longest.
        time.sleep(0.002 * (8 - int(texts[0].numpy().split()[0]) // 2 % 8))
        return tokenize(self, texts)

    monkeypatch.setattr(NumberTokenizer, "tokenize", late)
    pairs = encoded(texts, texts)
    assert len(threads) > 1
    assert pairs.fingerprint == expected.fingerprint
    np.testing.assert_array_equal(pairs.token_ids("source", 0), expected.token_ids("source", 0))


def test_a_tokenizer_that_draws_is_called_in_order(encoded, monkeypatch):
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 2)
    monkeypatch.setattr(encoded_pairs, "num_cores", lambda: 8)
    monkeypatch.setattr(NumberTokenizer, "is_random", True)
    tokenize = NumberTokenizer.tokenize
    firsts = []

    def noted(self, texts):
        firsts.append(int(texts[0].numpy().split()[0]))
        return tokenize(self, texts)

    monkeypatch.setattr(NumberTokenizer, "tokenize", noted)
    texts = [f"{number} {number + 1}" for number in range(10, 50)]
    encoded(texts, texts)
    # Source and target of each chunk.
    assert firsts == sorted(2 * [*range(10, 50, 2)])


def test_an_error_in_a_thread_reaches_the_caller(encoded, monkeypatch):
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 2)
    texts = [f"{number}" for number in range(10, 50)]
    texts[21] = "word"
    with pytest.raises(tf.errors.InvalidArgumentError, match="word"):
        encoded(texts, texts)


def test_the_pairs_of_a_long_text_fall_into_blocks_at_random(encoded, monkeypatch):
    monkeypatch.setattr(encoded_pairs, "_PAIRS_PER_BLOCK", 100)
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 64)
    numbers = range(10, 1010)
    pairs = encoded([str(number) for number in numbers], [str(2000 + number) for number in numbers])
    assert pairs.num_blocks == 10 and len(pairs) == 1000
    blocks = [
        [pairs.token_ids(side, block).numpy()[::2].astype(int) for side in ("source", "target")]
        for block in range(pairs.num_blocks)
    ]
    for source, target in blocks:
        np.testing.assert_array_equal(target, 2000 + source)
        # A hundred, give or take five standard deviations, from everywhere in the text.
        assert 50 < len(source) < 150
        assert source.min() < 160 and source.max() > 860
    assert sorted(np.concatenate([source for source, _ in blocks])) == list(numbers)


def test_a_text_may_be_gone_through_several_times(encoded):
    pairs = encoded(["5", "6 7", ""], ["8", "9", "10"], times=3)
    assert rows_of(pairs, "source") == [[5, 3], [6, 7, 3]] * 3
    assert rows_of(pairs, "target") == [[8, 3], [9, 3]] * 3
    assert (len(pairs), pairs.num_empty) == (6, 3)


def test_a_corpus_of_which_nothing_is_left_is_an_error(encoded):
    with pytest.raises(ConfigError) as raised:
        encoded(["", "5 6 7"], ["5", "6"], max_length=3)
    assert str(raised.value) == (
        "invented: none of the 2 sentence pairs can be used: 1 are empty on one side, "
        "1 are longer than max_length=3 tokens"
    )


def test_weights_that_leave_an_epoch_without_pairs_are_an_error(tmp_path):
    pairs = SentencePairs(["5", "6"], ["7", "8"], "invented", weights=((1, 0.001), (1, 0.002)))
    with pytest.raises(ConfigError) as raised:
        encode(
            Epochs(pairs),
            TextCodec(TokenizerPair(*[NumberTokenizer(2**16)] * 2), 100),
            tmp_path / "ids",
        )
    assert str(raised.value) == (
        "invented: data.weights must be large enough that an epoch has a sentence pair; received "
        "data.weights=[0.001, 0.002] for 2 pairs in total"
    )


def test_lengths_are_counted_for_each_block(encoded, monkeypatch):
    monkeypatch.setattr(encoded_pairs, "_PAIRS_PER_BLOCK", 20)
    monkeypatch.setattr(encoded_pairs, "_SENTENCES_PER_CALL", 16)
    rng = np.random.default_rng(1)
    source, target = ([" ".join(["7"] * n) for n in rng.integers(1, 6, 90)] for _ in range(2))
    pairs = encoded(source, target)
    expected = []
    for block in range(pairs.num_blocks):
        lengths = zip(
            pairs.lengths("source", block).numpy(), pairs.lengths("target", block).numpy()
        )
        expected += [
            (block, *key, count) for key, count in sorted(collections.Counter(lengths).items())
        ]
    assert pairs.num_blocks == 5 and pairs.length_counts.tolist() == expected


def buckets_of(source_lengths, target_lengths, tokens_per_batch, num_buckets=8):
    counts = count_lengths(0, np.array(source_lengths), np.array(target_lengths))
    return choose_buckets(counts, tokens_per_batch, num_buckets)


def test_buckets_worked_out_by_hand():
    # Longer sides: 3, 2, 3, 9. One bucket would be 9 x 8 with room for one pair: 4 * (9 + 8) = 68.
    # Cut after 3: one batch of 3 x (3 + 3) and one of 1 x (9 + 8): 18 + 17 = 35.
    # Cut after 2: one batch of 4 x (2 + 2), three of 1 x 17: 67.
    lengths = ([2, 2, 3, 9], [3, 2, 2, 8])
    assert buckets_of(*lengths, tokens_per_batch=9, num_buckets=1) == [Bucket(9, 8, 1)]
    assert buckets_of(*lengths, tokens_per_batch=9, num_buckets=2) == [
        Bucket(3, 3, 3),
        Bucket(9, 8, 1),
    ]
    # A third cut, 2 | 3 | 9, would cost 4 * (2 + 2) + 3 * (3 + 3) + 17 = 51, so it is not made.
    assert len(buckets_of(*lengths, tokens_per_batch=9, num_buckets=3)) == 2


def test_pairs_are_spread_evenly_over_the_batches_of_a_bucket():
    nine = np.full(9, 4)
    assert buckets_of(nine, nine, tokens_per_batch=32) == [Bucket(4, 4, 5)]
    assert buckets_of(nine, nine, tokens_per_batch=400) == [Bucket(4, 4, 9)]


def test_a_batch_has_one_row_however_long_it_is():
    assert buckets_of([50], [60], tokens_per_batch=40) == [Bucket(50, 60, 1)]


def least_cost_by_trying_all_cuts(source, target, tokens_per_batch, num_buckets):
    longer = np.maximum(source, target)
    keys = sorted(set(longer.tolist()))
    least = np.inf
    for number in range(num_buckets):
        for cuts in itertools.combinations(keys[:-1], number):
            cost = 0
            for low, high in itertools.pairwise([0, *cuts, keys[-1]]):
                inside = (low < longer) & (longer <= high)
                rows = max(tokens_per_batch // high, 1)
                full_batches = int(np.ceil(inside.sum() / rows))
                cost += full_batches * rows * (source[inside].max() + target[inside].max())
            least = min(least, cost)
    return least


def full_cost(buckets, source, target, tokens_per_batch):
    """The cost of the buckets if every batch is full: the fewest rows that hold all pairs of a
    bucket."""
    longer, cost = np.maximum(source, target), 0
    for previous, bucket in itertools.pairwise([Bucket(0, 0, 0), *buckets]):
        longest, shorter = (max(b.source_length, b.target_length) for b in (bucket, previous))
        rows = max(tokens_per_batch // longest, 1)
        num_batches = math.ceil(((shorter < longer) & (longer <= longest)).sum() / rows)
        assert bucket.batch_size == math.ceil(
            ((shorter < longer) & (longer <= longest)).sum() / num_batches
        )
        cost += num_batches * rows * (bucket.source_length + bucket.target_length)
    return cost


@pytest.mark.parametrize("seed", range(20))
def test_no_choice_of_buckets_costs_less(seed):
    rng = np.random.default_rng(seed)
    source = rng.integers(1, 10, rng.integers(1, 80))
    target = rng.integers(1, 10, len(source))
    for tokens_per_batch, num_buckets in itertools.product((5, 30, 200), (1, 2, 4)):
        buckets = buckets_of(source, target, tokens_per_batch, num_buckets)
        assert len(buckets) <= num_buckets
        assert full_cost(
            buckets, source, target, tokens_per_batch
        ) == least_cost_by_trying_all_cuts(source, target, tokens_per_batch, num_buckets)


@pytest.mark.slow
def test_the_share_of_padding_is_that_of_the_batches(random_pairs):
    pairs = random_pairs(np.random.default_rng(1), 200)
    plan = plan_batches(pairs, tokens_per_batch=200, num_buckets=4)
    positions = zeros = 0
    for inputs, labels in validation_dataset(plan, start_id=START).as_numpy_iterator():
        positions += inputs["source"].size + labels.size
        zeros += (inputs["source"] == 0).sum() + (labels == 0).sum()
    assert zeros > 0 and plan.padding_share == pytest.approx(zeros / positions)


def test_a_batch_worked_out_by_hand(encoded):
    pairs = encoded(["5 6", "7", "8"], ["11", "12 13", "14 15"])
    # Longer sides 3, 3, 3. Room for two rows, so there are two batches, the second with one pair.
    dataset = validation_dataset(plan_batches(pairs, tokens_per_batch=6), start_id=START)
    assert as_lists(dataset.as_numpy_iterator()) == [
        ([[5, 6, 3], [7, 3, 0]], [[2, 11, 0], [2, 12, 13]], [[11, 3, 0], [12, 13, 3]]),
        ([[8, 3, 0], [0, 0, 0]], [[2, 14, 15], [0, 0, 0]], [[14, 15, 3], [0, 0, 0]]),
    ]


@pytest.mark.slow
def test_all_elements_are_int32(encoded):
    plan = plan_batches(encoded(["5 6"], ["11"]), tokens_per_batch=6)
    for dataset in (
        validation_dataset(plan, start_id=START),
        training_dataset(plan, start_id=START, seed=0),
    ):
        inputs, labels = first(dataset, 1)[0]
        assert sorted(inputs) == ["source", "target"]
        assert {array.dtype for array in (*inputs.values(), labels)} == {np.dtype(np.int32)}


def num_pairs_in(bucket, buckets, pairs):
    longest = [max(b.source_length, b.target_length) for b in buckets]
    low = ([0] + longest)[buckets.index(bucket)]
    counts = pairs.length_counts
    longer = np.maximum(counts["source_length"], counts["target_length"])
    return counts["num_pairs"][(low < longer) & (longer <= longest[buckets.index(bucket)])].sum()


@pytest.mark.parametrize(
    "num_pairs, tokens_per_batch, num_buckets, num_parts",
    [
        (1, 64, 8, 3),
        (250, 90, 3, 4),
        pytest.param(1, 64, 8, 1, marks=pytest.mark.slow),
        pytest.param(37, 40, 1, 1, marks=pytest.mark.slow),
        pytest.param(250, 128, 8, 1, marks=pytest.mark.slow),
        pytest.param(400, 31, 5, 2, marks=pytest.mark.slow),
    ],
)
def test_an_epoch_holds_every_pair_once(
    num_pairs, tokens_per_batch, num_buckets, num_parts, random_pairs
):
    pairs = random_pairs(np.random.default_rng(num_pairs), num_pairs)
    settings = dict(tokens_per_batch=tokens_per_batch, num_buckets=num_buckets)
    plan = plan_batches(pairs, **settings, num_parts=num_parts)
    steps = plan_batches(pairs, **settings).num_steps
    assert plan.num_steps == steps
    expected = sorted(zip(rows_of(pairs, "source"), rows_of(pairs, "target")))

    elements = first(training_dataset(plan, seed=5, start_id=START), 2 * steps)
    for epoch in (elements[:steps], elements[steps:]):
        pairs_of_batches, shapes = [], collections.Counter()
        for inputs, labels in epoch:
            shapes[inputs["source"].shape[1], labels.shape[1], len(labels)] += 1
            assert inputs["target"].shape == labels.shape
            for source, target, label in zip(inputs["source"], inputs["target"], labels):
                source, label = source[source != 0].tolist(), label[label != 0].tolist()
                assert target[target != 0].tolist() == ([START] + label[:-1] if label else [])
                if source or label:
                    pairs_of_batches.append((source, label))
        assert sorted(pairs_of_batches) == expected
        assert len(shapes) == len(plan.buckets)
        for bucket in plan.buckets:
            rows = math.ceil(bucket.batch_size / num_parts) * num_parts
            number = math.ceil(num_pairs_in(bucket, plan.buckets, pairs) / bucket.batch_size)
            # Each block may end in a batch that is not full.
            assert (
                number
                <= shapes[bucket.source_length, bucket.target_length, rows]
                < number + pairs.num_blocks
            )


@pytest.mark.slow
def test_the_pairs_of_a_batch_do_not_depend_on_the_number_of_replicas(random_pairs):
    pairs = random_pairs(np.random.default_rng(10), 80)
    alone, together = (
        first(training_dataset(plan, seed=2, start_id=START), 20)
        for plan in (
            plan_batches(pairs, tokens_per_batch=70, num_buckets=3, num_parts=n) for n in (1, 4)
        )
    )
    for inputs_and_labels, (inputs, labels) in zip(alone, together, strict=True):
        rows = len(inputs_and_labels[1])
        assert len(labels) == math.ceil(rows / 4) * 4
        np.testing.assert_array_equal(labels[:rows], inputs_and_labels[1])
        np.testing.assert_array_equal(inputs["source"][:rows], inputs_and_labels[0]["source"])
        assert not labels[rows:].any() and not inputs["source"][rows:].any()


@pytest.mark.slow
def test_the_order_depends_on_the_seed_and_the_epoch(random_pairs):
    pairs = random_pairs(np.random.default_rng(4), 150)
    plan = plan_batches(pairs, tokens_per_batch=100)

    def two_epochs(seed):
        elements = as_lists(
            first(training_dataset(plan, seed=seed, start_id=START), 2 * plan.num_steps)
        )
        return elements[: plan.num_steps], elements[plan.num_steps :]

    assert two_epochs(1) == two_epochs(1)
    orders = [*two_epochs(1), *two_epochs(2)]
    for one, other in itertools.combinations(orders, 2):
        assert one != other
        # Not only the batches change places, but also the pairs within them.
        assert {str(batch) for batch in one} != {str(batch) for batch in other}


@pytest.mark.slow
def test_a_dataset_that_starts_later_gives_the_same_batches(random_pairs):
    pairs = random_pairs(np.random.default_rng(5), 60)
    plan = plan_batches(pairs, tokens_per_batch=100, num_buckets=3)
    steps = plan.num_steps
    straight = as_lists(first(training_dataset(plan, seed=7, start_id=START), 4 * steps))
    for first_step in (1, steps - 1, steps, steps + 1, 2 * steps + 3, 3 * steps):
        resumed = training_dataset(plan, seed=7, start_id=START, first_step=first_step)
        assert as_lists(first(resumed, 4 * steps - first_step)) == straight[first_step:]


@pytest.mark.slow
def test_a_training_dataset_gives_the_same_batches_each_time_it_is_iterated(random_pairs):
    pairs = random_pairs(np.random.default_rng(6), 60)
    dataset = training_dataset(
        plan_batches(pairs, tokens_per_batch=100), seed=7, start_id=START, first_step=5
    )
    assert as_lists(first(dataset, 9)) == as_lists(first(dataset, 9))


@pytest.mark.slow
def test_training_is_endless_and_validation_of_known_length(random_pairs):
    pairs = random_pairs(np.random.default_rng(8), 90)
    plan = plan_batches(pairs, tokens_per_batch=100, num_buckets=4, num_parts=2)
    training = training_dataset(plan, seed=0, start_id=START)
    assert training.cardinality() == tf.data.INFINITE_CARDINALITY
    validation = validation_dataset(plan, start_id=START)
    assert validation.cardinality() == plan.num_steps
    assert len(list(validation)) == validation.cardinality()


@pytest.mark.slow
def test_validation_holds_every_pair_once_in_a_fixed_order(random_pairs):
    pairs = random_pairs(np.random.default_rng(9), 120)
    dataset = validation_dataset(
        plan_batches(pairs, tokens_per_batch=100, num_buckets=4), start_id=START
    )
    elements = list(dataset.as_numpy_iterator())
    assert as_lists(elements) == as_lists(dataset.as_numpy_iterator())
    targets = [row[row != 0].tolist() for _, labels in elements for row in labels if row.any()]
    assert sorted(targets) == sorted(rows_of(pairs, "target"))
    widths = [labels.shape[1] for _, labels in elements]
    # From the shortest to the longest of each block.
    assert sum(a > b for a, b in itertools.pairwise(widths)) == pairs.num_blocks - 1


@pytest.mark.parametrize(
    "setting, value, rule",
    [
        ("tokens_per_batch", 0, "positive"),
        ("num_buckets", 0, "positive"),
        ("num_parts", -2, "positive"),
        ("seed", -1, "at least 0"),
        ("first_step", -1, "at least 0"),
    ],
)
def test_a_number_out_of_its_range_is_an_error_that_names_it(setting, value, rule, encoded):
    pairs, settings = encoded(["5"], ["6"]), {"tokens_per_batch": 10}
    with pytest.raises(ValueError) as raised:
        if setting in ("seed", "first_step"):
            training_dataset(
                plan_batches(pairs, **settings), **{"seed": 0, "start_id": START, setting: value}
            )
        else:
            plan_batches(pairs, **{**settings, setting: value})
    assert str(raised.value) == f"{setting} must be {rule}; received {setting}={value}"


# A training is resumed with the batches that it would have had, on any machine and with any release
# of TensorFlow.
@pytest.mark.slow
@pytest.mark.parametrize("random_pairs", [37], indirect=True)
def test_the_same_pairs_make_the_same_batches_everywhere(random_pairs):
    pairs = random_pairs(np.random.default_rng(0), 120)
    plan = plan_batches(pairs, tokens_per_batch=150, num_buckets=4, num_parts=2)
    batches = as_lists(first(training_dataset(plan, seed=3, start_id=START, first_step=5), 40))
    assert hashlib.sha256(json.dumps(batches).encode()).hexdigest() == BATCHES_SHA256
