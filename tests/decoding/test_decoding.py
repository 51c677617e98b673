"""Greedy and beam search against hand-worked numbers, exhaustive and plain Python searches."""

import contextlib
import inspect
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import Transformer
from keras_transformer.decoding import Decodable, beam_search, greedy_search

START, END = 0, 1
NEVER = 10**6  # An end token that no vocabulary here has.


# Models. A sentence's model is a table: row hash(prefix) holds the logits of the next token.

NUM_ROWS = 997


def random_tables(seed, batch, vocab_size, forbidden=0.0):
    generator = np.random.default_rng(seed)
    tables = generator.normal(scale=2.0, size=(batch, NUM_ROWS, vocab_size))
    tables[generator.random(tables.shape) < forbidden] = -np.inf
    return tables.astype("float32")


def step(token_ids, parents, position, state):
    """The tables as a step function: the hash of a prefix is found by following the parents."""
    tables, rows = state
    rows = ops.take_along_axis(rows, parents, axis=1)
    rows = ops.where(position == 0, 0, (rows * tables.shape[-1] + token_ids + 1) % NUM_ROWS)
    return ops.take_along_axis(tables, rows[..., None], axis=1), (tables, rows)


def initial_state(tables, beam_size):
    tables = ops.convert_to_tensor(tables)
    return tables, ops.zeros((ops.shape(tables)[0], beam_size), "int32")


def next_log_probs(table, prefix):
    row = 0
    for token_id in prefix:
        row = (row * table.shape[1] + token_id + 1) % NUM_ROWS
    return log_softmax(table[row])


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    largest = logits.max()
    if largest == -np.inf:
        return logits
    return logits - largest - np.log(np.exp(logits - largest).sum())


def markov_step(probabilities):
    """A model that depends only on the last token: probabilities[previous][next]."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(probabilities, "float32"))
    return lambda token_ids, parents, position, state: (ops.take(logits, token_ids, axis=0), state)


# Searches in plain Python.


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def exhaustive_search(next_log_probs, vocab_size, max_length, alpha, n_best):
    found = []
    for length in range(1, max_length + 1):
        for tokens in itertools.product(range(vocab_size), repeat=length):
            ends = tokens[-1] == END
            if END in tokens[:-1] or not (ends or length == max_length):
                continue
            log_prob = sum(next_log_probs(list(tokens[:i]))[t] for i, t in enumerate(tokens))
            if log_prob > -np.inf:
                found.append((log_prob / penalty(length, alpha), list(tokens)))
    return sorted(found, reverse=True)[:n_best]


def plain_beam_search(next_log_probs, max_length, beam_size, alpha, n_best):
    """The n_best as (score, tokens), and the number of steps that it took."""
    live, finished = [(0.0, [])], []
    for length in range(1, max_length + 1):
        candidates = []
        for log_prob, tokens in live:
            log_probs = next_log_probs(tokens)
            candidates += [(log_prob + p, tokens + [t]) for t, p in enumerate(log_probs)]
        candidates = [c for c in candidates if c[0] > -np.inf]
        candidates.sort(key=lambda c: -c[0])
        live = []
        for place, (log_prob, tokens) in enumerate(candidates[: 2 * beam_size]):
            if tokens[-1] != END and length < max_length:
                live.append((log_prob, tokens))
            elif place < beam_size:
                finished.append((log_prob / penalty(length, alpha), tokens))
        live = live[:beam_size]
        finished = sorted(finished, key=lambda f: -f[0])[:beam_size]
        if not live:
            break
        if len(finished) >= n_best and finished[n_best - 1][0] >= live[0][0] / penalty(max_length, alpha):
            break
    return finished[:n_best], length


def plain_greedy_search(next_log_probs, max_length):
    tokens, score = [], 0.0
    while len(tokens) < max_length and END not in tokens:
        log_probs = next_log_probs(tokens)
        tokens.append(int(np.argmax(log_probs)))
        score += log_probs[tokens[-1]]
    return score, tokens


# Comparisons.


def as_arrays(hypotheses):
    token_ids, lengths, scores = (ops.convert_to_numpy(x) for x in hypotheses)
    assert (token_ids.dtype, lengths.dtype, scores.dtype) == ("int32", "int32", "float32")
    assert not np.isnan(scores).any()
    assert (token_ids[np.arange(token_ids.shape[-1]) >= lengths[..., None]] == 0).all()
    return token_ids, lengths, scores


def as_lists(hypotheses):
    """The (score, tokens) found for each sentence."""
    token_ids, lengths, scores = as_arrays(hypotheses)
    assert (lengths[np.isneginf(scores)] == 0).all()
    return [
        [(s, list(t[:n])) for t, n, s in zip(*sentence) if s > -np.inf] for sentence in zip(token_ids, lengths, scores)
    ]


def assert_same_sentences(found, expected):
    assert [tokens for _, tokens in found] == [tokens for _, tokens in expected]
    np.testing.assert_allclose([score for score, _ in found], [score for score, _ in expected], rtol=1e-5, atol=1e-5)


def search(tables, max_lengths, beam_size, max_length=None, **options):
    return beam_search(
        step,
        initial_state(tables, beam_size),
        max_lengths,
        max_length=max(max_lengths) if max_length is None else max_length,
        start_id=START,
        end_id=END,
        beam_size=beam_size,
        **options,
    )


# Worked by hand.

# After start: a 0.6, b 0.4. After a: end 0.3, a 0.4, b 0.3. After b: end 0.9, a 0.1.
A, B = 2, 3
TRAP = [
    [0.0, 0.0, 0.6, 0.4],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 0.3, 0.4, 0.3],
    [0.0, 0.9, 0.1, 0.0],
]


def test_greedy_follows_the_best_token_and_is_cut():
    # a (0.6), then a (0.4), then cut: P = 0.24.
    found = greedy_search(markov_step(TRAP), (), [2], max_length=4, start_id=START, end_id=END)
    token_ids, lengths, scores = as_arrays(found)
    np.testing.assert_array_equal(token_ids, [[[A, A, 0, 0]]])
    np.testing.assert_array_equal(lengths, [[2]])
    np.testing.assert_allclose(scores, [[np.log(0.24)]], rtol=1e-6)


def test_beam_search_finds_what_greedy_misses():
    # Step 1: both a (0.6) and b (0.4) live. Step 2, the best 4 of 2 * 3 possible candidates:
    # b end 0.36, a a 0.24, a end 0.18, a b 0.18 (the lower token id first); all finish, 2 are kept.
    # lp = ((5 + 2) / 6) ** 1 = 7/6.
    found = beam_search(
        markov_step(TRAP), (), [2], max_length=4, start_id=START, end_id=END,
        beam_size=2, length_penalty=1.0, n_best=2,
    )  # fmt: skip
    token_ids, lengths, scores = as_arrays(found)
    np.testing.assert_array_equal(token_ids, [[[B, END, 0, 0], [A, A, 0, 0]]])
    np.testing.assert_array_equal(lengths, [[2, 2]])
    np.testing.assert_allclose(scores, [[np.log(0.36) * 6 / 7, np.log(0.24) * 6 / 7]], rtol=1e-6)


def test_forbidden_tokens_are_never_chosen_and_the_others_keep_their_probabilities():
    # Without a: b (0.4), then end (0.9), or cut after b and nothing else.
    arguments = dict(max_length=3, start_id=START, end_id=END, forbidden_ids=[A])
    token_ids, _, scores = as_arrays(greedy_search(markov_step(TRAP), (), [3], **arguments))
    np.testing.assert_array_equal(token_ids, [[[B, END, 0]]])
    np.testing.assert_allclose(scores, [[np.log(0.36)]], rtol=1e-6)
    found = beam_search(markov_step(TRAP), (), [3], **arguments, beam_size=3, length_penalty=0.0, n_best=3)
    token_ids, lengths, scores = as_arrays(found)
    np.testing.assert_array_equal(token_ids, [[[B, END, 0], [0] * 3, [0] * 3]])
    np.testing.assert_array_equal(lengths, [[2, 0, 0]])
    np.testing.assert_allclose(scores, [[np.log(0.36), -np.inf, -np.inf]], rtol=1e-6)


def test_where_everything_is_forbidden_nothing_is_found():
    arguments = dict(max_length=3, start_id=START, end_id=END, forbidden_ids=range(4))
    for found in (
        greedy_search(markov_step(TRAP), (), [3], **arguments),
        beam_search(markov_step(TRAP), (), [3], **arguments, beam_size=2),
    ):
        token_ids, lengths, scores = as_arrays(found)
        assert not token_ids.any() and lengths.tolist() == [[0]] and scores.tolist() == [[-np.inf]]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_to_forbid_a_token_is_to_search_a_model_that_lacks_it(beam_size):
    # The same probabilities otherwise, so that those of a step no longer add up to 1.
    generator = np.random.default_rng(beam_size)
    probabilities = generator.dirichlet(np.ones(40), size=40)
    arguments = dict(max_length=8, start_id=0, end_id=1)
    if beam_size > 1:
        arguments |= dict(beam_size=beam_size, n_best=beam_size)
    forbidden = [0, 5, 39]
    search = greedy_search if beam_size == 1 else beam_search
    step = markov_step(probabilities)
    found = as_arrays(search(step, (), [8, 3], **arguments, forbidden_ids=forbidden))
    kept = [token_id for token_id in range(40) if token_id not in forbidden[1:]]
    # Token 0 of the smaller model stands for what is left out, and is forbidden still.
    smaller = probabilities[np.ix_(kept, kept)]
    smaller[:, 0] = 1 - smaller[:, 1:].sum(axis=1)
    expected = as_arrays(search(markov_step(smaller), (), [8, 3], **arguments, forbidden_ids=[0]))
    np.testing.assert_array_equal(found[0], np.array(kept)[expected[0]])
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-5)


@pytest.mark.parametrize("token_id", [-1, 4])
def test_a_forbidden_id_must_be_in_the_vocabulary(token_id):
    with pytest.raises(ValueError) as error:
        greedy_search(markov_step(TRAP), (), [3], max_length=3, start_id=0, end_id=1, forbidden_ids=(token_id,))
    assert str(error.value) == f"forbidden_ids must be from 0 to 3; received forbidden_ids=({token_id},)"


@pytest.mark.parametrize(
    ("length_penalty", "sentence", "score"),
    [
        # P(end) = 0.35 in 1 token, P(a end) = 0.65 * 0.5 = 0.325 in 2 tokens.
        (0.0, [END], -1.049822),  # log 0.35 = -1.049822 > log 0.325 = -1.123930
        (1.0, [A, END], -0.963369),  # -1.049822 / (6/6) < -1.123930 / (7/6) = -0.963369
    ],
)
def test_length_penalty_turns_the_order(length_penalty, sentence, score):
    probabilities = [[0.0, 0.35, 0.65], [0.0, 1.0, 0.0], [0.2, 0.5, 0.3]]
    found = beam_search(
        markov_step(probabilities), (), [2], max_length=2, start_id=START, end_id=END,
        beam_size=2, length_penalty=length_penalty,
    )  # fmt: skip
    assert_same_sentences(as_lists(found)[0], [(score, sentence)])


def test_equals_come_in_the_order_of_time_beam_and_token():
    # Four equal tokens. Step 1: [1] ends with 1/4, [0] and [2] live. Step 2: the first 4 of the 8
    # continuations with 1/16 each are those of [0].
    found = beam_search(
        markov_step(np.full((4, 4), 0.25)), (), [2], max_length=2, start_id=START, end_id=END,
        beam_size=2, length_penalty=0.0, n_best=2,
    )  # fmt: skip
    expected = [(np.log(1 / 4), [1]), (np.log(1 / 16), [0, 0])]
    assert_same_sentences(as_lists(found)[0], expected)


# Against exhaustive search.


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("vocab_size", "max_lengths", "n_best", "forbidden"),
    [
        (3, [4, 1, 3, 2, 4, 0], 1, 0.0),
        (3, [4, 1, 3, 2, 4, 4], 5, 0.0),  # Of length 1 there are 3: two places stay empty.
        (4, [3, 3, 2], 7, 0.0),
        (2, [5, 4], 6, 0.0),  # [end], [0, end], ... , and one cut.
        (4, [3, 3, 3, 3, 3, 2], 4, 0.4),
    ],
)
def test_a_wide_beam_equals_exhaustive_search(vocab_size, max_lengths, n_best, forbidden, alpha):
    tables = random_tables(17, len(max_lengths), vocab_size, forbidden)
    beam_size = 27  # No fewer than the continuations in any step but the last, in which all end.
    found = search(tables, max_lengths, beam_size, length_penalty=alpha, n_best=n_best)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(found)):
        if max_length == 0:
            expected = [(0.0, [])]
        else:
            expected = exhaustive_search(
                lambda prefix: next_log_probs(table, prefix), vocab_size, max_length, alpha, n_best
            )
        assert_same_sentences(sentences, expected)


# Against plain searches.


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(
    ("vocab_size", "beam_size", "n_best", "forbidden"),
    [
        (7, 1, 1, 0.0),
        (7, 2, 1, 0.0),
        (5, 3, 3, 0.0),
        (11, 4, 2, 0.0),
        (240, 2, 2, 0.0),
        (3, 4, 4, 0.0),
        (6, 3, 2, 0.5),
    ],
)
def test_narrow_beams_equal_a_plain_beam_search(vocab_size, beam_size, n_best, forbidden, alpha):
    tables = random_tables(vocab_size * beam_size, 24, vocab_size, forbidden)
    max_lengths = [1 + i % 8 for i in range(24)]
    found = search(tables, max_lengths, beam_size, length_penalty=alpha, n_best=n_best)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(found)):
        expected, _ = plain_beam_search(
            lambda prefix: next_log_probs(table, prefix), max_length, beam_size, alpha, n_best
        )
        assert_same_sentences(sentences, expected)


def test_greedy_equals_a_plain_greedy_search():
    tables = random_tables(3, 40, 6)
    max_lengths = [1 + i % 9 for i in range(40)]
    found = greedy_search(step, initial_state(tables, 1), max_lengths, max_length=12, start_id=START, end_id=END)
    for table, max_length, sentences in zip(tables, max_lengths, as_lists(found)):
        expected = plain_greedy_search(lambda prefix: next_log_probs(table, prefix), max_length)
        assert_same_sentences(sentences, [expected])


def test_a_beam_of_one_without_length_penalty_equals_greedy():
    tables = random_tables(5, 60, 6)
    max_lengths = [8] * 60
    greedy = greedy_search(step, initial_state(tables, 1), max_lengths, max_length=8, start_id=START, end_id=END)
    beam = search(tables, max_lengths, beam_size=1, length_penalty=0.0)
    for found, expected in zip(as_lists(beam), as_lists(greedy), strict=True):
        assert_same_sentences(found, expected)


# The step function.


def test_parents_lead_a_step_function_to_the_prefix_of_each_hypothesis():
    # The state holds the tokens themselves, reordered by parents alone; every one of them counts.
    batch, beam_size, vocab_size, max_length = 12, 3, 5, 6
    generator = np.random.default_rng(11)
    weights = generator.normal(size=(max_length + 1, vocab_size, vocab_size)).astype("float32")
    phases = generator.normal(size=(batch, 1, vocab_size)).astype("float32")

    def prefix_step(token_ids, parents, position, prefixes):
        prefixes = ops.take_along_axis(prefixes, parents[..., None], axis=1)
        here = ops.arange(max_length + 1) == position
        prefixes = ops.where(here, token_ids[..., None], prefixes)
        seen = ops.one_hot(prefixes, vocab_size)  # -1, not yet there, becomes zeros
        return 4 * ops.sin(ops.einsum("bkpv,pvw->bkw", seen, weights) + phases), prefixes

    found = beam_search(
        prefix_step,
        ops.full((batch, beam_size, max_length + 1), -1, "int32"),
        [max_length] * batch,
        max_length=max_length,
        start_id=START,
        end_id=END,
        beam_size=beam_size,
        n_best=2,
    )
    for phase, sentences in zip(phases, as_lists(found)):

        def log_probs(prefix):
            total = phase[0] + sum(weights[i, t] for i, t in enumerate([START] + prefix))
            return log_softmax(4 * np.sin(total))

        expected, _ = plain_beam_search(log_probs, max_length, beam_size, 0.6, 2)
        assert_same_sentences(sentences, expected)


def run_step_by_step():
    """Where a loop is compiled even outside of a compiled function, this makes Python run it."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.disable_jit()
    return contextlib.nullcontext()


def counting(calls):
    def counting_step(token_ids, parents, position, state):
        calls.append((int(position), np.array(parents), np.array(token_ids)))
        return step(token_ids, parents, position, state)

    return counting_step


def test_the_first_step_gets_start_ids_and_each_hypothesis_as_its_own_parent():
    calls = []
    with run_step_by_step():
        beam_search(
            counting(calls), initial_state(random_tables(0, 2, 5), 3), [4, 4],
            max_length=4, start_id=3, end_id=END, beam_size=3,
        )  # fmt: skip
    assert [position for position, _, _ in calls] == list(range(len(calls)))
    np.testing.assert_array_equal(calls[0][1], [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_array_equal(calls[0][2], [[3, 3, 3], [3, 3, 3]])


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_search_stops_as_soon_as_nothing_can_change(alpha):
    tables = random_tables(23, 12, 5)
    expected = [plain_beam_search(lambda prefix: next_log_probs(table, prefix), 40, 3, alpha, 2)[1] for table in tables]
    assert 1 < max(expected) < 40 and len(set(expected)) > 2
    for chosen in ([0], [1], range(12)):
        calls = []
        with run_step_by_step():
            beam_search(
                counting(calls), initial_state(tables[list(chosen)], 3), [40] * len(chosen),
                max_length=40, start_id=START, end_id=END, beam_size=3, length_penalty=alpha,
                n_best=2,
            )  # fmt: skip
        assert len(calls) == max(expected[i] for i in chosen)


def test_greedy_search_stops_with_its_last_sentence():
    tables = random_tables(29, 6, 5)
    calls = []
    with run_step_by_step():
        found = greedy_search(
            counting(calls), initial_state(tables, 1), [40] * 6,
            max_length=40, start_id=START, end_id=END,
        )  # fmt: skip
    assert 1 < len(calls) == ops.convert_to_numpy(found.lengths).max() < 40


class RecurrentModel:
    """A third-party model: it shares only the protocol with ours."""

    vocab_size, width = 4, 5

    def __init__(self):
        generator = np.random.default_rng(99)
        self.source_weights, self.token_weights, self.weights, self.output_weights = (
            generator.normal(scale=1.5, size=shape).astype("float32") for shape in ((3, 5), (4, 5), (5, 5), (5, 4))
        )
        self.beam_sizes, self.calls = [], []

    def start_decoding(self, source, beam_size=1, max_length=None):
        self.beam_sizes.append(beam_size)
        memory = ops.tanh(ops.matmul(source, self.source_weights))  # (batch, width)
        return self.step, {"memory": ops.repeat(memory[:, None], beam_size, axis=1)}

    def step(self, token_ids, parents, position, state):
        self.calls.append(tuple(ops.convert_to_numpy(x) for x in (position, token_ids, parents)))
        memory = ops.take_along_axis(state["memory"], parents[..., None], axis=1)  # (batch, beam_size, width)
        memory = ops.tanh(ops.matmul(memory, self.weights) + ops.take(self.token_weights, token_ids, axis=0))
        return ops.matmul(memory, self.output_weights), {"memory": memory}

    def next_log_probs(self, source, prefix):
        """The same in NumPy, from the beginning."""
        memory = np.tanh(source @ self.source_weights.astype("float64"))
        for token_id in [START, *prefix]:
            memory = np.tanh(memory @ self.weights + self.token_weights[token_id])
        return log_softmax(memory @ self.output_weights)

    def assert_calls_keep_the_protocol(self, batch, beam_size):
        assert [int(position) for position, _, _ in self.calls] == list(range(len(self.calls)))
        for position, token_ids, parents in self.calls:
            assert (position.shape, position.dtype) == ((), "int32")
            for values, end in ((token_ids, self.vocab_size), (parents, beam_size)):
                assert (values.shape, values.dtype) == ((batch, beam_size), "int32")
                assert np.all((values >= 0) & (values < end))
        _, first_ids, first_parents = self.calls[0]
        assert np.all(first_ids == START) and np.all(first_parents == np.arange(beam_size))


SOURCES = np.random.default_rng(73).normal(size=(5, 3)).astype("float32")


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize(("beam_size", "n_best"), [(27, 3), (2, 2)])
def test_beam_search_needs_nothing_of_a_model_but_the_protocol(beam_size, n_best, alpha):
    model, max_length = RecurrentModel(), 4
    with run_step_by_step():
        step, state = model.start_decoding(SOURCES, beam_size)
        found = beam_search(
            *(step, state, [max_length] * 5),
            **dict(max_length=max_length, start_id=START, end_id=END),
            **dict(beam_size=beam_size, length_penalty=alpha, n_best=n_best),
        )
    model.assert_calls_keep_the_protocol(5, beam_size)
    assert 1 < len(model.calls) <= max_length and model.beam_sizes == [beam_size]
    differences = 0
    for source, sentences in zip(SOURCES, as_lists(found)):

        def log_probs(prefix):
            return model.next_log_probs(source, prefix)

        best = exhaustive_search(log_probs, model.vocab_size, max_length, alpha, n_best)
        if beam_size == 27:
            # At most 3 ** 3 hypotheses do not end before the last step: none is lost.
            assert_same_sentences(sentences, best)
        else:
            expected, _ = plain_beam_search(log_probs, max_length, beam_size, alpha, n_best)
            assert_same_sentences(sentences, expected)
            differences += [tokens for _, tokens in expected] != [tokens for _, tokens in best]
    # A narrow beam misses something, so that the comparison above says something of its own.
    assert (differences > 0) == (beam_size == 2)


def test_greedy_search_needs_nothing_of_a_model_but_the_protocol():
    model, max_length = RecurrentModel(), 6
    with run_step_by_step():
        step, state = model.start_decoding(SOURCES)
        found = greedy_search(step, state, [max_length] * 5, max_length=max_length, start_id=START, end_id=END)
    model.assert_calls_keep_the_protocol(5, beam_size=1)
    for source, sentences in zip(SOURCES, as_lists(found)):
        expected = plain_greedy_search(lambda prefix: model.next_log_probs(source, prefix), max_length)
        assert_same_sentences(sentences, [expected])


def test_greedy_search_with_one_token_of_freedom_equals_exhaustive_search():
    # One step: the most probable token is the most probable sequence.
    model = RecurrentModel()
    with run_step_by_step():
        step, state = model.start_decoding(SOURCES)
        found = greedy_search(step, state, [1] * 5, max_length=1, start_id=START, end_id=END)
    model.assert_calls_keep_the_protocol(5, beam_size=1)
    for source, sentences in zip(SOURCES, as_lists(found)):
        expected = exhaustive_search(lambda prefix: model.next_log_probs(source, prefix), 4, 1, 0.0, 1)
        assert_same_sentences(sentences, expected)


def test_the_transformer_starts_decoding_as_the_protocol_says():
    ours, protocol = (inspect.signature(cls.start_decoding).parameters for cls in (Transformer, Decodable))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in protocol.values()
    ]


# Sentences in a batch.


def test_a_batch_equals_its_sentences_one_by_one():
    tables = random_tables(31, 6, 9)
    max_lengths = [5, 0, 8, 1, 7, 8]
    together = as_lists(search(tables, max_lengths, beam_size=4, n_best=3))
    greedy_together = as_lists(
        greedy_search(step, initial_state(tables, 1), max_lengths, max_length=8, start_id=START, end_id=END)
    )
    for i, max_length in enumerate(max_lengths):
        [alone] = as_lists(search(tables[i : i + 1], [max_length], beam_size=4, n_best=3))
        assert_same_sentences(together[i], alone)
        [alone] = as_lists(
            greedy_search(
                step,
                initial_state(tables[i : i + 1], 1),
                [max_length],
                max_length=max_length,
                start_id=START,
                end_id=END,
            )
        )
        assert_same_sentences(greedy_together[i], alone)


def test_a_neighbor_that_goes_on_for_long_changes_nothing():
    # All sentences but the last are done before position 20. What their models answer from there
    # on, here that they are sure of an end, must not be seen.
    tables = random_tables(37, 6, 5)
    tables[:5, :, END] += 2.0
    tables[5, :, END] = -np.inf

    def tempting_step(token_ids, parents, position, state):
        logits, state = step(token_ids, parents, position, state)
        sure = ops.where(ops.arange(5) == END, 1000.0, 0.0)
        tempted = (position >= 20) & ops.reshape(ops.arange(6) < 5, (6, 1, 1))
        return ops.where(tempted, sure, logits), state

    options = dict(max_length=40, start_id=START, end_id=END)
    for searched_step in (step, tempting_step):
        beam = beam_search(searched_step, initial_state(tables, 3), [40] * 6, beam_size=3, n_best=2, **options)
        greedy = greedy_search(searched_step, initial_state(tables, 1), [40] * 6, **options)
        assert int(beam.lengths[5, 0]) == int(greedy.lengths[5, 0]) == 40
        for table, sentences, followed in zip(tables[:5], as_lists(beam), as_lists(greedy)):

            def log_probs(prefix):
                return next_log_probs(table, prefix)

            expected, num_steps = plain_beam_search(log_probs, 40, 3, 0.6, 2)
            assert num_steps < 20
            assert_same_sentences(sentences, expected)
            assert_same_sentences(followed, [plain_greedy_search(log_probs, 20)])


def test_each_sentence_is_cut_at_its_own_maximum_length():
    tables = random_tables(41, 5, 4)
    max_lengths = [3, 0, 1, 6, 9]  # The capacity is 7: the last one is lowered to it.
    options = dict(max_length=7, start_id=START, end_id=NEVER)
    beam = beam_search(step, initial_state(tables, 2), max_lengths, beam_size=2, n_best=2, **options)
    greedy = greedy_search(step, initial_state(tables, 1), max_lengths, **options)
    np.testing.assert_array_equal(beam.lengths, [[3, 3], [0, 0], [1, 1], [6, 6], [7, 7]])
    np.testing.assert_array_equal(greedy.lengths, [[3], [0], [1], [6], [7]])
    np.testing.assert_array_equal(ops.convert_to_numpy(beam.scores)[1], [0.0, -np.inf])
    for alpha, found in [(0.6, beam), (0.0, greedy)]:
        assert ops.shape(found.token_ids)[-1] == 7
        for i, sentences in enumerate(as_lists(found)):
            for score, tokens in sentences:
                log_prob = sum(next_log_probs(tables[i], tokens[:n])[token] for n, token in enumerate(tokens))
                np.testing.assert_allclose(score, log_prob / penalty(len(tokens), alpha), rtol=1e-5)


def test_a_batch_of_no_sentences_gives_no_hypotheses():
    tables = random_tables(0, 0, 5)
    max_lengths = np.zeros(0, "int32")
    options = dict(max_length=6, start_id=START, end_id=END)
    found = beam_search(step, initial_state(tables, 4), max_lengths, n_best=2, **options)
    assert [tuple(x.shape) for x in found] == [(0, 2, 6), (0, 2), (0, 2)]
    found = greedy_search(step, initial_state(tables, 1), max_lengths, **options)
    assert [tuple(x.shape) for x in found] == [(0, 1, 6), (0, 1), (0, 1)]


def test_a_capacity_of_nothing_gives_empty_sentences():
    tables = random_tables(0, 2, 5)
    options = dict(max_length=0, start_id=START, end_id=END)
    for found in (
        beam_search(step, initial_state(tables, 4), [0, 0], **options),
        greedy_search(step, initial_state(tables, 1), [0, 0], **options),
    ):
        assert tuple(found.token_ids.shape) == (2, 1, 0)
        np.testing.assert_array_equal(found.scores, [[0.0], [0.0]])


# Unusual logits.


def test_a_dead_end_is_left_for_a_less_probable_way():
    # a is the best first token, but nothing can follow it: all logits are -inf.
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[0, 0, 0.9, 0.1], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0.5, 0, 0.5]]))

    def dead_end_step(token_ids, parents, position, state):
        return ops.take(ops.cast(logits, "float32"), token_ids, axis=0), state

    options = dict(max_length=3, start_id=START, end_id=END)
    found = beam_search(dead_end_step, (), [3], beam_size=2, n_best=2, length_penalty=0.0, **options)
    expected = [(np.log(0.05), [B, END]), (np.log(0.025), [B, B, END])]
    assert_same_sentences(as_lists(found)[0], expected)
    # A beam of 1 and greedy search have lost the way by then: nothing found, and said so.
    for found in (
        beam_search(dead_end_step, (), [3], beam_size=1, **options),
        greedy_search(dead_end_step, (), [3], **options),
    ):
        token_ids, lengths, scores = as_arrays(found)
        np.testing.assert_array_equal(token_ids, [[[0, 0, 0]]])
        np.testing.assert_array_equal(lengths, [[0]])
        np.testing.assert_array_equal(scores, [[-np.inf]])


def test_a_model_that_answers_not_a_number_spoils_its_own_sentence_alone():
    tables = random_tables(43, 3, 5)
    expected = as_lists(search(tables, [6, 6, 6], beam_size=3))
    tables[1] = np.nan
    found = as_lists(search(tables, [6, 6, 6], beam_size=3))
    assert found[1] == []
    assert_same_sentences(found[0], expected[0])
    assert_same_sentences(found[2], expected[2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_are_float32_whatever_the_logits_are(dtype):
    tables = ops.cast(random_tables(47, 3, 5), dtype)
    rounded = ops.convert_to_numpy(ops.cast(tables, "float32"))
    expected = as_lists(search(rounded, [8, 8, 8], beam_size=3, n_best=2))
    found = as_lists(search(tables, [8, 8, 8], beam_size=3, n_best=2))
    for sentences, expected_sentences in zip(found, expected):
        assert_same_sentences(sentences, expected_sentences)


def test_log_probabilities_stay_exact_beside_huge_logits():
    # Shifting all logits by 1e4 changes no probability: 3/4 and 1/4 of e^0 and e^-log 3.
    logits = np.array([1e4, 1e4 - np.float32(np.log(3.0))], "float32")
    gap = np.float64(logits[0]) - np.float64(logits[1])
    found = greedy_search(
        lambda token_ids, parents, position, state: (
            ops.broadcast_to(logits, (*ops.shape(token_ids), 2)),
            state,
        ),
        (), [100], max_length=100, start_id=0, end_id=1,
    )  # fmt: skip
    np.testing.assert_allclose(found.scores, [[-100 * np.log1p(np.exp(-gap))]], rtol=1e-5)


def test_a_vocabulary_of_one_token():
    def only(token_ids, parents, position, state):
        return ops.zeros((*ops.shape(token_ids), 1)), state

    found = beam_search(only, (), [3], max_length=3, start_id=0, end_id=0, beam_size=3, n_best=2)
    assert as_lists(found) == [[(0.0, [0])]]
    found = beam_search(only, (), [3], max_length=3, start_id=0, end_id=NEVER, beam_size=3)
    assert as_lists(found) == [[(0.0, [0, 0, 0])]]


# Compiled.


def compiled(function, batch):
    """The forms in which the backend compiles a function of tables and maximum lengths."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        signature = [
            tf.TensorSpec((None, NUM_ROWS, 7), tf.float32),
            tf.TensorSpec((None,), tf.int32),
        ]
        forms = [tf.function(function, input_signature=signature)]
        if batch > 0:  # XLA compiles for the batch at hand, and TensorFlow no scatter into nothing.
            forms.append(tf.function(function, input_signature=signature, jit_compile=True))
        return forms
    if keras.backend.backend() == "jax":
        import jax

        return [jax.jit(function)]
    return [function]


@pytest.mark.parametrize("batch", [3, 0])
def test_a_compiled_search_equals_a_plain_one(batch):
    def beam(tables, max_lengths):
        return beam_search(
            step, initial_state(tables, 3), max_lengths,
            max_length=9, start_id=START, end_id=END, beam_size=3, n_best=2,
        )  # fmt: skip

    def greedy(tables, max_lengths):
        return greedy_search(step, initial_state(tables, 1), max_lengths, max_length=9, start_id=START, end_id=END)

    tables = ops.convert_to_tensor(random_tables(53, batch, 7))
    max_lengths = ops.convert_to_tensor(np.array([9, 4, 0][:batch], "int32"))
    for function in (beam, greedy):
        expected = as_lists(function(tables, max_lengths))
        for compiled_function in compiled(function, batch):
            found = as_lists(compiled_function(tables, max_lengths))
            assert len(found) == len(expected) == batch
            for sentences, expected_sentences in zip(found, expected):
                assert_same_sentences(sentences, expected_sentences)


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, NUM_ROWS, None), tf.float32),
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((), tf.int32),
        ]
    )
    def graph_search(tables, max_lengths, max_length):
        return both_searches(tables, max_lengths, max_length)

    @tf.function(input_signature=graph_search.input_signature)
    def graph_search_that_drops(tables, max_lengths, max_length):
        return both_searches(tables, max_lengths, max_length, drop_finished=True)

    def both_searches(tables, max_lengths, max_length, **options):
        tables = tf.ensure_shape(tables, (None, NUM_ROWS, 7))
        options |= dict(max_length=max_length, start_id=START, end_id=END)
        beam = beam_search(step, initial_state(tables, 3), max_lengths, beam_size=3, n_best=2, **options)
        return beam, greedy_search(step, initial_state(tables, 1), max_lengths, **options)

    @pytest.mark.parametrize("graph_search", [graph_search, graph_search_that_drops])
    @pytest.mark.parametrize("max_lengths", [[9, 4, 0, 2], [3], [], list(range(40))])
    def test_in_a_graph_batch_and_capacity_may_be_unknown(max_lengths, graph_search):
        tables = random_tables(59, len(max_lengths), 7)
        max_lengths = np.array(max_lengths, "int32")
        max_length = int(max_lengths.max(initial=0)) + 2
        beam, greedy = graph_search(tables, max_lengths, max_length)
        assert tuple(beam.token_ids.shape) == (len(max_lengths), 2, max_length)
        assert tuple(greedy.token_ids.shape) == (len(max_lengths), 1, max_length)
        options = dict(max_length=max_length, start_id=START, end_id=END)
        expected = search(tables, max_lengths, beam_size=3, n_best=2, max_length=max_length)
        for sentences, expected_sentences in zip(as_lists(beam), as_lists(expected)):
            assert_same_sentences(sentences, expected_sentences)
        expected = greedy_search(step, initial_state(tables, 1), max_lengths, **options)
        for sentences, expected_sentences in zip(as_lists(greedy), as_lists(expected)):
            assert_same_sentences(sentences, expected_sentences)

    @pytest.mark.parametrize("beam_size", [1, 2, 27])
    def test_sequences_of_somebody_elses_model_leave_the_batch(beam_size):
        found = []
        for drop_finished in (False, True):
            model = RecurrentModel()
            step, state = model.start_decoding(SOURCES, beam_size)
            options = dict(max_length=6, start_id=START, end_id=END, drop_finished=drop_finished)
            if beam_size == 1:
                found.append(greedy_search(step, state, [6, 2, 6, 1, 3], **options))
            else:
                found.append(beam_search(step, state, [6, 2, 6, 1, 3], beam_size=beam_size, **options))
            num_rows = [len(token_ids) for _, token_ids, _ in model.calls]
            assert num_rows == sorted(num_rows, reverse=True) and (num_rows[-1] < 5) == drop_finished
        for sentences, expected in zip(*map(as_lists, found), strict=True):
            assert_same_sentences(sentences, expected)

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_sentences_that_are_done_leave_the_batch(beam_size):
        # Each costs as many steps as it needs alone, and what waits until an eighth is done.
        tables = random_tables(67, 32, 5)

        def num_rows(rows, drop_finished):
            counts = []

            def counting_step(token_ids, parents, position, state):
                counts.append(len(token_ids))
                return step(token_ids, parents, position, state)

            options = dict(max_length=40, start_id=START, end_id=END, drop_finished=drop_finished)
            state = initial_state(tables[rows], beam_size)
            max_lengths = [40] * len(tables[rows])
            if beam_size == 1:
                greedy_search(counting_step, state, max_lengths, **options)
            else:
                beam_search(counting_step, state, max_lengths, beam_size=beam_size, **options)
            return counts

        def steps_alone(table):
            def log_probs(prefix):
                return next_log_probs(table, prefix)

            if beam_size == 1:
                return len(plain_greedy_search(log_probs, 40)[1])
            return plain_beam_search(log_probs, 40, beam_size, 0.6, 1)[1]

        alone = [steps_alone(table) for table in tables]
        needed = [sum(steps > position for steps in alone) for position in range(max(alone))]
        assert num_rows(slice(None), drop_finished=False) == [32] * max(alone)
        dropping = num_rows(slice(None), drop_finished=True)
        assert all(n <= have and 7 * have < 8 * n for n, have in zip(needed, dropping, strict=True))
        assert dropping[-1] < 8

    def test_the_graph_holds_no_operation_of_xla():
        graph = graph_search.get_concrete_function().graph.as_graph_def()
        types = {node.op for node in graph.node}
        types |= {node.op for function in graph.library.function for node in function.node_def}
        assert {"StatelessWhile", "TopKV2", "TensorScatterUpdate"} <= types
        assert not [t for t in types if t.startswith("Xla")]

    def test_a_known_batch_survives_a_step_that_loses_it():
        tables = random_tables(61, 2, 5)

        def blurring_step(token_ids, parents, position, state):
            logits, state = step(token_ids, parents, position, state)
            return tf.compat.v1.placeholder_with_default(logits, (None, None, 5)), state

        @tf.function
        def blurred():
            return beam_search(
                blurring_step, initial_state(tables, 3), [6, 6],
                max_length=6, start_id=START, end_id=END, beam_size=3,
            )  # fmt: skip

        expected = as_lists(search(tables, [6, 6], beam_size=3))
        for sentences, expected_sentences in zip(as_lists(blurred()), expected):
            assert_same_sentences(sentences, expected_sentences)


# Bad arguments.


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (dict(beam_size=0), "positive; received beam_size=0"),
        (dict(beam_size=2.0), "of type int; received beam_size=2.0"),
        (dict(beam_size=True), "of type int; received beam_size=True"),
        (dict(n_best=0), "from 1 to beam_size=4; received n_best=0"),
        (dict(n_best=5), "from 1 to beam_size=4; received n_best=5"),
        (dict(length_penalty=-0.1), "at least 0 and finite; received length_penalty=-0.1"),
        (dict(length_penalty=float("nan")), "at least 0 and finite; received length_penalty=nan"),
        (dict(length_penalty=float("inf")), "at least 0 and finite; received length_penalty=inf"),
        (dict(length_penalty="1"), "of type float; received length_penalty='1'"),
        (dict(max_length=-1), "at least 0; received max_length=-1"),
        (dict(start_id=-2), "at least 0; received start_id=-2"),
        (dict(end_id=-3), "at least 0; received end_id=-3"),
    ],
)
def test_bad_arguments_are_named(arguments, rule):
    given = dict(max_lengths=[4], max_length=4, start_id=START, end_id=END) | arguments
    (name,) = arguments
    searches = [beam_search]
    if name not in ("beam_size", "n_best", "length_penalty"):
        searches.append(greedy_search)
    for function in searches:
        with pytest.raises(ValueError) as error:
            function(markov_step(TRAP), (), **given)
        assert str(error.value) == f"{name} must be {rule}"


@pytest.mark.parametrize(("max_lengths", "shape"), [(4, "()"), ([[4]], "(1, 1)")])
def test_there_is_one_maximum_length_for_each_sentence(max_lengths, shape):
    for function in (beam_search, greedy_search):
        with pytest.raises(ValueError) as error:
            function(markov_step(TRAP), (), max_lengths, max_length=4, start_id=START, end_id=END)
        assert str(error.value) == f"max_lengths must have shape (batch,); received max_lengths of shape {shape}"
