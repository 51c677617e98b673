"""Models of tables, searches in plain Python, and comparisons, which the tests of the searches
share."""

import contextlib
import itertools

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding import beam_search, greedy_search

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
    """A sequence ends with END, at the maximum length, or where no token may follow."""
    scored = []
    for length in range(max_length + 1):
        for tokens in itertools.product(range(vocab_size), repeat=length):
            tokens = list(tokens)
            if END in tokens[:-1]:
                continue
            log_prob = sum(next_log_probs(tokens[:i])[t] for i, t in enumerate(tokens))
            ends = END in tokens or length == max_length
            if log_prob > -np.inf and (ends or is_dead_end(next_log_probs(tokens))):
                scored.append((log_prob / penalty(length, alpha), tokens))
    return sorted(scored, reverse=True)[:n_best]


def is_dead_end(log_probs):
    return max(log_probs) == -np.inf


def plain_beam_search(next_log_probs, max_length, beam_size, alpha, n_best):
    """The n_best as (score, tokens), and the number of steps that it took."""
    live, finished = [(0.0, [])], []
    for length in range(1, max_length + 1):
        candidates = []
        for log_prob, tokens in live:
            log_probs = next_log_probs(tokens)
            if is_dead_end(log_probs):
                finished.append((log_prob / penalty(length - 1, alpha), tokens))
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
        if len(finished) >= n_best and finished[n_best - 1][0] >= live[0][0] / penalty(
            max_length, alpha
        ):
            break
    return finished[:n_best], length


def plain_greedy_search(next_log_probs, max_length):
    tokens, score = [], 0.0
    while len(tokens) < max_length and END not in tokens:
        log_probs = next_log_probs(tokens)
        if is_dead_end(log_probs):
            break
        tokens.append(int(np.argmax(log_probs)))
        score += log_probs[tokens[-1]]
    return score, tokens


# Comparisons.


def as_arrays(hypotheses):
    token_ids, lengths, scores = (ops.convert_to_numpy(x) for x in hypotheses[:3])
    assert (token_ids.dtype, lengths.dtype, scores.dtype) == ("int32", "int32", "float32")
    assert not np.isnan(scores).any()
    assert (token_ids[np.arange(token_ids.shape[-1]) >= lengths[..., None]] == 0).all()
    return token_ids, lengths, scores


def as_lists(hypotheses):
    """The (score, tokens) found for each sentence."""
    token_ids, lengths, scores = as_arrays(hypotheses)
    assert (lengths[np.isneginf(scores)] == 0).all()
    return [
        [(s, list(t[:n])) for t, n, s in zip(*sentence) if s > -np.inf]
        for sentence in zip(token_ids, lengths, scores)
    ]


def assert_same_sentences(actual, expected):
    assert [tokens for _, tokens in actual] == [tokens for _, tokens in expected]
    np.testing.assert_allclose(
        [score for score, _ in actual], [score for score, _ in expected], rtol=1e-5, atol=1e-5
    )


def search(tables, max_lengths, beam_size, max_length=None, **options):
    """Beam search."""
    max_length = max(max_lengths) if max_length is None else max_length
    options = (
        dict(max_length=max_length, start_ids=START, end_ids=END, beam_size=beam_size) | options
    )
    return beam_search(step, initial_state(tables, beam_size), max_lengths, **options)


def follow(tables, max_lengths, max_length=None, **options):
    """Greedy search."""
    max_length = max(max_lengths) if max_length is None else max_length
    options = dict(max_length=max_length, start_ids=START, end_ids=END) | options
    return greedy_search(step, initial_state(tables, 1), max_lengths, **options)


def assert_same(actual, expected):
    """Compares the hypotheses of two searches."""
    for sentences, expected_sentences in zip(as_lists(actual), as_lists(expected), strict=True):
        assert_same_sentences(sentences, expected_sentences)


def run_step_by_step():
    """Where a loop is compiled even outside of a compiled function, this makes Python run it."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.disable_jit()
    return contextlib.nullcontext()


class RecurrentModel:
    """A third-party model: it shares only the protocol with ours."""

    vocab_size, width = 4, 5

    def __init__(self):
        generator = np.random.default_rng(99)
        self.source_weights, self.token_weights, self.weights, self.output_weights = (
            generator.normal(scale=1.5, size=shape).astype("float32")
            for shape in ((3, 5), (4, 5), (5, 5), (5, 4))
        )
        self.beam_sizes, self.calls = [], []

    def start_decoding(self, source, beam_size=1, max_length=None):
        self.beam_sizes.append(beam_size)
        memory = ops.tanh(ops.matmul(source, self.source_weights))  # (batch, width)
        return self.step, {"memory": ops.repeat(memory[:, None], beam_size, axis=1)}

    def step(self, token_ids, parents, position, state):
        self.calls.append(tuple(ops.convert_to_numpy(x) for x in (position, token_ids, parents)))
        memory = ops.take_along_axis(
            state["memory"], parents[..., None], axis=1
        )  # (batch, beam_size, width)
        memory = ops.tanh(
            ops.matmul(memory, self.weights) + ops.take(self.token_weights, token_ids, axis=0)
        )
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
